package notice

import (
	"slices"
	"time"
)

// State is how far a notice has come (specification D-2).
type State string

// States, in the order in which they can follow one another.
const (
	// Persisted: it lies in the inbox, on disk.
	Persisted State = "persisted"
	// Notified: a host was written to. That is no proof of anything.
	Notified State = "notified"
	// Woken: the adapter has proof that a turn began.
	Woken State = "woken"
	// Suppressed: somebody withdrew it before it was shown. Nothing follows.
	Suppressed State = "suppressed"
	// Expired: it was pending for longer than the retention allows.
	Expired State = "expired"
	// Dead: it was offered as often as it may be, and never seen.
	Dead State = "dead"
	// Seen: the model's side showed it. Proof may come late, so it can follow
	// Expired and Dead.
	Seen State = "seen"
	// Acked: the agent, or a person, said so.
	Acked State = "acked"
)

// States lists all states in their order.
func States() []State {
	return []State{Persisted, Notified, Woken, Suppressed, Expired, Dead, Seen, Acked}
}

// Rank orders states: a notice moves to a higher rank or not at all. It is -1
// for what is no state.
func (s State) Rank() int { return slices.Index(States(), s) }

// Pending says that the notice still waits to be shown.
func (s State) Pending() bool { return s == Persisted || s == Notified || s == Woken }

// CanBecome says whether a notice may move from s to to: forward only, and
// nowhere from Suppressed.
func (s State) CanBecome(to State) bool {
	return s.Rank() >= 0 && s != Suppressed && to.Rank() > s.Rank()
}

// Step is one entry of a notice's history: it moved to State, or an offer by
// Adapter ended without proof and left it there.
type Step struct {
	State   State     `json:"state"`
	At      time.Time `json:"at"`
	Adapter string    `json:"adapter,omitzero"` // who caused it; "inbox" for our own rules
	// Reason says why, in at most MaxReason bytes; it never quotes the notice.
	Reason string `json:"reason,omitzero"`
}

// MaxReason bounds Step.Reason and Hold.Reason, in bytes.
const MaxReason = 256

// Record is a notice with what became of it.
type Record struct {
	Notice

	State   State     `json:"state"`
	StateAt time.Time `json:"state_at"`
	// Offers counts how often an adapter had it in hand.
	Offers int `json:"offers"`
	// Due is when it is next offered of itself; zero means never: it waits for
	// a pull or for the next user turn.
	Due time.Time `json:"due,omitzero"`
	// Route is the index of the adapter whose turn it is, or RouteDone; Tries
	// counts its offers so far.
	Route int `json:"-"`
	Tries int `json:"-"`
	// Delivery is the claim that holds it at present, if any.
	Delivery string `json:"delivery,omitzero"`
	// Steps is its history, oldest first. Lists leave it out.
	Steps []Step `json:"steps,omitzero"`
}

// RouteDone is the Route of a notice that every adapter has offered: it waits
// for a pull until Due, and is dead then.
const RouteDone = -1

// Counts says how many notices of an inbox are in which state.
type Counts map[State]int

// Pending counts those that wait to be shown.
func (c Counts) Pending() int { return c[Persisted] + c[Notified] + c[Woken] }
