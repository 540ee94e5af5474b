package mailbox

import (
	"context"
	"time"
)

// Bounds of a page.
const (
	DefaultPage  = 50
	MaxPage      = 500
	MaxPageBytes = 1 << 20 // of contents; one signal comes whatever its size
)

// Store keeps one session. Every method is one atomic step, and durable when it
// returns. It is safe for concurrent use, also by several processes.
// mailboxtest.RunStore is its contract as tests.
//
// Methods that take an Identity first make sure that it holds its id, else they
// return a *LostError and change nothing; they renew its last-seen time.
type Store interface {
	Members
	Signals
	Board
	Escalations
	// Changes says what has changed since some heads.
	Changes(ctx context.Context, since Heads) (Changes, error)
}

// Members knows who takes part.
type Members interface {
	// Register makes an agent a member, active and seen now. Of several runs that
	// claim an id at once, one gets it. Beyond MaxMembers it takes the place of the one
	// that has been away the longest. Errors: *ConflictError, *FullError.
	Register(ctx context.Context, r Registration, now time.Time) (Agent, error)
	// Touch renews the last-seen time of an agent, and makes it active. It reports
	// whether it was not.
	Touch(ctx context.Context, who Identity, now time.Time) (changed bool, err error)
	// SetStatus says how an agent is.
	SetStatus(ctx context.Context, who Identity, s Status, now time.Time) error
	// Agents lists the members by id. Their status is the one that they were last
	// seen with, see StatusAt.
	Agents(ctx context.Context) ([]Agent, error)
}

// Signals keeps messages.
type Signals interface {
	// Send keeps s, whose sender is who, and returns it with its sequence and
	// depth. It counts against the sender's limit. Errors: *RateError,
	// *EscalatedError, *InvalidError for a reply to what the sender neither got
	// nor sent (or is not kept any more), *FullError. It then removes what Retention
	// does not keep, TrimStep signals at most.
	Send(ctx context.Context, who Identity, s Signal, limits Limits, now time.Time) (Signal, error)
	// Read returns a page of an agent's signals. It marks nothing.
	Read(ctx context.Context, q Selection) (Page, error)
	// Find returns a signal by its id.
	Find(ctx context.Context, id string) (s Signal, found bool, err error)
	// Ack marks signals as read by who, all or none, and returns those that were
	// not before. Errors: *IDsError.
	Ack(ctx context.Context, who Identity, ids []string, now time.Time) ([]string, error)
}

// Selection selects signals, in order.
type Selection struct {
	Agent string // whose
	All   bool   // those that it has acknowledged, too
	Sent  bool   // what it has sent, instead of what it received
	After int64  // greater sequences only
	Limit int    // zero means DefaultPage, MaxPage at most
}

// Page is a part of an agent's signals, in the order of their sequence.
type Page struct {
	Signals []Signal `json:"signals"`
	// Next is the After of the next page, 0 at the end.
	Next int64 `json:"next,omitempty"`
	// Unread counts the unread signals of the agent, also those of other pages.
	Unread int `json:"unread"`
	// Missed counts the signals to the agent that were sent since it is a member, and
	// removed before it had read them, see Retention.
	Missed int `json:"missed,omitempty"`
}

// Board keeps what all members share.
type Board interface {
	// AddNote appends a note. Those beyond MaxNotes and MaxNoteBytes are removed, the
	// oldest first.
	AddNote(ctx context.Context, who Identity, text string, now time.Time) (Note, error)
	// Notes returns notes with greater sequences, in order, and the After of the
	// next page, 0 at the end.
	Notes(ctx context.Context, after int64, limit int) (notes []Note, next int64, err error)
	// SetEntry sets a value. Errors: *FullError.
	SetEntry(ctx context.Context, who Identity, key, value string, now time.Time) (Entry, error)
	// Entries lists the values by key, or returns the one of a key if there is any.
	Entries(ctx context.Context, key string) ([]Entry, error)
}

// Escalations keeps the account of the second tier.
type Escalations interface {
	// Escalate takes the unread signals of an agent with greater sequences than
	// after that Gate lets through, none of which was taken before, and notes the
	// turn that is to begin. Without any the escalation is empty. What the limit
	// refuses is not offered again.
	Escalate(ctx context.Context, e Escalate) (Escalation, error)
	// Settle notes that the turn of an escalation is over. It is idempotent.
	Settle(ctx context.Context, agent, id string) error
}

// Escalate asks for an escalation.
type Escalate struct {
	ID     string
	Agent  string
	After  int64
	Limits Limits
	Now    time.Time
	// Until is when the turn is over at the latest.
	Until time.Time
	// Retry leaves what the limit refuses for another time.
	Retry bool
}

// MaxEscalated bounds the signals of one escalation.
const MaxEscalated = 20

// Escalation is what an agent is to be told in a turn of its own.
type Escalation struct {
	ID      string
	Signals []Signal // empty: there is nothing to escalate
	// Refused is TooMany if the limit refused what there was; Wait is how long it
	// lasts.
	Refused Refusal
	Wait    time.Duration
	Limits  Limits // those of the agent
}

// Heads say how far a session has come: the number of changes of each part.
type Heads struct {
	Signals, Notes, Board, Agents int64
}

// MaxChanges bounds the envelopes of one Changes.
const MaxChanges = 1000

// Envelope is the outside of a signal.
type Envelope struct {
	Sequence          int64
	Sender, Recipient string
	Type, Priority    Type
	Depth             int
	ReplyTo           string
}

// Changes are those since some heads. If Envelopes are fewer than the signals
// between, Heads.Signals is that of the last one: the rest comes next.
type Changes struct {
	Heads     Heads
	Envelopes []Envelope
}

// Bus tells the processes that use a session that it has changed. It may lose
// what it is told: whoever listens reads the store. mailboxtest.RunBus is its
// contract as tests.
type Bus interface {
	// Ring says that the session has changed.
	Ring(ctx context.Context) error
	// Listen calls ring when the session may have changed, once at the start as
	// soon as it hears, and again whenever it may have been deaf. Calls may
	// coalesce. It returns nil when ctx ends, and an error when it cannot hear.
	Listen(ctx context.Context, ring func()) error
}
