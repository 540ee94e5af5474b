package notice

import (
	"context"
	"time"
)

// Store keeps inboxes. Every method is one atomic, durable step: when it has
// returned nil its effect survives the death of the process, and when the
// process dies before, either all of it has happened or nothing. It is safe for
// concurrent use, also by several processes. noticetest.RunStore is its
// contract as tests.
type Store interface {
	Directory
	Log
	Claims
	Ledger
	Keeper
}

// Directory knows the addressees.
type Directory interface {
	// Register makes an agent known. Doing it twice changes nothing.
	Register(ctx context.Context, agent string, at time.Time) error
	// Unregister forgets an agent and deletes its inbox.
	Unregister(ctx context.Context, agent string) error
	// Agents lists the known agents in order.
	Agents(ctx context.Context) ([]string, error)
	// Fence begins a new term of delivery for an agent and returns its number,
	// higher than all before. Claims to wake under an older number fail.
	Fence(ctx context.Context, agent string) (int64, error)
}

// Log keeps notices and their states.
type Log interface {
	// Insert keeps n as Persisted since at, due at due (zero: never of itself).
	// If the addressee has had n's dedupe key it changes nothing and returns
	// the id that it had. Errors: *UnknownAgentError; *InvalidError for an id
	// that another notice has.
	Insert(ctx context.Context, n Notice, at, due time.Time) (id string, added bool, err error)
	// Move takes each of the agent's notices to step.State if [State.CanBecome]
	// allows it, records the step, and returns the ids that moved. A notice
	// that is no longer pending belongs to no claim any more.
	Move(ctx context.Context, agent string, ids []string, step Step) ([]string, error)
	// Get returns a notice with its history, or ErrNotFound.
	Get(ctx context.Context, id string) (Record, error)
	// List returns a page of notices without their histories.
	List(ctx context.Context, q Query) (Page, error)
	// Counts counts an agent's notices. Errors: *UnknownAgentError.
	Counts(ctx context.Context, agent string) (Counts, error)
}

// Query selects notices. Zero fields select everything.
type Query struct {
	Agent  string
	States []State
	Source Source
	Newest bool   // newest first; otherwise oldest first
	After  string // Page.Next of the page before
	Limit  int    // at most this many; zero means DefaultPage, MaxPage at most
}

// Bounds of Query.Limit.
const (
	DefaultPage = 50
	MaxPage     = 500
)

// Page is a part of a list.
type Page struct {
	Records []Record `json:"notices"`
	Next    string   `json:"next,omitzero"` // empty on the last page
}

// Claims let one adapter at a time have a notice in hand.
type Claims interface {
	// Desk returns what the delivery for an agent with so many routes depends
	// on, all of one moment. Errors: *UnknownAgentError.
	Desk(ctx context.Context, agent string, now time.Time, routes int) (Desk, error)
	// Claim takes hold of pending notices that nobody holds, or whose holder's
	// time is up, oldest first. A claim of nothing is no error. Errors of
	// claims to wake: ErrFenced, and ErrOutstanding while another wake holds
	// any notice of the agent.
	Claim(ctx context.Context, c Claim) (Claimed, error)
	// Extend gives a claim time until until. A claim that is gone stays gone.
	Extend(ctx context.Context, agent, delivery string, until time.Time) error
	// Release lets go of the notices that the claim still holds. Each that next
	// names goes to its new schedule, the others keep theirs. Those that next
	// calls Dead move to Dead; the others keep their state. All record the
	// step, unless it has no reason and they do not move.
	Release(ctx context.Context, agent, delivery string, next []Next, step Step) error
}

// Claim asks for notices.
type Claim struct {
	Agent    string
	Delivery string // id of the claim, chosen by the caller
	Adapter  string
	// Wake is set by a delivery that begins a turn. It takes due notices of
	// Route only, under the term Fence. A pull takes whatever waits.
	Wake  bool
	Fence int64
	Route int
	// Held adds those that are never due of themselves; for user turns.
	Held  bool
	Now   time.Time
	Until time.Time // when the hold ends of itself
	Limit int
}

// Claimed is a claim that was made.
type Claimed struct {
	Delivery string
	Adapter  string
	Route    int // of the claim to wake
	Until    time.Time
	Records  []Record // oldest first
	// Waiting counts pending notices that the claim did not take.
	Waiting int
}

// Next is the new schedule of one notice.
type Next struct {
	ID     string
	Route  int
	Tries  int
	Offers int
	Due    time.Time
	Dead   bool
}

