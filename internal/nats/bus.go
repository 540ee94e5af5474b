package nats

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	natsgo "github.com/nats-io/nats.go"

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
	// pending is how many messages wait for a listener. When there are more, the
	// next ones are dropped: those that wait say the same.
	pending = 64
)

// Options adjust a Bus. Zero fields take the defaults.
type Options struct {
	// Prefix begins the subject, so that buses of one server do not hear each
	// other. One in the URL wins.
	Prefix string
	// Timeout bounds Ring.
	Timeout time.Duration
	// Keepalive is how often a connection asks whether the server is still there.
	// It has as long to answer.
	Keepalive time.Duration
	// Retry says how a lost server is tried again.
	Retry supervise.Options
	// TLS adjusts connections that use TLS, for instance whom they trust.
	TLS *tls.Config
	// Logger takes what goes wrong. Nil discards it.
	Logger *slog.Logger
}

// Bus is a feed.Bus. It is safe for concurrent use.
type Bus struct {
	name      string // of the servers
	subject   string
	client    natsgo.Options
	retry     supervise.Options
	health    supervise.Health
	sender    *supervise.Sender[feed.Position]
	publisher *natsgo.Conn // the sender's; nil when it is not connected
	hangUp    func()       // ends what the publisher has dialled
}

var _ feed.Bus = (*Bus)(nil)

// Open returns a bus over the server at a URL,
// nats://[user:password@]host[:port][?prefix=name], or tls:// for TLS; or over a
// cluster, of which several are given, separated by commas. It connects when it
// is used, so the server may come up later. Close ends it.
func Open(url string, o *Options) (*Bus, error) {
	a, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("open nats bus: %w", err)
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
	subject, err := subject(opts.Prefix)
	if err != nil {
		return nil, fmt.Errorf("open nats bus: %w", err)
	}
	opts.Retry.Logger = opts.Logger
	b := &Bus{name: a.name, subject: subject, client: clientOptions(a, opts), retry: opts.Retry.OrDefaults()}
	b.sender = supervise.NewSender(b.retry, opts.Timeout, b.health.Part(), "the nats bus takes no rings", b.publish)
	return b, nil
}

// clientOptions leaves everything that supervises to us: a connection that is
// lost ends, and whoever needs one makes another.
func clientOptions(a address, o Options) natsgo.Options {
	c := natsgo.GetDefaultOptions()
	c.Servers = a.servers
	c.Name = "ossicle"
	c.AllowReconnect = false
	c.PingInterval, c.MaxPingsOut = o.Keepalive, 1
	c.FlusherTimeout = connectTimeout
	c.SubChanLen = pending
	c.Secure = a.secure
	if o.TLS != nil {
		c.TLSConfig = o.TLS.Clone()
	}
	// Otherwise the library writes to standard error. It is about messages that
	// were dropped, which is what they are for.
	c.AsyncErrorCB = func(*natsgo.Conn, *natsgo.Subscription, error) {}
	return c
}

// dialer dials for as long as a context lasts, and cuts what it has dialled when
// that ends.
type dialer struct {
	ctx context.Context //nolint:containedctx // lives as long as the call
}

// Dial implements natsgo.CustomDialer.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(d.ctx, func() { _ = conn.Close() })
	return conn, nil
}

// connect returns a connection. Close it, and end its context.
func (b *Bus) connect(ctx context.Context, timeout time.Duration) (*natsgo.Conn, error) {
	o := b.client
	o.Timeout = timeout
	o.CustomDialer = dialer{ctx}
	return o.Connect()
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
	return fmt.Errorf("%s nats bus %s: %w", verb, b.name, err)
}

// publish is called by the sender, one at a time. It returns when the server has
// the message.
func (b *Bus) publish(ctx context.Context, p feed.Position) error {
	text, err := json.Marshal(message{p.Epoch, p.ID})
	if err != nil {
		return err
	}
	if b.publisher != nil && b.publisher.IsClosed() {
		b.disconnect()
	}
	used := b.publisher != nil
	if err = b.tell(ctx, text); err != nil && used && ctx.Err() == nil {
		err = b.tell(ctx, text) // the connection may have broken since, and not have told yet
	}
	return err
}

// tell publishes over the connection, and makes one if there is none.
func (b *Bus) tell(ctx context.Context, text []byte) error {
	if b.publisher == nil {
		if err := b.call(ctx); err != nil {
			return err
		}
	}
	err := b.publisher.Publish(b.subject, text)
	if err == nil {
		err = b.publisher.FlushWithContext(ctx)
	}
	if err != nil {
		b.disconnect() // begin anew: what is left of it may be out of step
	}
	return err
}

// call connects the publisher, for longer than ctx lasts.
func (b *Bus) call(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, end)
	c, err := b.connect(life, max(time.Millisecond, time.Until(deadline)))
	release()
	if err != nil {
		end()
		return err
	}
	b.publisher, b.hangUp = c, end
	return nil
}

func (b *Bus) disconnect() {
	if b.publisher != nil {
		b.hangUp() // first, so that nothing more is written to a server that does not read
		b.publisher.Close()
		b.publisher = nil
	}
}

// Listen implements feed.Bus. It is deaf while the server is down, says so by
// Health, and rings when it hears again.
func (b *Bus) Listen(ctx context.Context, ring func()) error {
	part := b.health.Part()
	defer part.Leave()
	supervise.Loop(ctx, b.retry, part, "the nats bus cannot be heard", func(ctx context.Context, up func()) error {
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := b.connect(ctx, connectTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	heard, err := c.SubscribeSync(b.subject)
	if err != nil {
		return err
	}
	flushing, done := context.WithTimeout(ctx, connectTimeout)
	err = c.FlushWithContext(flushing)
	done()
	if err != nil {
		return err
	}
	subscribed()
	for {
		_, err := heard.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, natsgo.ErrSlowConsumer): // some were dropped; the next one says the same
		case err != nil:
			return errors.Join(err, c.LastError())
		default:
			ring()
		}
	}
}
