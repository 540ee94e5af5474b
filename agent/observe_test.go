package agent_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

// Whoever looks at a session at any moment, and follows it, has every word once:
// in the transcript, in what is being said, or in an update that comes.
func TestObserve(t *testing.T) {
	t.Parallel()
	const messages, pieces = 60, 5
	var all strings.Builder
	looked := make(chan struct{})
	talk := func(turn *agenttest.Turn) (agent.Outcome, error) {
		for m := range messages {
			<-looked // so that they look again while this message is said
			for p := range pieces {
				text := agent.Text{Text: fmt.Sprintf("w%d.%d ", m, p)}
				if m%3 > 0 { // a change of the name ends a message, and so does a tool call
					text.Message = fmt.Sprint("m", m)
				}
				all.WriteString(text.Text)
				turn.Emit(text)
				runtime.Gosched()
			}
			if m%3 == 0 {
				turn.Emit(agent.Text{Text: "\n"}, agent.ToolCall{ID: fmt.Sprint("t", m), Title: "look", Status: agent.ToolCompleted}, agent.Text{Text: " \n"})
				all.WriteString("\n \n")
			}
		}
		return agenttest.End()
	}
	store := agent.NewMemoryStore(0, 0)
	s, err := agent.NewSession("s1", agenttest.New(talk).New, store, frame, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	ticket, err := s.Submit(agent.Input{Text: "go"})
	if err != nil {
		t.Fatal(err)
	}
	var observers sync.WaitGroup
	var mu sync.Mutex
	var heard []string
	for range 3 {
		observers.Go(func() {
			for done := false; !done; {
				o, err := s.Observe(t.Context(), 4000)
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-ticket.Done():
					done = true
				case looked <- struct{}{}:
				}
				observers.Go(func() {
					text := follow(o)
					mu.Lock()
					defer mu.Unlock()
					heard = append(heard, text)
				})
				runtime.Gosched()
			}
		})
	}
	if _, err := ticket.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	observers.Wait()
	want := words(all.String())
	for _, text := range heard {
		if d := cmp.Diff(want, words(text)); d != "" {
			t.Fatalf("one of %d observers missed or repeated words:\n%s", len(heard), d)
		}
	}
	if len(heard) < messages {
		t.Errorf("only %d observations", len(heard))
	}
}

// words leaves out the space between them: a message of nothing else has no entry.
func words(text string) []string { return strings.Fields(text) }

// follow returns what an observer has heard until the session's end.
func follow(o *agent.Observation) string {
	var text strings.Builder
	for _, e := range o.Entries {
		if e.Kind == agent.EntryAssistant {
			text.WriteString(e.Text)
		}
	}
	text.WriteString(o.Present.Live().Text)
	for u := range o.Updates.C {
		if u.Event == agent.EventText {
			text.WriteString(u.Text)
		}
	}
	return text.String()
}

// What is written, and what is said, change places: applied in order, the updates
// and the entries leave nothing behind, and hold the thoughts, the plan and the
// open calls of the run meanwhile.
func TestPresent(t *testing.T) {
	t.Parallel()
	between := make(chan struct{})
	a := agenttest.New(func(turn *agenttest.Turn) (agent.Outcome, error) {
		turn.Emit(agent.Thought{Text: "hm"}, agent.Text{Text: "one", Message: "1"}, agent.Text{Text: "OK", Message: "2"}, agent.Text{Text: "OK, done", Message: "3"},
			agent.ToolCall{ID: "t", Title: "look", Kind: "read", Status: agent.ToolPending}, agent.ToolCall{ID: "t", Status: "in_progress"},
			agent.Plan{Entries: []agent.PlanEntry{{Content: "do"}}}, agent.Text{Text: "and"})
		close(between)
		turn.Wait(1)
		return agenttest.End()
	})
	play(t, a, nil, func(t *testing.T, s *stage) {
		before, err := s.Observe(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := s.Submit(agent.Input{Text: "go"})
		if err != nil {
			t.Fatal(err)
		}
		<-between
		o, err := s.Observe(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		live := o.Present.Live()
		want := agent.Live{
			Run: live.Run, Text: "and", Thought: "hm", Plan: []agent.PlanEntry{{Content: "do"}},
			Tools: []agent.LiveTool{{ID: "t", Title: "look", Kind: "read", Status: "in_progress"}},
		}
		if d := cmp.Diff(want, live); d != "" || live.Run == "" {
			t.Error(d)
		}
		if _, err := ticket.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		s.Close()
		<-s.Done()
		entries, err := s.store.List(t.Context(), "s1", agent.Query{})
		if err != nil {
			t.Fatal(err)
		}
		p := before.Present
		var texts []string
		for u := range before.Updates.C {
			if u.Event == agent.EventRunEnded {
				for i := range entries {
					if entries[i].Kind == agent.EntryAssistant {
						texts = append(texts, p.Live().Text)
					}
					p.Record(&entries[i])
				}
				texts = append(texts, p.Live().Text)
			}
			p.Apply(u)
		}
		if d := cmp.Diff([]string{"oneOKOK, doneand", "OKOK, doneand", "OK, doneand", "and", ""}, texts); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff(agent.Live{Tools: []agent.LiveTool{}, Plan: []agent.PlanEntry{}}, p.Live()); d != "" {
			t.Error(d)
		}
	})
}