// Desk is what the delivery for one agent depends on.
type Desk struct {
	Hold Hold
	// Claimed is the outstanding wake, if any; its time may be up.
	Claimed *Claimed
	// Heads are the earliest notices that will be due of themselves, one per
	// route that has any, the earliest first. What a pull holds is due at the
	// earliest when its hold ends; what a wake holds is in Claimed.
	Heads []Head
	// Oldest is since when the oldest pending notice is kept; zero if none is.
	Oldest time.Time
	Spent  Spent
}

// Head says when a notice of a route is due. Routes over the number that was
// asked for share one.
type Head struct {
	Route int
	Due   time.Time
}

// Ledger counts what wakes cost, so that a restart does not forget it.
type Ledger interface {
	// Spend records wakes and an estimated number of tokens; negative numbers
	// take back what was recorded for a wake that did not happen.
	Spend(ctx context.Context, agent string, at time.Time, wakes, tokens int) error
	// SetHold stops the delivery to an agent, or with the zero Hold lets it go
	// on.
	SetHold(ctx context.Context, agent string, h Hold) error
	// Reset forgets the agent's hold and what it has spent.
	Reset(ctx context.Context, agent string) error
}

// Spent is what was recorded before a moment.
type Spent struct {
	WakesMinute int `json:"wakes_minute"` // in the last minute
	WakesHour   int `json:"wakes_hour"`   // in the last hour
	TokensHour  int `json:"tokens_hour"`
}

// Hold says why no turn is begun for an agent; the zero value says that none
// is held back.
type Hold struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Keeper throws away.
type Keeper interface {
	// Prune expires and deletes by age and number.
	Prune(ctx context.Context, p Prune) (Pruned, error)
	// Delete removes an agent's notices for good, all states alike. Their dedupe
	// keys stay known.
	Delete(ctx context.Context, agent string, ids []string) (int, error)
}

// Prune says what is too old or too much in one inbox. Zero times and numbers
// bound nothing. A notice that a claim holds is left alone until the claim's
// time is up.
type Prune struct {
	Agent         string
	Now           time.Time
	PendingBefore time.Time // kept since before it and still pending: Expired
	DoneBefore    time.Time // no longer pending since before it: deleted
	KeysBefore    time.Time // dedupe keys from before it: forgotten
	// Keep is the greatest number of notices. Over it those are deleted that
	// are no longer pending since the longest time, and if they are too few the
	// oldest pending ones expire.
	Keep int
	// Limit bounds the work of one call.
	Limit int
}

// Pruned counts what was thrown away.
type Pruned struct {
	Expired int
	Deleted int
}

// Waker reaches one kind of host (specification D-9). Its methods are safe for
// concurrent use, are bounded by ctx, and return errors whose text never quotes
// a notice.
type Waker interface {
	// Name is the adapter's name in steps and logs.
	Name() string
	// Reach says whether the agent can take a notice now: nil; a *BusyError if
	// it will be able to; any other error if it cannot be reached this way. It
	// begins nothing.
	Reach(ctx context.Context, agent string) error
	// Wake gives the agent d and returns the greatest proof that came back
	// when no more is to be expected: Notified, Woken or Seen. As proof comes
	// in on the way it calls proved, until it returns. After an error the
	// notices are offered again, by this or the next adapter: an aborted turn
	// is an error, a *BusyError costs nothing, ErrUncertain gives it time.
	Wake(ctx context.Context, d Delivery, proved func(State)) (State, error)
}

// Checker is an optional power of a Waker: to find out what became of a
// delivery whose process died.
type Checker interface {
	// Check returns Persisted if the host never had d, else the proof that
	// there is; an error if the host cannot tell.
	Check(ctx context.Context, d Delivery) (State, error)
}

// Doctor is an optional power of a Waker: to say why it cannot work.
type Doctor interface {
	Doctor(ctx context.Context) []Check
}

// Check is one finding of a doctor.
type Check struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Cause string `json:"cause,omitzero"` // what is wrong
	Fix   string `json:"fix,omitzero"`   // what can be done
}

// Delivery is one offer of notices to a host.
type Delivery struct {
	// ID stays the same when the offer is repeated after a crash, so that a
	// receiver can recognise it.
	ID      string
	Agent   string
	Notices []Notice
	// Text is the notices as one message for a turn of its own (see Frame).
	Text string
	// Attempt counts the offers of its oldest notice, from 1.
	Attempt int
	// Depth is the greatest depth among the notices. What the turn causes is one
	// deeper.
	Depth int
}

// IDs lists the ids of the notices.
func (d Delivery) IDs() []string { return ids(d.Notices) }

func ids(notices []Notice) []string {
	out := make([]string, len(notices))
	for i, n := range notices {
		out[i] = n.ID
	}
	return out
}
