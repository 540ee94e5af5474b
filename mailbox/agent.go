package mailbox

import "time"

// StaleAfter is how long a member is taken for alive without a call of its own
// (specification S-3).
const StaleAfter = 300 * time.Second

// Status says how a member is.
type Status string

// Statuses (specification S-3).
const (
	Active   Status = "active"
	Idle     Status = "idle"     // it waits for its next turn
	Sleeping Status = "sleeping" // its process has left
	Stale    Status = "stale"    // not heard of for StaleAfter
)

// Agent is a member as others see it.
type Agent struct {
	ID           string    `json:"id"`
	Harness      string    `json:"harness,omitempty"`   // the program that runs it
	Substrate    string    `json:"substrate,omitempty"` // the model that it runs on
	Status       Status    `json:"status"`
	RegisteredAt time.Time `json:"registered_at"`
	LastSeen     time.Time `json:"last_seen"`
}

// StatusAt returns the status that a member has now, from the one that it had
// when it was last seen. A time in the future, which a clock that was set back
// leaves behind, counts by its distance: nobody stays alive by it for ever.
func StatusAt(last Status, seen, now time.Time) Status {
	if last == Sleeping {
		return Sleeping
	}
	if d := now.Sub(seen); d >= StaleAfter || d <= -StaleAfter {
		return Stale
	}
	return last
}

// Live reports whether an id is held against others: its member has not left and
// is not stale.
func Live(last Status, seen, now time.Time) bool {
	s := StatusAt(last, seen, now)
	return s == Active || s == Idle
}

// Registration asks for a place in a session.
type Registration struct {
	Agent     string // id
	Harness   string
	Substrate string
	// Run is the secret of this run of the agent. It reclaims the id at once; an
	// id that is live under another one is refused.
	Run string
	// Limits are the agent's own. Zero fields are those of the session.
	Limits Limits
}

func (r *Registration) check() error {
	if err := CheckAgent(r.Agent); err != nil {
		return err
	}
	if r.Run == "" || len(r.Run) > MaxID {
		return &InvalidError{Field: "run", Problem: "the run token is missing, or too long"}
	}
	if err := checkText("harness", r.Harness, MaxWord); err != nil {
		return err
	}
	return checkText("substrate", r.Substrate, MaxWord)
}

// Identity is who calls: an agent, by the run token that it registered with.
type Identity struct {
	Agent string
	Run   string
}
