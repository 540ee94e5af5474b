package feed

import "fmt"

// Policy says what happens to a subscriber that lags by more than the hub
// allows. Among the topics of one subscriber the strictest policy counts: a
// later one of these constants.
type Policy int

// The policies. Whatever is dropped is told with a Gap.
const (
	// DropOldest skips to the newest events: the current state matters most.
	DropOldest Policy = iota
	// DropNewest hands out the oldest events and skips those after them.
	DropNewest
	// Disconnect ends the subscription with a *SlowError. Nothing is dropped: the
	// subscriber resumes from the position that it has.
	Disconnect
)

// String is the name of the policy in configuration and metrics.
func (p Policy) String() string {
	switch p {
	case DropOldest:
		return "drop-oldest"
	case DropNewest:
		return "drop-newest"
	case Disconnect:
		return "disconnect"
	default:
		return fmt.Sprintf("policy %d", int(p))
	}
}

// ParsePolicy is the inverse of String. Errors: *InvalidError.
func ParsePolicy(s string) (Policy, error) {
	for p := DropOldest; p <= Disconnect; p++ {
		if p.String() == s {
			return p, nil
		}
	}
	return 0, &InvalidError{"policy", fmt.Sprintf("%q is none of drop-oldest, drop-newest, disconnect", s), nil}
}
