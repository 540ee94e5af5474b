package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

// frame is a frame that is easy to find in a prompt; the real one is another
// room's.
func frame(notices []agent.Notice, aside bool) string {
	var all []string
	for _, n := range notices {
		all = append(all, fmt.Sprintf("<%s %s>", n.ID, n.Text))
	}
	if aside {
		all = append(all, "aside")
	}
	return strings.Join(all, " ")
}

// stage is a session on a scripted agent, with everything around it.
type stage struct {
	*agent.Session
	t       *testing.T
	agent   *agenttest.Agent
	store   *agent.MemoryStore
	acks    agenttest.Acks
	term    *agenttest.Channel
	updates *agent.Subscription
	framed  func() // called with every frame, if it is set
	stop    context.CancelFunc
	done    chan error
}

// play runs body on a running session, in virtual time.
func play(t *testing.T, a *agenttest.Agent, opts *agent.Options, body func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, a, opts)
		s.start()
		body(t, s)
		s.end()
	})
}

func newStage(t *testing.T, a *agenttest.Agent, opts *agent.Options) *stage {
	t.Helper()
	s := &stage{t: t, agent: a, store: agent.NewMemoryStore(0, 0), term: &agenttest.Channel{Label: "terminal"}, done: make(chan error, 1)}
	s.open(opts)
	return s
}

func (s *stage) open(opts *agent.Options) {
	s.t.Helper()
	var o agent.Options
	if opts != nil {
		o = *opts
	}
	framer := func(notices []agent.Notice, aside bool) string {
		if s.framed != nil {
			s.framed()
		}
		return frame(notices, aside)
	}
	session, err := agent.NewSession("s1", s.agent.New, s.store, framer, &o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Session = session
	s.updates = session.Subscribe()
}

func (s *stage) start() {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.stop = cancel
	go func() { s.done <- s.Run(ctx) }()
	synctest.Wait()
}

// end stops the session and holds it to what is true of every session.
func (s *stage) end() {
	s.t.Helper()
	s.stop()
	if err := <-s.done; err != nil {
		s.t.Errorf("the session ended with %v", err)
	}
	if n := s.agent.Overlaps(); n != 0 {
		s.t.Errorf("%d prompts were sent while one was in flight", n) // N-22
	}
	if faults := s.acks.Faults(); len(faults) > 0 {
		s.t.Errorf("acknowledgements: %v", faults)
	}
	if got, want := s.agent.Closed(), len(s.agent.Starts()); got < want {
		s.t.Errorf("%d of %d agents were closed", got, want) // N-15
	}
}

// notify hands over a notice and follows it.
func (s *stage) notify(id string) {
	s.t.Helper()
	if err := s.Notify(agent.Notice{ID: id, Name: "cm", URI: "memo://notes", Text: "ADDED " + id}, s.acks.For(id)); err != nil {
		s.t.Error(err)
	}
}

func (s *stage) submit(text string, c agent.Channel) *agent.Ticket {
	s.t.Helper()
	ticket, err := s.Submit(agent.Input{Text: text, Channel: c})
	if err != nil {
		s.t.Fatal(err)
	}
	return ticket
}

// idle waits until there is nothing left to do.
func (s *stage) idle() {
	s.t.Helper()
	if err := s.WaitIdle(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// prompts are the prompts so far, as texts.
func (s *stage) prompts() []string {
	var texts []string
	for _, p := range s.agent.Prompts() {
		texts = append(texts, p.Text())
	}
	return texts
}

// entries are the transcript entries of some kinds.
func (s *stage) entries(kinds ...agent.EntryKind) []agent.Entry {
	s.t.Helper()
	synctest.Wait() // for the writer
	all, err := s.store.List(s.t.Context(), "s1", agent.Query{})
	if err != nil {
		s.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(e agent.Entry) bool { return !slices.Contains(kinds, e.Kind) })
}

// events are the updates so far of some names, oldest first.
func (s *stage) events(names ...string) []agent.Update {
	synctest.Wait()
	var all []agent.Update
	for {
		select {
		case u, ok := <-s.updates.C:
			if !ok {
				return all
			}
			if slices.Contains(names, u.Event) {
				all = append(all, u)
			}
			continue
		default:
		}
		return all
	}
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	at := 0
	for _, part := range parts {
		i := strings.Index(text[at:], part)
		if i < 0 {
			t.Errorf("%q is not there, or not in its place, in:\n%s", part, text)
			return
		}
		at += i
	}
}

func equal[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
