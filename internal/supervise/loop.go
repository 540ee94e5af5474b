package supervise

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// Defaults of Options.
const (
	DefaultLeast   = 100 * time.Millisecond
	DefaultMost    = 5 * time.Second
	DefaultHealthy = 10 * time.Second
)

// Options adjust how something is tried again. Zero fields take the defaults.
type Options struct {
	// Least and Most bound the pause between two tries. It doubles with each
	// failure; of every pause, up to the half is random, so that many who lost one
	// server do not come back at once.
	Least, Most time.Duration
	// Healthy is how long something must have worked before the pauses begin anew:
	// a server that accepts and hangs up is as good as one that refuses.
	Healthy time.Duration
	// Logger takes what goes wrong. Nil discards it.
	Logger *slog.Logger
}

// OrDefaults returns the options with the defaults filled in.
func (o *Options) OrDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&opts.Least, DefaultLeast}, {&opts.Most, DefaultMost}, {&opts.Healthy, DefaultHealthy}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	opts.Most = max(opts.Most, opts.Least)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return opts
}

// pause is how long to wait after so many failures, from 1.
func (o Options) pause(failures int) time.Duration {
	d := o.Least
	for range failures - 1 {
		if d *= 2; d >= o.Most {
			d = o.Most
			break
		}
	}
	return d - rand.N(d/2+1)
}

// report logs a failure: loudly the first time and then ever more rarely, for an
// outage can be long.
func (o Options) report(ctx context.Context, what string, err error, failures int, pause time.Duration) {
	level := slog.LevelDebug
	if failures&(failures-1) == 0 {
		level = slog.LevelWarn
	}
	o.Logger.LogAttrs(ctx, level, "trying again after a pause", logattr.Reason(what), logattr.Err(err), logattr.Attempt(failures), logattr.Delay(pause))
}

// recovered logs the end of an outage.
func (o Options) recovered(ctx context.Context, what string, failures int) {
	if failures > 0 {
		o.Logger.InfoContext(ctx, "working again", logattr.Reason(what), logattr.Attempt(failures))
	}
}

// Loop calls try again and again until ctx ends: with a pause in between, unless
// it has worked for a while. try calls up when it works, and returns why it does
// no longer. part is told of both.
func Loop(ctx context.Context, o Options, part *Part, what string, try func(ctx context.Context, up func()) error) {
	failures := 0
	for {
		var since time.Time
		err := try(ctx, func() {
			if since.IsZero() {
				since = time.Now()
				o.recovered(ctx, what, failures)
			}
			part.Note(nil)
		})
		if ctx.Err() != nil {
			return
		}
		if !since.IsZero() && time.Since(since) >= o.Healthy {
			failures = 0
		}
		failures++
		part.Note(err)
		pause := o.pause(failures)
		o.report(ctx, what, err, failures, pause)
		if !Sleep(ctx, pause) {
			return
		}
	}
}

// Sleep reports whether the time passed before ctx ended.
func Sleep(ctx context.Context, d time.Duration) bool { return sleep(ctx, d, nil) }

// sleep reports whether it ended because of the time, or of a nudge, and not of
// ctx.
func sleep(ctx context.Context, d time.Duration, nudge <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-nudge:
		return true
	case <-ctx.Done():
		return false
	}
}
