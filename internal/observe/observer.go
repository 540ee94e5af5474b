package observe

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/logattr"
)

// Bounds of an observer.
const (
	queueNotes  = 1024    // that wait to be read
	queueBytes  = 8 << 20 // in them
	maxFrame    = 4 << 20 // bytes of a message that are looked at
	maxPending  = 256     // requests of a connection without a response
	maxClients  = 32      // that are told apart
	maxSessions = 256     // legacy HTTP sessions and streams that are known
)

// Sink takes evidence. It is called from one goroutine and returns quickly. The
// ids of the attempt and the execution are its to fill in.
type Sink func(attach.Evidence)

// Options tune an Observer. The zero value is the default.
type Options struct {
	// Server is the name of the server in the evidence.
	Server string
	// Sanitizer cleans the texts of errors; best it knows the secrets of the
	// server's configuration. Nil knows none.
	Sanitizer *attach.Sanitizer
	// Trace also gets every HTTP exchange when it has ended. It is called from the
	// goroutine of the sink.
	Trace func(Exchange)
	// Slow is called when a request has had no answer for SlowAfter, which is not so
	// of one that asks for a stream. It returns quickly. Nil: nobody is told.
	Slow      func()
	SlowAfter time.Duration
	// Logger is told when something was dropped. Nil discards.
	Logger *slog.Logger
}

// Exchange is one HTTP request and its response.
type Exchange struct {
	At           time.Time
	Took         time.Duration
	HTTPMethod   string
	Methods      []string // of the requests in it
	ConnectionID string   // opaque; empty without a session
	Status       int
}

// Observer sees what clients do at one server. It is safe for concurrent use.
type Observer struct {
	sink  Sink
	o     Options
	notes chan note
	bytes atomic.Int64
	lost  atomic.Int64
	done  chan struct{}

	mu     sync.RWMutex // for closed: nobody sends on a closed channel
	closed bool

	// Of the goroutine that reads.
	clients map[string]bool  // of revision 2026-07-28 that were seen
	totals  map[string]int   // tools listed so far, by client
	streams map[string]*conn // of the older transport, by the URL to post to
}

// note is something that happened, to be read later.
type note struct {
	at   time.Time
	size int
	read func(at time.Time)
}

// New returns an observer. The caller closes it.
func New(sink Sink, o *Options) *Observer {
	ob := &Observer{
		sink: sink, notes: make(chan note, queueNotes), done: make(chan struct{}),
		clients: map[string]bool{}, totals: map[string]int{}, streams: map[string]*conn{},
	}
	if o != nil {
		ob.o = *o
	}
	if ob.o.Sanitizer == nil {
		ob.o.Sanitizer = attach.NewSanitizer()
	}
	if ob.o.Logger == nil {
		ob.o.Logger = slog.New(slog.DiscardHandler)
	}
	go ob.run()
	return ob
}

func (o *Observer) run() {
	defer close(o.done)
	for n := range o.notes {
		o.bytes.Add(-int64(n.size))
		n.read(n.at)
	}
}

// Close waits until everything was read that was seen before. What is seen later
// is dropped.
func (o *Observer) Close() {
	o.mu.Lock()
	if !o.closed {
		o.closed = true
		close(o.notes)
	}
	o.mu.Unlock()
	<-o.done
}

// Dropped is how many notes were dropped because the queue was full.
func (o *Observer) Dropped() int64 { return o.lost.Load() }

// Report passes on evidence from elsewhere in order with what was seen. A time of
// zero is now.
func (o *Observer) Report(e attach.Evidence) {
	o.later(0, func(at time.Time) {
		if e.OccurredAt.IsZero() {
			e.OccurredAt = at
		}
		o.emit(e)
	})
}

// later queues a note and reports whether there was room.
func (o *Observer) later(size int, read func(at time.Time)) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.closed {
		return false
	}
	if o.bytes.Add(int64(size)) <= queueBytes {
		select {
		case o.notes <- note{time.Now(), size, read}:
			return true
		default:
		}
	}
	o.bytes.Add(-int64(size))
	if o.lost.Add(1) == 1 {
		o.o.Logger.Warn("observer drops evidence", logattr.Server(o.o.Server))
	}
	return false
}

func (o *Observer) emit(e attach.Evidence) {
	if e.Server == "" {
		e.Server = o.o.Server
	}
	o.sink(e)
}

// bounded forgets everything when a table is full: what is in it only saves
// repetitions.
func bounded[V any](m map[string]V, limit int) map[string]V {
	if len(m) >= limit {
		clear(m)
	}
	return m
}

// Do runs f after everything that was seen before, beside the sink. It reports
// false, and does not run f, if there was no room or after Close.
func (o *Observer) Do(f func()) bool { return o.later(0, func(time.Time) { f() }) }

// Failed tells of a failure of the server itself.
func (o *Observer) Failed(reason attach.Reason, text string) {
	o.Report(attach.Evidence{Kind: attach.ServerError, Detail: attach.Detail{Reason: reason, Summary: o.o.Sanitizer.Summary(text)}})
}
