package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

// attaching is a session of an agent that was given a server, and knows its tools
// when listed is closed.
func attaching(t *testing.T, transport string, listed <-chan struct{}) *stage {
	t.Helper()
	a := agenttest.New()
	a.Info.Injected = []agent.Injected{{Server: "ossicle", Transport: transport}}
	s := newStage(t, a, &agent.Options{Attached: func(ctx context.Context) error {
		select {
		case <-listed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	s.start()
	return s
}

// N-23: an agent that attaches beside its start gets its first prompt when it
// knows its tools, and what came meanwhile is part of it.
func TestFirstTurnWaitsForTheTools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listed := make(chan struct{})
		s := attaching(t, "http", listed)
		s.submit("hello", s.term)
		time.Sleep(agent.DefaultAttachWait / 2)
		s.notify("n1")
		synctest.Wait()
		if got := s.prompts(); len(got) != 0 {
			t.Errorf("a prompt came before the tools: %q", got)
		}
		close(listed)
		s.idle()
		if got := s.prompts(); len(got) != 1 {
			t.Fatalf("prompts %q", got)
		}
		contains(t, s.prompts()[0], "<n1", "hello")
		s.submit("again", s.term) // of the same life: no wait
		s.idle()
		if got := s.prompts(); len(got) != 2 {
			t.Errorf("prompts %q", got)
		}
		s.end()
	})
}

// N-23: the wait is bounded, and there is none where nothing was injected.
func TestWaitForToolsIsBounded(t *testing.T) {
	t.Parallel()
	for transport, want := range map[string]time.Duration{"http": agent.DefaultAttachWait, "": 0} {
		synctest.Test(t, func(t *testing.T) {
			s := attaching(t, transport, make(chan struct{}))
			began := time.Now()
			s.submit("hello", s.term)
			s.idle()
			if got := time.Since(began); got != want || len(s.prompts()) != 1 {
				t.Errorf("%q: %d prompts after %v, want one after %v", transport, len(s.prompts()), got, want)
			}
			s.end()
		})
	}
}

// N-15: neither the death of the agent nor the end of the session waits for
// tools.
func TestWaitForToolsEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *stage){
		"death": func(s *stage) { s.agent.Die("out of memory"); s.idle() },
		"close": func(s *stage) { s.Close(); <-s.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := attaching(t, "http", make(chan struct{}))
				s.submit("hello", s.term)
				synctest.Wait()
				began := time.Now()
				end(s)
				if got := time.Since(began); got != 0 {
					t.Errorf("the wait went on for %v", got)
				}
				s.end()
			})
		})
	}
}

// whoever keeps the report of the agent's servers hears of a reset before
// the running turn has ended, and again before the agent does, so that nothing of
// a slow reset looks as before.
func TestResetIsToldFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := agenttest.New(func(turn *agenttest.Turn) (agent.Outcome, error) {
			<-turn.Cancelled
			time.Sleep(5 * time.Second) // it takes its time
			return agent.Outcome{Stop: agent.StopCancelled}, nil
		})
		var told []time.Duration
		var closed []int
		began := time.Now()
		s := newStage(t, a, &agent.Options{OnReset: func() {
			told, closed = append(told, time.Since(began)), append(closed, a.Closed())
		}})
		s.start()
		s.submit("hello", s.term)
		time.Sleep(time.Second)
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(told) != 2 || told[0] != time.Second || told[1] != 6*time.Second || closed[1] != 0 || a.Closed() != 1 {
			t.Errorf("told after %v, of %v closed lives; %d are closed", told, closed, a.Closed())
		}
		s.end()
	})
}
