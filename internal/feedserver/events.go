package feedserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/httpserver"
)

// wanted is what a reader asks for.
type wanted struct {
	principal *access.Principal // nil where nobody is asked
	filter    feed.Filter
	from      *feed.Position // nil: from now on
}

// serveEvents is GET /v1/events: a stream, or with ?wait= a long poll.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	want, ok := s.want(w, r)
	if !ok {
		return
	}
	if r.URL.Query().Has("wait") {
		s.servePoll(w, r, want)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead {
		return
	}
	if r.ProtoMajor == 1 {
		if r.ProtoAtLeast(1, 1) && !r.Close {
			h.Set("Connection", "keep-alive")
		} else {
			h.Set("Connection", "close")
		}
	}
	if s.direct != nil && r.ProtoMajor == 1 && httpserver.ConnOf(r.Context()) != nil && s.direct.serve(w, r, want) {
		return
	}
	s.serveStandard(w, r, want)
}

// want reads a request, and answers it where it cannot be served.
func (s *Server) want(w http.ResponseWriter, r *http.Request) (wanted, bool) {
	var want wanted
	// Polyfills of EventSource, which pages use for the sake of a header with a token,
	// resume by lastEventId.
	if err := httpserver.CheckQuery(r, []string{"wait", "last_event_id", "lastEventId", "ticket"}, "topic"); err != nil {
		s.refuse(w, http.StatusBadRequest, err.Error())
		return want, false
	}
	q := r.URL.Query()
	filter, err := feed.ParseFilter(q["topic"]...)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, err.Error())
		return want, false
	}
	want.filter = filter
	position := r.Header.Get("Last-Event-ID")
	if position == "" {
		position = cmp.Or(q.Get("last_event_id"), q.Get("lastEventId"))
	}
	if position != "" {
		from, err := feed.ParsePosition(position)
		if err != nil {
			s.refuse(w, http.StatusBadRequest, "Last-Event-ID is none that this feed gave out: it is <epoch>-<id>; leave it out to begin with what comes now")
			return want, false
		}
		want.from = &from
	}
	p, known := httpserver.PrincipalOf(r.Context())
	if !known {
		return want, true
	}
	want.principal = p
	patterns := filter.Patterns()
	if filter.All() {
		patterns = []string{"*"}
	}
	for _, pattern := range patterns {
		if !p.Rights.MayReadAll(pattern) {
			s.refuse(w, http.StatusForbidden, mayNotRead(pattern))
			return want, false
		}
	}
	return want, true
}

func mayNotRead(pattern string) string {
	return fmt.Sprintf("you may not read all of the topics %q; ask for those that you may read, or the operator for the right to %s%s", pattern, access.TopicURIPrefix, pattern)
}

// subscribe takes a place in the hub, or answers why there is none.
func (s *Server) subscribe(w http.ResponseWriter, want wanted, wake func()) *feed.Subscription {
	sub, err := s.hub.Subscribe(feed.Subscribe{Filter: want.filter, From: want.from, Wake: wake, Bytes: batchBytes})
	switch {
	case err == nil:
		return sub
	case errors.Is(err, feed.ErrStopped):
		s.refuseForNow(w, endingDetail)
	default:
		s.refuseForNow(w, "there are as many readers as there may be; come again in a moment")
	}
	return nil
}

// start is where a stream that does not resume begins.
func start(want wanted, sub *feed.Subscription) *feed.Position {
	if want.from != nil {
		return nil
	}
	at := sub.Position()
	return &at
}

// deadline is that of one write.
func (s *Server) deadline() time.Time { return time.Now().Add(s.o.WriteTime) }
