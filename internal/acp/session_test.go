package acp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

// hosted is a session of the room around our engine, as the application has it.
type hosted struct {
	*agent.Session

	channel *agenttest.Channel
	acks    chan agent.Ack
}

func host1(t *testing.T, engine func() (agent.Engine, error), o agent.Options) *hosted {
	t.Helper()
	frame := func(notices []agent.Notice, _ bool) string {
		var b strings.Builder
		for _, n := range notices {
			fmt.Fprintf(&b, "<watch-event name=%q uri=%q>\n%s\n</watch-event>\n", n.Name, n.URI, n.Text)
		}
		return b.String() + "This is a notification, not a message of the user."
	}
	h := &hosted{channel: &agenttest.Channel{Label: "terminal"}, acks: make(chan agent.Ack, 100)}
	o.Channels = []agent.Channel{h.channel}
	s, err := agent.NewSession("s-1", engine, agent.NewMemoryStore(0, 0), frame, &o)
	if err != nil {
		t.Fatal(err)
	}
	h.Session = s
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *hosted) notify(t *testing.T, n int) {
	t.Helper()
	err := h.Notify(agent.Notice{ID: fmt.Sprintf("n-%d", n), Name: "notes", URI: "memo://notes", Text: fmt.Sprintf("MODIFIED owner %d", n)}, func(a agent.Ack) {
		if a.State == agent.AckSeen || a.State == agent.AckUndelivered {
			h.acks <- a
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (h *hosted) say(t *testing.T, text string) *agent.Ticket {
	t.Helper()
	ticket, err := h.Submit(agent.Input{Text: text, Channel: h.channel})
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

func answer(t *testing.T, ticket *agent.Ticket) (agent.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return ticket.Wait(ctx)
}

// N-10, N-22: what arrives during a run makes one follow-up run, and an agent
// that aborts its turn when another prompt comes never has to.
func TestSessionCoalesces(t *testing.T) {
	t.Parallel()
	var frames syncBuffer
	h := host1(t, func() (agent.Engine, error) { return mock(t, "abort", &Options{Frames: &frames}), nil }, agent.Options{Dir: t.TempDir()})
	words, release := held(t)
	first := h.say(t, words+"\nSAY first")
	for !strings.Contains(frames.String(), `"method":"session/prompt"`) {
		time.Sleep(time.Millisecond)
	}
	var rest []*agent.Ticket
	for i := range 3 {
		rest = append(rest, h.say(t, fmt.Sprintf("input %d", i)))
	}
	for i := range 5 {
		h.notify(t, i)
	}
	release()
	for _, ticket := range append([]*agent.Ticket{first}, rest...) {
		if r, err := answer(t, ticket); err != nil || r.Stop != agent.StopEndTurn {
			t.Errorf("got %+v %v", r, err)
		}
	}
	for range 5 {
		if a := <-h.acks; a.State != agent.AckSeen {
			t.Errorf("got %+v", a)
		}
	}
	if n := strings.Count(frames.String(), `"method":"session/prompt"`); n != 2 {
		t.Errorf("%d prompts", n)
	}
	if strings.Contains(frames.String(), "overlap") {
		t.Error("the agent saw two prompts at once")
	}
	got := h.channel.Texts()
	if len(got) != 2 || got[0] != "first" || !strings.Contains(got[1], "owner 4") {
		t.Errorf("got %q", got)
	}
}

// N-2: a dead agent is started again with the next turn, and its conversation
// goes on.
func TestSessionRestartsAgent(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var frames []*syncBuffer
	h := host1(t, func() (agent.Engine, error) {
		b := &syncBuffer{}
		mu.Lock()
		frames = append(frames, b)
		mu.Unlock()
		return mock(t, "dies=2", &Options{Frames: b}), nil
	}, agent.Options{Dir: t.TempDir()})
	if r, err := answer(t, h.say(t, "one")); err != nil || r.Text != "you said one" {
		t.Fatalf("got %+v %v", r, err)
	}
	exit := (*agent.ExitError)(nil)
	if _, err := answer(t, h.say(t, "two")); !errors.As(err, &exit) || !strings.Contains(exit.Stderr, "dying") || strings.Contains(err.Error(), "dying") {
		t.Fatalf("got %v, which ends with %+v", err, exit)
	}
	if r, err := answer(t, h.say(t, "three")); err != nil || r.Text != "you said three" {
		t.Fatalf("got %+v %v", r, err)
	}
	if len(frames) != 2 || !strings.Contains(frames[1].String(), `"method":"session/load"`) {
		t.Errorf("%d lives", len(frames))
	}
}

// N-12, N-25: the session's policy answers by kind; NO_REPLY is not published.
func TestSessionPolicyAndSilence(t *testing.T) {
	t.Parallel()
	s := newSentinel(t)
	h := host1(t, func() (agent.Engine, error) { return mock(t, "permission,quiet", nil), nil }, agent.Options{
		Dir: t.TempDir(), Policy: agent.PolicyAllow,
		MCPServers: func(context.Context) ([]agent.MCPServer, error) { return []agent.MCPServer{s.entry()}, nil },
	})
	if r, err := answer(t, h.say(t, `CALL echo {"text":"hi"}`)); err != nil || r.Text != "tool said echo:hi" {
		t.Fatalf("got %+v %v", r, err)
	}
	h.notify(t, 1)
	if a := <-h.acks; a.State != agent.AckSeen {
		t.Errorf("got %+v", a)
	}
	if d := cmp.Diff([]string{"tool said echo:hi"}, h.channel.Texts()); d != "" {
		t.Error(d)
	}
}
