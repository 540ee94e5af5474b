package mailbox

import (
	"math"
	"time"
)

// Defaults of Limits.
const (
	DefaultSignals     = 10  // a minute and sender
	DefaultEscalations = 2   // a minute and session
	DefaultTokens      = 300 // of the answer to an escalation
	// MaxTokens is the most that an escalation may ask for (specification S-15).
	MaxTokens = 400
)

// Limits bound what members cause (specification S-7, S-14, S-19). Zero fields
// take the defaults.
type Limits struct {
	// Signals is how many signals a member may send in a minute.
	Signals int `json:"signals,omitempty" yaml:"signals"`
	// Escalations is how many turns may be begun in a minute for signals of the
	// session. A member's own can only be less: it then counts what was begun for
	// that member.
	Escalations int `json:"escalations,omitempty" yaml:"escalations"`
	// Tokens bounds the answer to a sampling request.
	Tokens int `json:"tokens,omitempty" yaml:"tokens"`
}

// Or fills the fields that are zero from another.
func (l Limits) Or(other Limits) Limits {
	if l.Signals <= 0 {
		l.Signals = other.Signals
	}
	if l.Escalations <= 0 {
		l.Escalations = other.Escalations
	}
	if l.Tokens <= 0 {
		l.Tokens = other.Tokens
	}
	return l
}

// OrDefaults fills in the defaults, and holds Tokens to its bound.
func (l Limits) OrDefaults() Limits {
	l = l.Or(Limits{DefaultSignals, DefaultEscalations, DefaultTokens})
	l.Tokens = min(l.Tokens, MaxTokens)
	return l
}

// Bucket is the token bucket of a sender. The zero value is full.
type Bucket struct {
	// Spent is how much of the bucket is gone, in signals, at At.
	Spent float64
	At    time.Time
}

// Take takes one signal out of a bucket that holds perMinute and fills up at that
// rate. If it cannot, it says how long to wait and changes nothing. A clock that
// was set back neither fills nor empties it.
func (b Bucket) Take(now time.Time, perMinute int) (_ Bucket, wait time.Duration) {
	rate := float64(perMinute) / time.Minute.Seconds()
	spent := b.Spent
	if d := now.Sub(b.At); d > 0 {
		spent = max(0, spent-d.Seconds()*rate)
	}
	if over := spent + 1 - float64(perMinute); over > 1e-9 {
		return b, time.Duration(math.Ceil(over/rate*1e3-1e-6)) * time.Millisecond
	}
	return Bucket{Spent: spent + 1, At: now}, 0
}

// Window is the minute in which escalations are counted.
const Window = time.Minute

// InWindow reports whether something at a time counts against a limit now. A time
// in the future is that of a clock which was set back: it has happened, and
// counts as now until it leaves the window behind it.
func InWindow(at, now time.Time) bool {
	d := now.Sub(at)
	return d < Window && d > -Window
}

// Free returns how long it takes until fewer than limit of the times are in the
// window: zero if that is so now.
func Free(times []time.Time, now time.Time, limit int) time.Duration {
	var left []time.Duration
	for _, at := range times {
		if InWindow(at, now) {
			left = append(left, Window-now.Sub(at))
		}
	}
	if len(left) < limit {
		return 0
	}
	// The one whose leaving makes room: the limit-th from the longest.
	for i := range left {
		for j := i; j > 0 && left[j] > left[j-1]; j-- {
			left[j], left[j-1] = left[j-1], left[j]
		}
	}
	return left[limit-1]
}

// InTurn reports whether an agent is inside an escalated turn that is over at a
// time at the latest. A clock that was set back cannot keep it there longer than
// an hour.
func InTurn(id string, until, now time.Time) bool {
	d := until.Sub(now)
	return id != "" && d > 0 && d <= time.Hour
}

// PageLimit is the number of entries of a page for which limit was asked.
func PageLimit(limit int) int {
	if limit <= 0 {
		return DefaultPage
	}
	return min(limit, MaxPage)
}
