package agent

import (
	"encoding/json"
	"sync"
	"time"
)

// Streams of a session's updates; the names are part of the NDJSON contract
// (specification W-142).
const (
	StreamInput   = "main.system.input_stream"
	StreamNotice  = "main.system.notice_stream"
	StreamWaiting = "main.system.waiting_stream"
	StreamAgent   = "main.system.agent_stream"
	StreamRuntime = "main.system.runtime_stream"
)

// Update is one thing that happened in a session, for printing and for pages.
// It marshals to one NDJSON line.
type Update struct {
	Time    time.Time `json:"time"`
	Stream  string    `json:"stream"`
	Event   string    `json:"event"` // see the Event constants
	Session string    `json:"session"`
	Run     string    `json:"run,omitempty"`
	ID      string    `json:"id,omitempty"` // of the input, notice, tool call or question

	Source  string `json:"source,omitempty"`
	Name    string `json:"name,omitempty"`
	URI     string `json:"uri,omitempty"`
	From    string `json:"from,omitempty"`
	Channel string `json:"channel,omitempty"`
	Text    string `json:"text,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Error   string `json:"error,omitempty"`

	Inputs  []string `json:"inputs,omitempty"`
	Notices []string `json:"notices,omitempty"`

	Kind    string             `json:"kind,omitempty"`
	Status  string             `json:"status,omitempty"`
	Input   json.RawMessage    `json:"input,omitempty"`
	Output  json.RawMessage    `json:"output,omitempty"`
	Options []PermissionOption `json:"options,omitempty"`
	Plan    []PlanEntry        `json:"plan,omitempty"`
	Usage   *Usage             `json:"usage,omitempty"`
	Aside   bool               `json:"out_of_turn,omitempty"`

	message int64 // EventText: which message of the session it is a part of
	cause   error // EventExited, EventReply
}

// Cause is what Error of EventExited and EventReply tells: an *ExitError if the agent
// died. It is nil for an update that was read from elsewhere.
func (u *Update) Cause() error { return u.cause }

// Events of updates.
const (
	EventInputQueued     = "input.queued"
	EventNoticeQueued    = "notice.queued"
	EventNoticeWoken     = "notice.woken"
	EventNoticeSeen      = "notice.seen"
	EventNoticeWritten   = "notice.written" // handed over, without proof that it was read
	EventNoticeLost      = "notice.undelivered"
	EventNoticeRequeued  = "notice.requeued"
	EventBusy            = "agent.busy" // works on its own account: turns wait
	EventQuiet           = "agent.quiet"
	EventHeld            = "notices.held" // until a person's next prompt
	EventStarting        = "agent.starting"
	EventStarted         = "agent.started"
	EventExited          = "agent.exited"
	EventRunStarted      = "run.started"
	EventRunEnded        = "run.ended"
	EventReply           = "reply"
	EventReplySuppressed = "reply.suppressed"
	EventReplyFailed     = "reply.failed" // the channel did not take it
	EventText            = "text"
	EventThought         = "thought"
	EventTool            = "tool"
	EventPlan            = "plan"
	EventUsage           = "usage"
	EventUnknown         = "unknown"
	EventPermission      = "permission.asked"
	EventPermissionDone  = "permission.answered"
	EventReset           = "session.reset"
	EventClosed          = "session.closed"
)

// subscriberBuffer is how many updates a subscriber may lag behind. A slower
// one is cut: a stuck terminal must not hold up the agent.
const subscriberBuffer = 4096

// Subscription is one reader of a session's updates.
type Subscription struct {
	// C carries the updates. It is closed at the end of the session, by Close,
	// and when the reader lags; Err tells which.
	C <-chan Update
	// Changed holds a token when the transcript has more entries in the store, or
	// Status may tell something else, since the last one was taken.
	Changed <-chan struct{}

	c    chan Update
	bell chan struct{}
	feed *feed
	err  error
}

// Close ends the subscription. It is idempotent.
func (s *Subscription) Close() { s.feed.drop(s, nil) }

// Err returns ErrLagged after C was closed because the reader lagged.
func (s *Subscription) Err() error {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	return s.err
}

// feed hands updates to subscribers, in one order for all.
type feed struct {
	mu      sync.Mutex
	subs    map[*Subscription]struct{}
	present Present
	closed  bool
}

func newFeed() *feed { return &feed{subs: map[*Subscription]struct{}{}} }

func (f *feed) subscribe() *Subscription {
	_, s := f.observe()
	return s
}

// observe returns what goes on, and the updates behind it.
func (f *feed) observe() (*Present, *Subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.present.clone(), f.subscribeLocked()
}

func (f *feed) subscribeLocked() *Subscription {
	c, bell := make(chan Update, subscriberBuffer), make(chan struct{}, 1)
	s := &Subscription{C: c, c: c, Changed: bell, bell: bell, feed: f}
	if f.closed {
		close(c)
		return s
	}
	f.subs[s] = struct{}{}
	return s
}

// recorded says that the messages up to one are in the transcript.
func (f *feed) recorded(message int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.present.recorded(message)
}

// ring tells the subscribers that something else has changed.
func (f *feed) ring() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		select {
		case s.bell <- struct{}{}:
		default:
		}
	}
}

func (f *feed) publish(u Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.present.Apply(u)
	for s := range f.subs {
		select {
		case s.c <- u:
		default:
			s.err = ErrLagged
			delete(f.subs, s)
			close(s.c)
		}
	}
}

func (f *feed) drop(s *Subscription, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.subs[s]; ok {
		s.err = err
		delete(f.subs, s)
		close(s.c)
	}
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for s := range f.subs {
		delete(f.subs, s)
		close(s.c)
	}
}
