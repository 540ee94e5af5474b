package redis

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/supervise"
)

// Defaults of Options.
const (
	DefaultPrefix    = "ossicle"
	DefaultTimeout   = time.Second
	DefaultKeepalive = 30 * time.Second
)

const (
	// connectTimeout bounds every step until a listener hears.
	connectTimeout = 5 * time.Second
	// buffer is that of a connection, each way: messages are small.
	buffer = 4 << 10
)

// Options adjust a Bus. Zero fields take the defaults.
type Options struct {
	// Prefix begins the name of the channel, so that buses of one server do not
	// hear each other. One in the URL wins.
	Prefix string
	// Timeout bounds Ring.
	Timeout time.Duration
	// Keepalive is after how much silence a listener asks whether the server is
	// still there. It has as long to answer.
	Keepalive time.Duration
	// Retry says how a lost server is tried again.
	Retry supervise.Options
	// TLS adjusts connections to rediss:// servers, for instance whom they trust.
	TLS *tls.Config
	// Logger takes what goes wrong. Nil discards it.
	Logger *slog.Logger
}

// Bus is a feed.Bus. It is safe for concurrent use.
type Bus struct {
	name      string // of the server
	channel   string
	client    goredis.Options
	keepalive time.Duration
	retry     supervise.Options
	health    supervise.Health
	sender    *supervise.Sender[feed.Position]
	publisher *goredis.Client // the sender's; nil when it is not connected
}

var _ feed.Bus = (*Bus)(nil)

// Open returns a bus over the server at a URL,
// redis://[[user]:password@]host[:port][/database][?prefix=name], or rediss://
// for TLS. It connects when it is used, so the server may come up later. Close
// ends it.
func Open(url string, o *Options) (*Bus, error) {
	a, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("open redis bus: %w", err)
	}
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Prefix == "" {
		opts.Prefix = DefaultPrefix
	}
	if a.prefix != "" {
		opts.Prefix = a.prefix
	}
	if opts.Timeout <= 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.Keepalive <= 0 {
		opts.Keepalive = DefaultKeepalive
	}
	opts.Retry.Logger = opts.Logger
	// The client library has one logger for the process, which writes to standard
	// error. What it has to say comes back as errors, too.
	goredis.SetLogger(&logging.VoidLogger{})
	b := &Bus{name: a.name, channel: channel(opts.Prefix, a.client.DB), client: clientOptions(a.client, opts), keepalive: opts.Keepalive}
	b.retry = opts.Retry.OrDefaults()
	b.sender = supervise.NewSender(b.retry, opts.Timeout, b.health.Part(), "the redis bus takes no rings", b.publish)
	return b, nil
}

// clientOptions leaves everything that supervises to us: the library's own pools
// and repetitions have no owner and no end.
func clientOptions(parsed *goredis.Options, o Options) goredis.Options {
	c := *parsed
	c.Protocol = 2
	c.DisableIdentity = true
	c.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c.ContextTimeoutEnabled = true
	c.MaxRetries, c.DialerRetries = -1, 1
	c.DialTimeout, c.ReadTimeout, c.WriteTimeout = connectTimeout, connectTimeout, connectTimeout
	// Of two connections one is never opened: the second failure to dial would
	// start the library's own tries.
	c.PoolSize, c.PipelinePoolSize = 2, -1
	c.ReadBufferSize, c.WriteBufferSize = buffer, buffer
	if c.TLSConfig != nil && o.TLS != nil {
		name := c.TLSConfig.ServerName
		if c.TLSConfig = o.TLS.Clone(); c.TLSConfig.ServerName == "" {
			c.TLSConfig.ServerName = name
		}
	}
	return c
}

// Close ends the bus. Listeners must have ended before.
func (b *Bus) Close() error {
	b.sender.Close()
	b.disconnect()
	return nil
}

// Health is the state of the connections: an error and since when it lasts, or
// nothing.
func (b *Bus) Health() feed.Health {
	since, err := b.health.State()
	if err == nil {
		return feed.Health{}
	}
	return feed.Health{Err: err.Error(), Since: since}
}

// message is what goes over the wire. Whoever hears it looks at the log anyway.
type message struct {
	Epoch string `json:"epoch"`
	Head  int64  `json:"head"`
}

// Ring implements feed.Bus. While the server is down it returns an error at
// once; the newest position is published when it is back.
func (b *Bus) Ring(ctx context.Context, p feed.Position) error {
	if err := b.sender.Send(ctx, p); err != nil {
		return b.named("ring", err)
	}
	return nil
}

func (b *Bus) named(verb string, err error) error {
	return fmt.Errorf("%s redis bus %s: %w", verb, b.name, err)
}

// publish is called by the sender, one at a time.
func (b *Bus) publish(ctx context.Context, p feed.Position) error {
	text, err := json.Marshal(message{p.Epoch, p.ID})
	if err != nil {
		return err
	}
	if b.publisher == nil {
		o := b.client
		b.publisher = goredis.NewClient(&o)
	}
	// A read that waits knows of the deadline of ctx only.
	c := b.publisher
	release := context.AfterFunc(ctx, func() { _ = c.Close() })
	err = c.Publish(ctx, b.channel, text).Err()
	if release(); err != nil {
		b.disconnect() // begin anew: what is left of it may be out of step
		return err
	}
	return nil
}

func (b *Bus) disconnect() {
	if b.publisher != nil {
		_ = b.publisher.Close()
		b.publisher = nil
	}
}

// Listen implements feed.Bus. It is deaf while the server is down, says so by
// Health, and rings when it hears again.
func (b *Bus) Listen(ctx context.Context, ring func()) error {
	part := b.health.Part()
	defer part.Leave()
	supervise.Loop(ctx, b.retry, part, "the redis bus cannot be heard", func(ctx context.Context, up func()) error {
		err := b.hear(ctx, func() {
			up()
			ring()
			b.sender.Nudge()
		}, ring)
		return b.named("listen to", err)
	})
	return nil
}

// hear listens over one connection until that is lost.
func (b *Bus) hear(ctx context.Context, subscribed, ring func()) error {
	o := b.client
	client := goredis.NewClient(&o)
	defer func() { _ = client.Close() }()
	heard := client.Subscribe(ctx)
	// A read that waits knows nothing of ctx.
	release := context.AfterFunc(ctx, func() { _ = heard.Close() })
	defer release()
	defer func() { _ = heard.Close() }()
	if err := heard.Subscribe(ctx, b.channel); err != nil {
		return err
	}
	wait := connectTimeout
	asked := true
	for {
		got, err := heard.ReceiveTimeout(ctx, wait)
		if netErr := net.Error(nil); errors.As(err, &netErr) && netErr.Timeout() && !asked {
			asked = true
			err = heard.Ping(ctx)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		asked, wait = false, b.keepalive
		switch got.(type) {
		case *goredis.Subscription:
			subscribed()
		case *goredis.Message:
			ring()
		}
	}
}
