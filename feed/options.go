package feed

import (
	"errors"
	"fmt"
	"log/slog"
)

// Defaults of Options.
const (
	DefaultRing        = 500
	DefaultLag         = 100
	DefaultReplays     = 8
	DefaultSubscribers = 50_000
)

// Options adjust a Hub. Zero fields take the defaults.
type Options struct {
	// Ring is how many of the last events are kept in memory, of the whole feed
	// and of each filter that is in use. With very many filters the later ones
	// keep no more than Lag asks for.
	Ring int
	// Lag is by how many events a subscriber may be behind before the policy of
	// its topics applies. One that resumes may be behind as far as it likes until
	// it has caught up.
	Lag int
	// Replays bounds the subscribers that read the store at the same time.
	Replays int
	// Subscribers bounds the subscriptions.
	Subscribers int
	// Policy is the policy of a topic. Nil means DropOldest.
	Policy func(topic string) Policy
	// Encode makes the frame of an event. Nil leaves Item.Frame nil.
	Encode func(Event) []byte
	// Logger takes what goes wrong. Nil discards it.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	for _, d := range []struct {
		field *int
		value int
	}{{&opts.Ring, DefaultRing}, {&opts.Lag, DefaultLag}, {&opts.Replays, DefaultReplays}, {&opts.Subscribers, DefaultSubscribers}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	// What a subscriber may lag by must be there when it comes.
	opts.Ring = max(opts.Ring, opts.Lag+1)
	if opts.Policy == nil {
		opts.Policy = func(string) Policy { return DropOldest }
	}
	if opts.Encode == nil {
		opts.Encode = func(Event) []byte { return nil }
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return opts
}

// Errors of subscriptions.
var (
	ErrClosed  = errors.New("the subscription is closed")
	ErrStopped = errors.New("the hub has stopped")
	ErrFull    = errors.New("there are too many subscriptions")
)

// SlowError ends a subscription of which a topic has the policy Disconnect.
// Nothing is lost: resume from Position.
type SlowError struct {
	Position Position
	Lag      int64
}

func (e *SlowError) Error() string {
	return fmt.Sprintf("the subscriber is %d events behind; resume from %s", e.Lag, e.Position)
}
