package feedserver

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/ossicle/ossicle/internal/access"
)

// Defaults of [Options].
const (
	DefaultHeartbeat  = 15 * time.Second
	DefaultWriteTime  = 9 * time.Second // so that who does not read is gone within 10 s
	DefaultRetry      = 2 * time.Second
	DefaultSpread     = 3 * time.Second
	DefaultReplays    = 8
	DefaultRecheck    = 15 * time.Second
	DefaultBodyBytes  = 256 << 20
	DefaultBodySilent = 60 * time.Second
)

// Fixed bounds.
const (
	sendBuffer    = 64 << 10 // bytes that the kernel takes for a stream
	receiveBuffer = 4 << 10  // bytes that the kernel takes from whoever should be silent
	notSent       = 16 << 10 // bytes in the kernel that are not on their way yet
	batchBytes    = 64 << 10 // frames of one write, beyond the first
	storeTime     = 30 * time.Second
	storePause    = time.Second // before a store that failed is asked again, with jitter
	latencySample = 64          // one of so many deliveries is timed
	maxWait       = 60 * time.Second
	answerBytes   = 1 << 20 // of the events of one long poll, beyond the first
	leastRetry    = time.Second
	mostRetry     = 5 * time.Second // what ended streams are told, spread from least to most
)

// Options adjust a [Server]. Zero fields take the defaults.
type Options struct {
	// Heartbeat is the silence after which a stream gets a comment.
	Heartbeat time.Duration
	// WriteTime is how long a client may take for what was begun to be written.
	WriteTime time.Duration
	// Retry is the time to reconnect that clients are told at the start.
	Retry time.Duration
	// Spread is the time over which Shutdown ends the streams, within that of its
	// context.
	Spread time.Duration
	// Replays bounds the streams for which the store is read at the same time.
	Replays int
	// Shards are the goroutines that write to streams taken over. Default:
	// GOMAXPROCS.
	Shards int
	// BodyBytes bounds the bodies that are held at the same time. BodySilence is
	// how long a client may send nothing of a body.
	BodyBytes   int64
	BodySilence time.Duration
	// Tickets makes the tickets of POST /v1/tickets. Nil means that there are none.
	Tickets *access.Tickets
	// Recheck asks whether the stored token of a principal still stands, every
	// RecheckEvery while one of its streams is open. An error that wraps
	// access.ErrInvalidToken ends them; with any other they stay. Nil means that
	// tokens are not revoked.
	Recheck      func(ctx context.Context, p *access.Principal) error
	RecheckEvery time.Duration
	// Latency is told, of a sample of the deliveries, the time from the event to
	// the end of its write. It must not block.
	Latency func(time.Duration)
	// Standard has every stream take the way of the standard library.
	Standard bool
	// Logger takes what goes wrong. Nil discards it.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&opts.Heartbeat, DefaultHeartbeat},
		{&opts.WriteTime, DefaultWriteTime},
		{&opts.Retry, DefaultRetry},
		{&opts.Spread, DefaultSpread},
		{&opts.RecheckEvery, DefaultRecheck},
		{&opts.BodySilence, DefaultBodySilent},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if opts.Replays <= 0 {
		opts.Replays = DefaultReplays
	}
	if opts.Shards <= 0 {
		opts.Shards = runtime.GOMAXPROCS(0)
	}
	if opts.BodyBytes <= 0 {
		opts.BodyBytes = DefaultBodyBytes
	}
	opts.BodyBytes = max(opts.BodyBytes, MaxBody)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return opts
}
