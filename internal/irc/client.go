package irc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/logattr"
)

// Client is one place in the chat of one server. It is safe for concurrent use.
type Client struct {
	addr    string
	want    string // the nick that we were given
	deliver func(Message)
	opts    Options
	log     *slog.Logger
	bell    chan struct{} // tells the writer that there is something to do

	mu         sync.Mutex
	running    bool
	closed     bool
	ever       bool // has been registered at least once
	registered bool
	nick       string // the one that we have
	mask       int    // bytes of "!user@host", as others see us
	names      mapping
	regain     time.Time // when to ask for our nick again
	rooms      []*Channel
	peers      []*Channel // of private conversations, the latest last
	out        outbox
	changed    chan struct{} // closed, and replaced, when a Publish that waits may go on
}

// New makes a client of the server at addr ("host:port"). deliver gets what
// people say, in order; it is called by the goroutine that reads from the
// server, and returns quickly. Nothing happens until Run.
func New(addr, nick string, deliver func(Message), o *Options) (*Client, error) {
	opts, err := o.orDefaults(addr, nick)
	if err != nil {
		return nil, err
	}
	c := &Client{
		addr: addr, want: nick, deliver: deliver, opts: opts, log: opts.Log,
		bell: make(chan struct{}, 1), nick: nick, mask: unknownMask, names: mapRFC, changed: make(chan struct{}),
		out: outbox{most: opts.QueueSize, age: opts.QueueAge, burst: opts.Burst, interval: opts.Interval},
	}
	for _, s := range opts.Channels {
		name, key, _ := strings.Cut(s, " ")
		if c.room(name) == nil {
			c.rooms = append(c.rooms, &Channel{client: c, name: name, key: key, room: true})
		}
	}
	return c, nil
}

// Channels returns the configured channels in their order, for
// agent.Options.Channels.
func (c *Client) Channels() []agent.Channel {
	all := make([]agent.Channel, len(c.rooms))
	for i, r := range c.rooms {
		all[i] = r
	}
	return all
}

// Channel returns a configured channel, or the private conversation with the
// holder of a nick. Anything else is ErrUnknownChannel.
func (c *Client) Channel(name string) (agent.Channel, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.room(name); r != nil {
		return r, nil
	}
	if isNick(name) {
		return c.peer(name), nil
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknownChannel, name)
}

// Nick returns the nick that the client has, or had last.
func (c *Client) Nick() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nick
}

// Run keeps the client connected until ctx ends, and then says goodbye after
// what may still be sent at once. It returns nil, or the reason why going on is
// useless: a *RefusedError or a certificate that does not verify, on the first
// connection. Once it has been registered, the client takes these for passing,
// and tries again. Run can be called once.
func (c *Client) Run(ctx context.Context) error {
	c.mu.Lock()
	if c.running {
		c.mu.Unlock()
		return errors.New("run IRC client: it runs already, or did")
	}
	c.running = true
	c.mu.Unlock()
	defer c.close(ctx)
	pause := firstBackoff
	for attempt := 1; ; attempt++ {
		lived, err := c.connection(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if c.final(err) {
			return fmt.Errorf("connect to %s: %w", c.addr, err)
		}
		if lived >= healthyTime {
			attempt, pause = 1, firstBackoff
		}
		delay := pause - rand.N(pause/4)
		pause = min(2*pause, lastBackoff)
		c.log.LogAttrs(ctx, slog.LevelWarn, "irc.disconnected", logattr.Server(c.addr), logattr.Err(err),
			logattr.Duration(lived), logattr.Attempt(attempt), logattr.Delay(delay))
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// final reports whether trying again is useless.
func (c *Client) final(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ever && (errors.As(err, new(*RefusedError)) || errors.As(err, new(*tls.CertificateVerificationError)))
}

// close ends all waiting and drops what was not sent.
func (c *Client) close(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.drop(ctx, len(c.out.lines), "the client was closed")
	c.out.lines = nil
	c.wake()
}

func (c *Client) drop(ctx context.Context, lines int, why string) {
	if lines > 0 {
		c.log.LogAttrs(context.WithoutCancel(ctx), slog.LevelWarn, "irc.dropped", logattr.Server(c.addr), logattr.Lines(lines), logattr.Reason(why))
	}
}

// wake lets every waiting Publish and the writer look again.
func (c *Client) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
	c.ring()
}

func (c *Client) ring() {
	select {
	case c.bell <- struct{}{}:
	default:
	}
}

// connection is one life of a connection. It returns how long it was
// registered, and why it ended.
func (c *Client) connection(ctx context.Context) (time.Duration, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return 0, err
	}
	l := &link{client: c, conn: conn, done: make(chan struct{}), writing: make(chan struct{}, 1)}
	// A write that is stuck when we are told to stop must not wait its full time.
	unstick := context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Now().Add(stopTime)) })
	var wg sync.WaitGroup
	wg.Go(func() { l.write(ctx) })
	err = l.read(ctx)
	close(l.done)
	unstick()
	_ = conn.Close()
	wg.Wait()
	c.disconnected()
	if l.since.IsZero() {
		return 0, err
	}
	return time.Since(l.since), err
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := c.opts.Dial(ctx, "tcp", c.addr)
	if err != nil || c.opts.TLS == nil {
		return conn, err
	}
	config := c.opts.TLS.Clone()
	if config.ServerName == "" && !config.InsecureSkipVerify {
		config.ServerName, _, _ = net.SplitHostPort(c.addr)
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

func (c *Client) disconnected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.registered, c.nick, c.mask, c.names = false, c.want, unknownMask, mapRFC
	for _, r := range c.rooms {
		r.joined, r.why, r.pause, r.retry = false, "", 0, time.Time{}
	}
	c.wake()
}

// room finds a configured channel by its name, nil if there is none.
func (c *Client) room(name string) *Channel {
	i := slices.IndexFunc(c.rooms, func(r *Channel) bool { return c.names.equal(r.name, name) })
	if i < 0 {
		return nil
	}
	return c.rooms[i]
}

// peer finds or makes the private conversation with a nick.
func (c *Client) peer(nick string) *Channel {
	i := slices.IndexFunc(c.peers, func(p *Channel) bool { return c.names.equal(p.name, nick) })
	var p *Channel
	switch {
	case i >= 0:
		p = c.peers[i]
		p.name = nick
		c.peers = slices.Delete(c.peers, i, i+1)
	default:
		p = &Channel{client: c, name: nick}
		if len(c.peers) == maxPeers {
			c.peers = slices.Delete(c.peers, 0, 1)
		}
	}
	c.peers = append(c.peers, p)
	return p
}
