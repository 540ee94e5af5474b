package listen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// DefaultAckTimeout bounds the wait for a server's acknowledgement of a listen.
const DefaultAckTimeout = 10 * time.Second

// Opener opens a listen on one server and returns once the server has
// acknowledged it. ctx bounds the opening only; the stream lives until it is
// closed or ends. Errors: [*NoListenError], [ErrNoAck], the server's own
// *jsonrpc.Error, or what the transport says.
type Opener interface {
	Open(ctx context.Context, filter Filter) (*Stream, error)
}

// OpenerFunc makes an Opener of a function.
type OpenerFunc func(ctx context.Context, filter Filter) (*Stream, error)

// Open calls f.
func (f OpenerFunc) Open(ctx context.Context, filter Filter) (*Stream, error) { return f(ctx, filter) }

// ErrNoAck is returned when a server took a listen and did not acknowledge it
// in time.
var ErrNoAck = errors.New("listen: no acknowledgement in time")

// NoListenError says that the peer has no subscriptions/listen: its tools and
// resources may work, its watches cannot. Asking again is of no use.
type NoListenError struct {
	// Status is the HTTP status of the refusal, or 0.
	Status int
	// Err is the refusal, usually a *jsonrpc.Error.
	Err error
}

func (e *NoListenError) Error() string {
	return fmt.Sprintf("server has no %s: %v", methodListen, e.Err)
}

// Unwrap returns the refusal.
func (e *NoListenError) Unwrap() error { return e.Err }

// PermanentError marks an error that trying again cannot mend. An [Opener]
// returns it to end the attempts of a [Client] at once.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }

// Unwrap returns the marked error.
func (e *PermanentError) Unwrap() error { return e.Err }

// EndReason tells how a stream ended.
type EndReason string

// The ways in which a stream ends.
const (
	EndGraceful  EndReason = "graceful"  // the server answered the listen: a polite end
	EndCancelled EndReason = "cancelled" // the server sent notifications/cancelled: a polite end
	EndFailed    EndReason = "error"     // the server answered the listen with an error
	EndLost      EndReason = "lost"      // the transport ended, or fell silent
	EndLocal     EndReason = "local"     // we closed it
)

// EndError is how a stream ended. Err is the cause where there is one.
type EndError struct {
	Reason EndReason
	Err    error
	// reopen asks the supervisor to open again at once: the end is a quirk that
	// was dealt with, not news for anybody.
	reopen bool
}

