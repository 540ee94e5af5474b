package irc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// world is a client and the server that it talks to, in virtual time.
type world struct {
	t      *testing.T
	client *Client
	stop   func() error // ends Run, and returns what it returned
	log    *buffer

	mu       sync.Mutex
	refuse   error // for the next dials
	deaf     bool  // the next connections are not read from
	dials    []time.Time
	conns    []*conn
	messages []Message
}

// conn is the server's end of one connection.
type conn struct {
	net.Conn
	rude  bool // does not take a QUIT for the end
	mu    sync.Mutex
	lines []got
	read  int
}

type got struct {
	at   time.Time
	text string
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// play runs f against a client with nick "ossi" in a bubble. The connection is
// an in-memory pipe.
func play(t *testing.T, o Options, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, log: &buffer{}}
		o.Dial = w.dial
		o.Log = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		var err error
		w.client, err = New("127.0.0.1:6667", "ossi", w.deliver, &o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.client.Run(ctx) }()
		w.stop = sync.OnceValue(func() error { cancel(); return <-done })
		defer func() { // also when f gives up
			if err := w.stop(); err != nil && !errors.As(err, new(*RefusedError)) {
				t.Errorf("Run: %v", err)
			}
			for _, c := range w.conns {
				_ = c.Close()
			}
		}()
		f(w)
	})
}

func (w *world) deliver(m Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.messages = append(w.messages, m)
}

func (w *world) context() context.Context { return w.t.Context() }

// heard returns the messages since the last call.
func (w *world) heard() []Message {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.messages
	w.messages = nil
	return m
}

func (w *world) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials = append(w.dials, time.Now())
	if w.refuse != nil {
		return nil, w.refuse
	}
	ours, theirs := net.Pipe()
	c := &conn{Conn: theirs}
	w.conns = append(w.conns, c)
	if !w.deaf {
		go c.listen()
	}
	return ours, ctx.Err()
}

// goDeaf in a line makes the server stop reading.
const goDeaf = "go deaf"

func (c *conn) listen() {
	r := bufio.NewReader(c)
	for {
		s, err := r.ReadString('\n')
		if err != nil {
			return
		}
		c.mu.Lock()
		c.lines = append(c.lines, got{time.Now(), s})
		rude := c.rude
		c.mu.Unlock()
		switch {
		case strings.HasPrefix(s, "QUIT") && !rude:
			_ = c.Close()
		case strings.Contains(s, goDeaf):
			return
		}
	}
}

// conn waits for the nth connection, from 0.
func (w *world) conn(n int) *conn {
	w.t.Helper()
	for range 20_000 {
		synctest.Wait()
		w.mu.Lock()
		var c *conn
		if n < len(w.conns) {
			c = w.conns[n]
		}
		w.mu.Unlock()
		if c != nil {
			return c
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("there is no connection %d", n)
	return nil
}

// say sends lines to the client.
func (c *conn) say(t *testing.T, lines ...string) {
	t.Helper()
	for _, s := range lines {
		if _, err := c.Write([]byte(s + "\r\n")); err != nil {
			t.Fatalf("say %q: %v", s, err)
		}
	}
	synctest.Wait()
}

// fresh returns the lines that came since the last call.
func (c *conn) fresh() []got {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := slices.Clone(c.lines[c.read:])
	c.read = len(c.lines)
	return lines
}

// expect compares the lines that came since the last look, without their ends.
func (c *conn) expect(t *testing.T, want ...string) {
	t.Helper()
	lines := []string{}
	for _, g := range c.fresh() {
		s, ok := strings.CutSuffix(g.text, "\r\n")
		if !ok {
			t.Errorf("%q ends otherwise", g.text)
		}
		lines = append(lines, s)
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got  %q\nwant %q", lines, want)
	}
}

const self = ":ossi!~ossi@host.example"

// join lets the client in, and into its channels.
func (w *world) join(n int) *conn {
	w.t.Helper()
	c := w.conn(n)
	c.say(w.t, ":irc.test 001 ossi :Welcome")
	for _, g := range c.fresh() {
		if name, ok := strings.CutPrefix(strings.TrimSpace(g.text), "JOIN "); ok {
			name, _, _ = strings.Cut(name, " ")
			c.say(w.t, self+" JOIN "+name)
		}
	}
	c.fresh()
	return c
}

// from makes a line of somebody.
func from(nick, to, text string) string { return fmt.Sprintf(":%s!u@h PRIVMSG %s :%s", nick, to, text) }
