package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/attach"
)

// attachments notes what an engine tells.
type attachments struct {
	mu    sync.Mutex
	calls []string
	n     int
	busy  bool
	err   error // of Servers
}

func (a *attachments) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, fmt.Sprintf(format, args...))
}

func (a *attachments) Servers(context.Context) ([]agent.MCPServer, error) {
	a.mu.Lock()
	a.n++
	n := a.n
	a.mu.Unlock()
	a.note("servers")
	return []agent.MCPServer{{Name: "m", HTTP: fmt.Sprintf("http://127.0.0.1:1/%d", n)}, {Name: "old", SSE: "http://127.0.0.1:1/sse"}}, a.err
}

func (a *attachments) Decided(d []agent.Injected) { a.note("decided %+v", d) }

func (a *attachments) Answered(id string, err error) { a.note("answered %q %v", id, err) }
func (a *attachments) Busy() bool                    { return a.busy }

func (a *attachments) Saw(e attach.Evidence) { a.note("saw %s of %s", e.Kind, e.Server) }

// The agent is told of its servers before they are sent, once for every delivery:
// one that it refuses is followed by another, with servers of its own.
//
//
func TestEveryDeliveryIsAnAttempt(t *testing.T) {
	t.Parallel()
	a := &attachments{}
	sent := func(p *peer) {
		frame := p.next()
		var q struct {
			Method string `json:"method"`
			Params struct {
				Servers []struct {
					URL string `json:"url"`
				} `json:"mcpServers"`
			} `json:"params"`
		}
		if err := json.Unmarshal([]byte(frame), &q); err != nil || len(q.Params.Servers) != 1 {
			t.Errorf("%s: %v", frame, err)
			return
		}
		a.note("%s %s", q.Method, q.Params.Servers[0].URL)
	}
	e := with(t, nil, func(p *peer) {
		p.next()
		p.say(helloAnswer)
		sent(p)
		p.say(`{"jsonrpc":"2.0","id":2,"error":{"code":-32002,"message":"gone"}}`)
		sent(p)
		p.say(
			`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"notice","title":"MCP server \"m\" failed to start"}}}`,
			`{"jsonrpc":"2.0","id":3,"result":{"sessionId":"s"}}`,
		)
	})
	info, err := e.Start(t.Context(), agent.StartOptions{Dir: t.TempDir(), Resume: "old", Attachment: a}, newEvents().sink)
	if err != nil || info.Resumed {
		t.Fatalf("%+v, %v", info, err)
	}
	_ = e.Close()
	decided := "decided [{Server:m Transport:http Reason: Assumed:false} {Server:old Transport: Reason:sse_unsupported Assumed:true}]"
	want := []string{
		"servers", decided, "session/load http://127.0.0.1:1/1", `answered "" agent answered error -32002: gone`,
		"servers", decided, "session/new http://127.0.0.1:1/2", "saw agent_reported_failed of m", `answered "s" <nil>`,
	}
	if !slices.Equal(a.calls, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(a.calls, "\n     "), strings.Join(want, "\n     "))
	}
}

// Nothing is delivered of which nobody can report.
//
//
func TestNoDeliveryWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	refused := errors.New("no attempt")
	delivered := make(chan string, 1)
	e := with(t, nil, func(p *peer) {
		p.next()
		p.say(helloAnswer)
		delivered <- p.next()
	})
	_, err := e.Start(t.Context(), agent.StartOptions{Dir: t.TempDir(), Attachment: &attachments{err: refused}}, newEvents().sink)
	_ = e.Close()
	if got := <-delivered; !errors.Is(err, refused) || got != "" {
		t.Errorf("%v, and the agent got %q", err, got)
	}
}

// An agent that was seen at its servers may wait for one that hangs, and gets
// more time than one that just does not answer.
//
//
func TestBlockedAgentsGetMoreTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for busy, want := range map[bool]time.Duration{false: DefaultSessionTimeout, true: DefaultBlockedTimeout} {
		synctest.Test(t, func(t *testing.T) {
			e := with(t, nil, func(p *peer) {
				p.next()
				p.say(helloAnswer)
				p.next()
			})
			began := time.Now()
			_, err := e.Start(t.Context(), agent.StartOptions{Dir: dir, Attachment: &attachments{busy: busy}}, newEvents().sink)
			if !errors.Is(err, ErrTimeout) || time.Since(began) != want {
				t.Errorf("busy %t: %v after %v, want %v", busy, err, time.Since(began), want)
			}
		})
	}
}

// What an agent wrote to standard error stays in memory after its end, and is
// said not to be live then.
func TestStderrOfAnAgent(t *testing.T) {
	t.Parallel()
	if text, live := New([]string{"x"}, nil).Stderr(); text != "" || live {
		t.Errorf("before its start: %q, %t", text, live)
	}
	e := mock(t, "eager", nil)
	begin(t, e, agent.StartOptions{})
	if _, live := e.Stderr(); !live {
		t.Error("it runs and is not live")
	}
	_, err := e.Turn(t.Context(), user("DIE"))
	var exit *agent.ExitError
	if !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if text, live := e.Stderr(); text != exit.Stderr || text == "" || live {
		t.Errorf("after its end: %q, %t; want %q", text, live, exit.Stderr)
	}
}