func (e *EndError) Error() string {
	text := map[EndReason]string{
		EndGraceful:  "listen ended by the server",
		EndCancelled: "listen cancelled by the server",
		EndFailed:    "listen failed",
		EndLost:      "listen lost",
		EndLocal:     "listen closed",
	}[e.Reason]
	if e.Err != nil {
		return text + ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *EndError) Unwrap() error { return e.Err }

// Polite reports whether the server ended the stream in order.
func (e *EndError) Polite() bool { return e.Reason == EndGraceful || e.Reason == EndCancelled }

// Batch is what a stream has to tell since the last call of [Stream.Next]. The
// same news twice is once.
type Batch struct {
	// URIs are the watched URIs that changed, in order of first arrival. They are
	// those of the filter: an update of a sub-resource counts for each watched
	// URI above it.
	URIs                 []string
	ToolsListChanged     bool
	PromptsListChanged   bool
	ResourcesListChanged bool
}

func (b *Batch) empty() bool {
	return len(b.URIs) == 0 && !b.ToolsListChanged && !b.PromptsListChanged && !b.ResourcesListChanged
}

// Stream is one acknowledged listen. What has arrived and was not yet fetched
// is a set over the filter, so it is bounded by it, and a slow reader never
// holds up the transport.
type Stream struct {
	asked Filter
	close func() // ends the listen at the peer; nil when there is none

	acked    chan struct{} // closed by the acknowledgement
	wake     chan struct{} // capacity 1: something is pending, or the end has come
	done     chan struct{} // closed by the end
	conflict func() bool   // nil, or: a successor must not overlap this stream

	mu       sync.Mutex
	honoured Filter
	refused  map[string]error
	isAcked  bool
	// watched are the URIs that may arrive; while one is pending, with the time at
	// which it last did.
	watched map[string]time.Time
	pending Batch
	end     *EndError
}

// Feed is the transport's end of a [Stream].
type Feed struct{ s *Stream }

// NewStream returns an acknowledged stream and the feed that fills it: for an
// [Opener] of another transport than those of this package. asked is the filter
// that was asked for, honoured what the server grants of it, refused why it
// left URIs out, as far as it told. onClose, which may be nil, is called once
// when [Stream.Close] is called on a stream that has not ended.
func NewStream(asked, honoured Filter, refused map[string]error, onClose func()) (*Stream, *Feed) {
	s := newStream(asked, onClose)
	s.acknowledge(honoured, refused)
	return s, &Feed{s}
}

// Updated says that the resource, or one below a watched one, changed.
func (f *Feed) Updated(uri string) { f.s.updated(uri) }

// End ends the stream. Only the first end counts.
func (f *Feed) End(reason EndReason, err error) { f.s.finish(&EndError{Reason: reason, Err: err}) }

func newStream(asked Filter, onClose func()) *Stream {
	asked.ResourceSubscriptions = slices.Clone(asked.ResourceSubscriptions)
	return &Stream{
		asked: asked, watched: set(asked.ResourceSubscriptions), close: onClose,
		acked: make(chan struct{}), wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

func set(uris []string) map[string]time.Time {
	m := make(map[string]time.Time, len(uris))
	for _, uri := range uris {
		m[uri] = time.Time{}
	}
	return m
}

// Filter returns what the server honours of what was asked.
func (s *Stream) Filter() Filter {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.honoured
	f.ResourceSubscriptions = slices.Clone(f.ResourceSubscriptions)
	return f
}

// Refusal returns why the server left uri out of its acknowledgement: a
// *jsonrpc.Error where it told, else nil.
func (s *Stream) Refusal(uri string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused[uri]
}

// Next waits for news. Once the stream has ended and its news are fetched it
// returns an [*EndError]; it returns ctx's error when that ends first. One
// goroutine at a time may call it.
func (s *Stream) Next(ctx context.Context) (Batch, error) {
	b, _, err := s.next(ctx)
	return b, err
}

// next is Next with the time at which each URI last arrived.
func (s *Stream) next(ctx context.Context) (Batch, []time.Time, error) {
	for {
		s.mu.Lock()
		b, arrived := s.takeLocked()
		end := s.end
		s.mu.Unlock()
		if !b.empty() {
			return b, arrived, nil
		}
		if end != nil {
			return Batch{}, nil, end
		}
		select {
		case <-s.wake:
		case <-s.done:
		case <-ctx.Done():
			return Batch{}, nil, ctx.Err()
		}
	}
}

// takeLocked empties the pending set.
func (s *Stream) takeLocked() (Batch, []time.Time) {
	b := s.pending
	s.pending = Batch{}
	arrived := make([]time.Time, len(b.URIs))
	for i, uri := range b.URIs {
		arrived[i] = s.watched[uri]
		s.watched[uri] = time.Time{}
	}
	return b, arrived
}

// Done is closed when the stream has ended; then Err says how.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Err returns how the stream ended, or nil while it lives.
func (s *Stream) Err() *EndError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// Close cancels the listen. Nothing that arrives afterwards counts, and news not
// yet fetched are dropped.
func (s *Stream) Close() {
	s.mu.Lock()
	s.takeLocked()
	s.mu.Unlock()
	s.hangUp()
}

// hangUp cancels the listen and leaves what has arrived to be fetched.
func (s *Stream) hangUp() {
	if s.finish(&EndError{Reason: EndLocal}) && s.close != nil {
		s.close()
	}
}

// finish records the end and reports whether it was the first one. Only that
// counts: servers may send a result and notifications/cancelled, in either
// order (known fault B-020).
func (s *Stream) finish(e *EndError) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return false
	}
	s.end = e
	close(s.done)
	return true
}

// acknowledge takes the server's filter, narrowed to what was asked. News that
// overtook the acknowledgement stay, as far as they were honoured.
func (s *Stream) acknowledge(f Filter, refused map[string]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isAcked || s.end != nil {
		return
	}
	s.isAcked, s.refused = true, refused
	s.honoured = narrow(s.asked, f)
	early := s.watched
	s.watched = set(s.honoured.ResourceSubscriptions)
	s.pending.URIs = slices.DeleteFunc(s.pending.URIs, func(uri string) bool {
		_, ok := s.watched[uri]
		if ok {
			s.watched[uri] = early[uri]
		}
		return !ok
	})
	close(s.acked)
}

func narrow(asked, honoured Filter) Filter {
	out := Filter{
		ToolsListChanged:     asked.ToolsListChanged && honoured.ToolsListChanged,
		PromptsListChanged:   asked.PromptsListChanged && honoured.PromptsListChanged,
		ResourcesListChanged: asked.ResourcesListChanged && honoured.ResourcesListChanged,
	}
	granted := make(map[string]bool, len(honoured.ResourceSubscriptions))
	for _, uri := range honoured.ResourceSubscriptions {
		granted[uri] = true
	}
	for _, uri := range asked.ResourceSubscriptions {
		if granted[uri] {
			out.ResourceSubscriptions = append(out.ResourceSubscriptions, uri)
			granted[uri] = false // a URI asked for twice is one
		}
	}
	return out
}

// updated adds what the URI concerns to the pending set: see [Covers].
func (s *Stream) updated(uri string) {
	if len(uri) > maxURI {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return
	}
	now := time.Now()
	matched := s.markLocked(uri, now)
	for i := range len(uri) {
		switch uri[i] {
		case '/':
			matched = s.markLocked(uri[:i], now) || matched
			if i+1 < len(uri) {
				matched = s.markLocked(uri[:i+1], now) || matched
			}
		case '?', '#':
			matched = s.markLocked(uri[:i], now) || matched
		}
	}
	if matched {
		s.notify()
	}
}

func (s *Stream) markLocked(uri string, now time.Time) bool {
	last, ok := s.watched[uri]
	if !ok {
		return false
	}
	if last.IsZero() {
		s.pending.URIs = append(s.pending.URIs, uri)
	}
	s.watched[uri] = now
	return true
}

// listChanged adds the news that the method tells of.
func (s *Stream) listChanged(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return
	}
	f := s.asked
	if s.isAcked {
		f = s.honoured
	}
	switch method {
	case notificationToolsListChanged:
		s.pending.ToolsListChanged = s.pending.ToolsListChanged || f.ToolsListChanged
	case notificationPromptsListChanged:
		s.pending.PromptsListChanged = s.pending.PromptsListChanged || f.PromptsListChanged
	case notificationResourcesListChanged:
		s.pending.ResourcesListChanged = s.pending.ResourcesListChanged || f.ResourcesListChanged
	}
	if !s.pending.empty() {
		s.notify()
	}
}

