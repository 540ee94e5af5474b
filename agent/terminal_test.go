package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

// typed is the turn of an agent of which nobody knows what it has read.
func typed(turn *agenttest.Turn) (agent.Outcome, error) {
	turn.Emit(agent.Screen{})
	return agent.Outcome{Stop: agent.StopEndTurn, Unproven: true}, nil
}

// D-2: a prompt that was handed over without proof is no more than that, whatever
// the screen shows meanwhile; and it may be offered again under the same id.
func TestUnprovenTurns(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(typed, typed), nil, func(t *testing.T, s *stage) {
		s.notify("n1")
		s.idle()
		equal(t, "acks", s.acks.States("n1"), []agent.AckState{agent.AckWritten})
		for _, e := range s.entries(agent.EntryRunEnd) {
			if e.Delivered || e.Error != "" {
				t.Errorf("the transcript says %+v", e) // another life would take it for seen
			}
		}
		s.notify("n1")
		s.idle()
		equal(t, "acks", s.acks.States("n1"), []agent.AckState{agent.AckWritten, agent.AckWritten})
		equal(t, "prompts", s.prompts(), []string{"<n1 ADDED n1>", "<n1 ADDED n1>"})
	})
}

// Output on the screen out of turn counts as busy.
func TestScreenHoldsTurns(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(), nil, func(t *testing.T, s *stage) {
		s.submit("begin", nil)
		s.idle()
		s.agent.Emit(agent.Screen{})
		synctest.Wait()
		began := time.Now()
		s.notify("n1")
		s.idle()
		if waited := time.Since(began); waited != agent.DefaultQuiet {
			t.Errorf("the turn waited for %v", waited)
		}
	})
}

// An agent that is there before its first turn is there after a reset too.
func TestWarmAfterReset(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(), &agent.Options{Warm: true}, func(t *testing.T, s *stage) {
		s.idle()
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.idle()
		if got := len(s.agent.Starts()); got != 2 || len(s.prompts()) != 0 {
			t.Errorf("%d starts, prompts %q", got, s.prompts())
		}
	})
}
