package feedserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/logattr"
)

const (
	bodyWait  = 5 * time.Second // for others to be done with theirs
	maxNumber = len("#9223372036854775807")
)

// refusal is a problem to answer with.
type refusal struct {
	status int
	detail string
}

func (e *refusal) Error() string { return e.detail }

// receipts is the answer to what was published at once.
type receipts struct {
	Epoch    string         `json:"epoch"`
	Receipts []feed.Receipt `json:"receipts"`
}

// servePublish is POST /v1/topics/{topic}/events.
func (s *Server) servePublish(w http.ResponseWriter, r *http.Request) {
	topic := r.PathValue("topic")
	key := r.Header.Get("Idempotency-Key")
	if err := s.mayPublish(r, topic, key); err != nil {
		s.answerError(w, err)
		return
	}
	if !s.enter() {
		s.refuseForNow(w, endingDetail)
		return
	}
	defer s.handlers.Done()
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "application/json":
		s.publishJSON(w, r, topic, key)
	case err == nil && kind == "application/x-ndjson":
		s.publishLines(w, r, topic, key)
	default:
		s.refuse(w, http.StatusUnsupportedMediaType, "set Content-Type: application/json for an event or an array of events, or application/x-ndjson for one on each line")
	}
}

func (s *Server) mayPublish(r *http.Request, topic, key string) error {
	if err := feed.CheckTopic(topic); err != nil {
		return err
	}
	if err := httpserver.CheckQuery(r, nil); err != nil {
		return &refusal{http.StatusBadRequest, err.Error()}
	}
	if p, known := httpserver.PrincipalOf(r.Context()); known && !p.Rights.MayPublish(topic) {
		return &refusal{http.StatusForbidden, fmt.Sprintf("you may not publish to the topic %q; ask the operator for the right to publish to it", topic)}
	}
	if len(key) > feed.MaxKey-maxNumber {
		return &feed.InvalidError{Field: "Idempotency-Key", Reason: fmt.Sprintf("it has %d bytes and %d are allowed", len(key), feed.MaxKey-maxNumber), Err: feed.ErrTooLarge}
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return &refusal{http.StatusUnsupportedMediaType, "bodies are taken as they are; send it without Content-Encoding"}
	}
	return nil
}

// publishJSON takes one event, or an array of them as one batch.
func (s *Server) publishJSON(w http.ResponseWriter, r *http.Request, topic, key string) {
	got, err := s.takeJSON(w, r, topic, key)
	if err != nil {
		s.answerError(w, err)
		return
	}
	s.answer(w, got)
}

func (s *Server) takeJSON(w http.ResponseWriter, r *http.Request, topic, key string) (receipts, error) {
	size := r.ContentLength
	if size < 0 {
		size = MaxBody
	}
	if size > MaxBody {
		return receipts{}, tooLong()
	}
	give, err := s.room(r.Context(), size)
	if err != nil {
		return receipts{}, err
	}
	defer give()
	body := s.body(w, r, MaxBody)
	stop := s.atEnding(body.end)
	b, err := io.ReadAll(body)
	stop()
	if err != nil && s.isEnding() {
		err = &refusal{http.StatusServiceUnavailable, endingDetail}
	}
	if err != nil {
		return receipts{}, s.readError(err)
	}
	drafts, err := parseBody(b, topic, key)
	if err != nil {
		return receipts{}, err
	}
	// What has come is published whether or not its sender stays: one that has closed
	// its side of the connection, since it has nothing more to send, looks to net/http
	// like one that has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), storeTime)
	defer cancel()
	return s.publish(ctx, drafts)
}

// room waits until so many bytes more may be held.
func (s *Server) room(ctx context.Context, size int64) (give func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, bodyWait)
	defer cancel()
	if err := s.bodies.Acquire(ctx, size); err != nil {
		return nil, &refusal{http.StatusServiceUnavailable, "too much is being published at once; try again in a moment"}
	}
	return func() { s.bodies.Release(size) }, nil
}

// body is the body of a request, with a deadline for each read.
func (s *Server) body(w http.ResponseWriter, r *http.Request, limit int64) *patient {
	return &patient{r: http.MaxBytesReader(w, r.Body, limit), rc: http.NewResponseController(w), silence: s.o.BodySilence}
}

// patient is a body that may be silent for so long.
type patient struct {
	r       io.Reader
	rc      *http.ResponseController
	silence time.Duration

	mu   sync.Mutex
	over bool
}

// end ends the read under way, and those after it.
func (p *patient) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	_ = p.rc.SetReadDeadline(time.Now())
}

func (p *patient) Read(b []byte) (int, error) {
	if err := p.allow(); err != nil {
		return 0, err
	}
	n, err := p.r.Read(b)
	if errors.Is(err, io.EOF) {
		_ = p.rc.SetReadDeadline(time.Time{}) // it would look as if the client had gone
	}
	return n, err
}

func (p *patient) allow() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return os.ErrDeadlineExceeded
	}
	_ = p.rc.SetReadDeadline(time.Now().Add(p.silence)) // where it is not supported there is none
	return nil
}

// readError says what is wrong with a body that cannot be read.
func (s *Server) readError(err error) error {
	var long *http.MaxBytesError
	var known *refusal
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &long):
		return tooLong()
	case isTimeout(err):
		return &refusal{http.StatusRequestTimeout, fmt.Sprintf("nothing came for %v; an empty line keeps a stream open", s.o.BodySilence)}
	default:
		return &refusal{http.StatusBadRequest, "the body was cut short"}
	}
}

func tooLong() error {
	return &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes; send it as application/x-ndjson", MaxBody)}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

// publish appends to the log.
func (s *Server) publish(ctx context.Context, drafts []feed.Draft) (receipts, error) {
	got, err := s.to.Publish(ctx, drafts)
	if err != nil {
		return receipts{}, err
	}
	for _, r := range got {
		if !r.Repeated {
			s.counts.published.Add(1)
		}
	}
	if got == nil {
		got = []feed.Receipt{}
	}
	return receipts{s.hub.Stats().Head.Epoch, got}, nil
}

// answerError answers with what is wrong with a request, or with us.
func (s *Server) answerError(w http.ResponseWriter, err error) {
	r := s.refusalOf(err)
	if r.status == http.StatusServiceUnavailable {
		s.refuseForNow(w, r.detail)
		return
	}
	s.refuse(w, r.status, r.detail)
}

func (s *Server) refusalOf(err error) *refusal {
	var known *refusal
	var bad *feed.InvalidError
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, feed.ErrTooLarge):
		return &refusal{http.StatusRequestEntityTooLarge, err.Error()}
	case errors.As(err, &bad):
		return &refusal{http.StatusBadRequest, err.Error()}
	}
	if full, ok := errors.AsType[*feed.TopicsError](err); ok {
		return &refusal{http.StatusInsufficientStorage, full.Error()}
	}
	s.log.Warn("events cannot be published", logattr.Err(err))
	return &refusal{http.StatusServiceUnavailable, "the log cannot be written now; try again in a moment, with the same Idempotency-Key"}
}
