package wake

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// claude is a client on the other side of the pipe that reads and writes lines.
type claude struct {
	t     *testing.T
	in    io.WriteCloser
	lines *bufio.Reader
	out   io.ReadCloser
	ready chan struct{}
	done  chan struct{} // the server has ended
}

type line struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Content string
		Meta    map[string]string
	}
	Result struct {
		ProtocolVersion string
		Capabilities    struct{ Experimental map[string]any }
	}
	Error *struct{ Code int }
}

// channelServer runs a server with the channel, as the child of a host would,
// over two pipes.
func channelServer(t *testing.T) (*ClaudeChannel, *claude) {
	t.Helper()
	toServer, in := pipe(t)
	out, fromServer := pipe(t)
	c := &claude{t: t, in: in, out: out, lines: bufio.NewReader(out), ready: make(chan struct{}, 1), done: make(chan struct{})}
	channel := NewClaudeChannel("a", func() { c.ready <- struct{}{} })
	o := &mcp.ServerOptions{}
	channel.Options(o)
	server := mcp.NewServer(&mcp.Implementation{Name: "ossicle"}, o)
	mcp.AddTool(server, &mcp.Tool{Name: "noop"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{}, nil, nil
	})
	go func() {
		defer close(c.done)
		_ = server.Run(context.WithoutCancel(t.Context()), channel.Transport(&mcp.IOTransport{Reader: toServer, Writer: fromServer}))
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = out.Close()
		<-c.done
	})
	return channel, c
}

func pipe(t *testing.T) (*os.File, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

func (c *claude) say(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, s+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *claude) hear() line {
	c.t.Helper()
	b, err := c.lines.ReadBytes('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	var l line
	if err := json.Unmarshal(b, &l); err != nil {
		c.t.Fatalf("%s: %v", b, err)
	}
	return l
}

func (c *claude) initialize(name string) line {
	c.t.Helper()
	c.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"` + name + `","version":"2.1.318"}}}`)
	return c.hear()
}

func (c *claude) initialized() {
	c.t.Helper()
	c.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	<-c.ready
}

func (c *claude) handshake(name string) line {
	c.t.Helper()
	l := c.initialize(name)
	c.initialized()
	return l
}

// D-12: the capability, then a push; written is notified, and nothing more.
func TestClaudeChannel(t *testing.T) {
	t.Parallel()
	channel, c := channelServer(t)
	if err := channel.Reach(t.Context(), "a"); err == nil {
		t.Fatal("reached before the handshake")
	}
	l := c.initialize("claude-code")
	if err := channel.Reach(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "handshake") {
		t.Fatalf("got %v amid the handshake", err)
	}
	c.initialized()
	if _, ok := l.Result.Capabilities.Experimental["claude/channel"]; !ok || l.Result.ProtocolVersion != "2025-11-25" {
		t.Fatalf("got %+v", l.Result)
	}
	if err := channel.Reach(t.Context(), "b"); err == nil {
		t.Error("another agent was reached by this pipe")
	}
	d := delivery("changed")
	o := wakeWith(t, channel, d, time.Minute)
	equal(t, []any{o.proofs, o.state, o.err}, []any{[]notice.State(nil), notice.Notified, error(nil)})
	l = c.hear()
	equal(t, []any{l.Method, l.ID == nil, l.Params.Content, l.Params.Meta}, []any{"notifications/claude/channel", true, d.Text, map[string]string{"delivery": "d_test"}})
	// The rest of the session goes on.
	c.say(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}`)
	if l = c.hear(); string(l.ID) != "2" || l.Error != nil {
		t.Errorf("got %+v", l)
	}
	if err := c.in.Close(); err != nil {
		t.Fatal(err)
	}
	<-c.done
	if err := channel.Reach(t.Context(), "a"); err == nil {
		t.Error("still reached after the client was gone")
	}
}

// D-12: a client of the modern era comes down to one that has channels.
func TestClaudeChannelModernClient(t *testing.T) {
	t.Parallel()
	channel, c := channelServer(t)
	c.say(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"claude-code","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`)
	if l := c.hear(); l.Error == nil {
		t.Fatalf("a server with a channel speaks the modern version: %+v", l)
	}
	l := c.handshake("claude-code")
	equal(t, []any{l.Result.ProtocolVersion, channel.Reach(t.Context(), "a")}, []any{"2025-11-25", error(nil)})
}

// D-9: a host that swallows without a word, and one that stops reading.
func TestClaudeChannelMisbehaves(t *testing.T) {
	t.Parallel()
	channel, c := channelServer(t)
	if checks := channel.Doctor(t.Context()); len(checks) != 1 || checks[0].OK || checks[0].Fix == "" {
		t.Errorf("got %+v", checks)
	}
	c.handshake("some-editor")
	for range 3 {
		if o := wakeWith(t, channel, delivery("x"), time.Minute); o.state != notice.Notified || o.err != nil {
			t.Fatalf("got %+v", o)
		}
		c.hear()
	}
	checks := Examine(t.Context(), channel)
	if len(checks) != 3 || !checks[0].OK || !strings.Contains(checks[1].Cause, "some-editor") || !strings.Contains(checks[2].Fix, "--channels") {
		t.Errorf("got %+v", checks)
	}
	c.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"noop","arguments":{}}}`)
	c.hear()
	if checks := channel.Doctor(t.Context()); len(checks) != 2 {
		t.Errorf("got %+v after the model called a tool", checks)
	}
	// It reads no more: the pipe fills, the wake ends with its time.
	var last outcome
	for range 100 {
		if last = wakeWith(t, channel, delivery(strings.Repeat("x y z ", 600)), 2*time.Second); last.err != nil {
			break
		}
	}
	if !errors.Is(last.err, context.DeadlineExceeded) {
		t.Fatalf("got %v", last.err)
	}
	if err := channel.Reach(t.Context(), "a"); !errors.As(err, new(*notice.BusyError)) {
		t.Errorf("got %v", err)
	}
	if checks := channel.Doctor(t.Context()); checks[0].OK || !strings.Contains(checks[0].Cause, "does not read") {
		t.Errorf("got %+v", checks)
	}
}

// D-17.
func TestClaudeChannelHostile(t *testing.T) {
	t.Parallel()
	channel, c := channelServer(t)
	c.handshake("claude-code")
	for _, h := range noticetest.Corpus(t) {
		n := notice.Notice{ID: "n1", Agent: "a", Source: notice.SourceFeed, Title: h.Text, Text: h.Text, Meta: map[string]string{"uri": h.Text}}
		if o := wakeWith(t, channel, deliveryOf(n), time.Minute); o.err != nil {
			t.Fatalf("%s: %v", h.Name, o.err)
		}
		l := c.hear() // exactly one line
		noticetest.Bearable(t, l.Params.Content, 1)
	}
}