func (s *Stream) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// awaitAck waits for the acknowledgement. On any other outcome the stream is
// over and the reason returned.
func (s *Stream) awaitAck(ctx context.Context) error {
	select {
	case <-s.acked:
		return nil
	case <-s.done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	acked := s.isAcked // it came first: how it went on is for the reader to see
	s.mu.Unlock()
	switch {
	case acked:
		return nil
	case ctx.Err() != nil:
		s.Close()
		return fmt.Errorf("open listen: %w", context.Cause(ctx))
	default:
		return openError(s.Err())
	}
}

// openError is the error of an opening that the stream's end cut short.
func openError(end *EndError) error {
	var rpc *jsonrpc.Error
	if errors.As(end.Err, &rpc) && rpc.Code == codeMethodNotFound {
		return &NoListenError{Err: rpc}
	}
	return fmt.Errorf("open listen: %w", end)
}

// maxURI bounds the URIs of updates, in bytes: a longer one is no URI that
// anybody watches.
const maxURI = 8 << 10

// Covers reports whether a watch of one URI concerns another: the same one, or
// one below it by a slash, a query or a fragment (schema: an update may be for
// a sub-resource of the one subscribed to).
func Covers(watched, updated string) bool {
	rest, ok := strings.CutPrefix(updated, watched)
	if !ok || watched == "" {
		return false
	}
	return rest == "" || strings.HasSuffix(watched, "/") || strings.ContainsAny(rest[:1], "/?#")
}
