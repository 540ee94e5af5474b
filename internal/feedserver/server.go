package feedserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/httpserver"
)

// Topics lists the topics of the log; a feed.Store does.
type Topics interface {
	Topics(ctx context.Context) ([]feed.Topic, error)
}

// Server serves a feed, from New until Shutdown.
type Server struct {
	hub    *feed.Hub
	to     feed.Publisher
	topics Topics
	o      Options
	log    *slog.Logger
	counts counters
	grants *grants
	direct *direct             // nil where connections are not taken over
	bodies *semaphore.Weighted // bytes that are being published

	mu       sync.Mutex
	draining bool
	begun    time.Time // of the end
	spread   time.Duration
	ending   chan struct{}  // closed when the server drains
	handlers sync.WaitGroup // streams of the standard way, and polls
	timed    atomic.Uint32  // deliveries, to pick the ones that are timed
}

// New makes a server of the feed that hub hands out, to which publisher appends,
// and whose topics are listed by topics. Who calls it calls Shutdown.
func New(hub *feed.Hub, publisher feed.Publisher, topics Topics, o *Options) (*Server, error) {
	s := &Server{hub: hub, to: publisher, topics: topics, o: o.orDefaults(), ending: make(chan struct{})}
	s.log = s.o.Logger
	s.bodies = semaphore.NewWeighted(s.o.BodyBytes)
	s.grants = newGrants(s)
	if !s.o.Standard {
		d, err := newDirect(s)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return nil, fmt.Errorf("make feed server: %w", err)
		}
		s.direct = d
	}
	return s, nil
}

// Routes are those of the API, for httpserver.Options.
func (s *Server) Routes() []httpserver.Route {
	routes := []httpserver.Route{
		{Pattern: "GET /v1/events", Handler: http.HandlerFunc(s.serveEvents), Tickets: true},
		{Pattern: "GET /v1/topics", Handler: http.HandlerFunc(s.serveTopics)},
		{Pattern: "POST /v1/topics/{topic}/events", Handler: http.HandlerFunc(s.servePublish)},
	}
	if s.o.Tickets != nil {
		routes = append(routes, httpserver.Route{Pattern: "POST /v1/tickets", Handler: http.HandlerFunc(s.serveTicket)})
	}
	return routes
}

// Shutdown ends the streams, spread over the time that there is: each gets what
// is there for it, the time after which to reconnect, and the end of its body.
// New ones are refused. It closes what is left when ctx ends, and then returns
// its error. The hub should run until Shutdown has returned.
func (s *Server) Shutdown(ctx context.Context) error {
	spread := s.o.Spread
	if end, ok := ctx.Deadline(); ok {
		spread = min(spread, time.Until(end)*3/4)
	}
	s.mu.Lock()
	if !s.draining {
		s.draining, s.begun, s.spread = true, time.Now(), max(spread, 0)
		close(s.ending)
	}
	s.mu.Unlock()
	var err error
	if s.direct != nil {
		err = s.direct.shutdown(ctx, max(spread, 0))
	}
	s.grants.close()
	done := make(chan struct{})
	go func() { s.handlers.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done(): // their writes have deadlines, they end
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("shut down feed: %w", err)
	}
	return nil
}

// enter counts a handler in that Shutdown waits for. It fails when the server is
// ending.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.handlers.Add(1)
	return true
}

func (s *Server) isEnding() bool {
	select {
	case <-s.ending:
		return true
	default:
		return false
	}
}

// atEnding calls f when the server begins to end, unless it is stopped before.
// Stop waits for f.
func (s *Server) atEnding(f func()) (stop func()) {
	done, released := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(released)
		select {
		case <-s.ending:
			f()
		case <-done:
		}
	}()
	return func() {
		close(done)
		<-released
	}
}

// lapse has the shards look for streams whose grant is over.
func (s *Server) lapse() {
	if s.direct != nil {
		s.direct.sweep()
	}
}

// farewellDelay is a time that spreads the end of one stream within the whole.
func (s *Server) farewellDelay() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spread <= 0 {
		return 0
	}
	return rand.N(s.spread)
}

// comeback is a time to reconnect after an end that many see at once.
func comeback() time.Duration { return leastRetry + rand.N(mostRetry-leastRetry) }

// timeDelivery observes one of so many deliveries.
func (s *Server) timeDelivery(e *feed.Item) {
	if s.o.Latency != nil && s.timed.Add(1)%latencySample == 1 {
		s.o.Latency(max(time.Since(e.Time), 0))
	}
}

// refuse answers with a problem.
func (s *Server) refuse(w http.ResponseWriter, status int, detail string) {
	s.counts.refused.Add(1)
	httpserver.WriteProblem(w, status, detail)
}

// refuseForNow answers that another time is better.
func (s *Server) refuseForNow(w http.ResponseWriter, detail string) {
	w.Header().Set("Retry-After", strconv.Itoa(int(comeback()/time.Second)))
	s.refuse(w, http.StatusServiceUnavailable, detail)
}

const endingDetail = "the server is shutting down; come again in a moment"
