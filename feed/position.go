package feed

import (
	"strconv"
	"strings"
)

const maxEpoch = 32

// Position is a place in a log: behind the event with that id, or before all of
// them if the id is 0.
type Position struct {
	Epoch string
	ID    int64
}

// String is the form of a position on the wire: <epoch>-<id>.
func (p Position) String() string { return p.Epoch + "-" + strconv.FormatInt(p.ID, 10) }

// ParsePosition reads what String has written and nothing else. Errors:
// *InvalidError.
func ParsePosition(s string) (Position, error) {
	epoch, digits, found := strings.Cut(s, "-")
	id, err := strconv.ParseInt(digits, 10, 64)
	p := Position{epoch, id}
	if !found || err != nil || id < 0 || p.String() != s || !validEpoch(epoch) {
		return Position{}, &InvalidError{"position", "it is not <epoch>-<id>", nil}
	}
	return p, nil
}

func validEpoch(s string) bool {
	if s == "" || len(s) > maxEpoch {
		return false
	}
	for i := range len(s) {
		if !alphanumeric(s[i]) {
			return false
		}
	}
	return true
}

// Reason says why events are missing.
type Reason string

// The reasons of gaps.
const (
	Evicted Reason = "evicted" // they are no longer kept
	Slow    Reason = "slow"    // the subscriber lagged too far behind
	Epoch   Reason = "epoch"   // the log is another one than the subscriber knows
	Future  Reason = "future"  // the log never came to the subscriber's position
)

// Gap says that a subscriber did not get what it had asked for: events with ids
// after From up to To. With Epoch and Future the ids say where the subscriber
// believed to be, and where it is now.
type Gap struct {
	From    int64  `json:"from"`
	To      int64  `json:"to"`
	Dropped int64  `json:"dropped,omitzero"` // how many, where that is known
	Reason  Reason `json:"reason"`
}
