package notice

import (
	"log/slog"
	"time"
)

// Defaults of Options.
const (
	DefaultMaxOffers = 6
	DefaultBatch     = 256
	// DefaultPullWait is long enough for an agent that a person left open over
	// night to fetch what no adapter could push.
	DefaultPullWait = 24 * time.Hour
	DefaultLease    = 30 * time.Second
	DefaultPatience = 2 * time.Minute
	DefaultTries    = 2
	DefaultTimeout  = 15 * time.Minute
	// DefaultBusyWait is the net under agents that never say that they are idle.
	DefaultBusyWait = time.Minute
	// MaxDepth is how many turns of agents may follow from one another without a
	// person (specification D-7).
	MaxDepth = 8
)

// Defaults of Budget and Retention.
const (
	DefaultWakesPerMinute = 12
	DefaultWakesPerHour   = 120
	DefaultTokensPerHour  = 100_000
	DefaultPendingAge     = 7 * 24 * time.Hour
	DefaultDoneAge        = 30 * 24 * time.Hour
	DefaultKeyAge         = 90 * 24 * time.Hour
	DefaultKeep           = 10_000
)

// How failures space out what follows them.
const (
	errorDelay     = 5 * time.Second // first repeat with the same adapter, doubling
	unreachableMin = 30 * time.Second
	unreachableMax = 15 * time.Minute
	storeRetryMin  = time.Second
	storeRetryMax  = 30 * time.Second
	storeTimeout   = 10 * time.Second // for what must be written although ctx ended
	pruneEvery     = 64               // posts between two looks at the number kept
	pruneLimit     = 1000             // rows
	reservedRoute  = "inbox"          // the adapter of our own rules in steps
)

// Options adjust an Inbox. Zero fields take the defaults.
type Options struct {
	Logger    *slog.Logger // nil discards
	Budget    Budget
	Retention Retention
	// MaxOffers is how often all adapters together offer a notice.
	MaxOffers int
	// Batch is how many notices one offer carries; what is over waits for the
	// next.
	Batch int
	// PullWait is how long a notice that every adapter has offered waits for a
	// pull before it is dead.
	PullWait time.Duration
}

// Budget bounds what notices may cost one agent. Over it nothing wakes the
// agent until a person calls Reset; notices wait for the next user turn.
type Budget struct {
	WakesPerMinute int
	WakesPerHour   int
	TokensPerHour  int // of the messages, estimated
	MaxDepth       int // deeper notices wait for a user turn
}

// Retention bounds an inbox by age and number.
type Retention struct {
	PendingAge time.Duration // then Expired
	DoneAge    time.Duration // then deleted
	KeyAge     time.Duration // then a dedupe key is forgotten
	Keep       int           // notices per agent; looked at every few posts
}

// Route is one entry of an agent's list of adapters.
type Route struct {
	Waker Waker
	// Patience is how long an offer without proof that it was seen waits before
	// the next one.
	Patience time.Duration
	// Tries is how often this adapter offers a notice before the next one does.
	Tries int
	// Timeout bounds one Wake, which lasts as long as a turn where the adapter
	// can follow it.
	Timeout time.Duration
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	fill(&out.MaxOffers, DefaultMaxOffers)
	fill(&out.Batch, DefaultBatch)
	fill(&out.PullWait, DefaultPullWait)
	fill(&out.Budget.WakesPerMinute, DefaultWakesPerMinute)
	fill(&out.Budget.WakesPerHour, DefaultWakesPerHour)
	fill(&out.Budget.TokensPerHour, DefaultTokensPerHour)
	fill(&out.Budget.MaxDepth, MaxDepth)
	fill(&out.Retention.PendingAge, DefaultPendingAge)
	fill(&out.Retention.DoneAge, DefaultDoneAge)
	fill(&out.Retention.KeyAge, DefaultKeyAge)
	fill(&out.Retention.Keep, DefaultKeep)
	return out
}

func (r Route) withDefaults() Route {
	fill(&r.Patience, DefaultPatience)
	fill(&r.Tries, DefaultTries)
	fill(&r.Timeout, DefaultTimeout)
	return r
}

func fill[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}
