package agent_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

// The order in which two real agents list their options: the dangerous one first.
var options = []agent.PermissionOption{
	{ID: "o1", Name: "Always", Kind: agent.AllowAlways},
	{ID: "o2", Name: "Never", Kind: agent.RejectAlways},
	{ID: "o3", Name: "Once", Kind: agent.AllowOnce},
	{ID: "o4", Name: "No", Kind: agent.RejectOnce},
}

// N-2, N-25: policies choose by kind, never by position.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		policy  agent.Policy
		kind    string
		options []agent.PermissionOption
		want    string
	}{
		{"AllowIsOnce", agent.PolicyAllow, "execute", options, "o3"},
		{"AllowTakesAlwaysIfThatIsAll", agent.PolicyAllow, "execute", options[:2], "o1"},
		{"AllowReadReads", agent.PolicyAllowRead, "read", options, "o3"},
		{"AllowReadSearches", agent.PolicyAllowRead, "search", options, "o3"},
		{"AllowReadDoesNotFetch", agent.PolicyAllowRead, "fetch", options, "o4"},
		{"AllowReadDoesNotExecute", agent.PolicyAllowRead, "execute", options, "o4"},
		{"AllowReadDoesNotTrustSilence", agent.PolicyAllowRead, "", options, "o4"},
		{"AskWithoutAPersonRejectsOnce", agent.PolicyAsk, "read", options, "o4"},
		{"AskNeverRejectsForEver", agent.PolicyAsk, "read", options[:3], ""},
		{"UnknownKindsAreNotChosen", agent.PolicyAllow, "execute", []agent.PermissionOption{{ID: "x", Kind: "allow_everything"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := agenttest.New(agenttest.Ask(agent.ToolCall{ID: "t", Title: "rm", Kind: c.kind}, c.options...))
			play(t, a, &agent.Options{Policy: c.policy}, func(t *testing.T, s *stage) {
				r, err := s.submit("go", nil).Wait(t.Context())
				if c.want == "" {
					var aborted *agent.AbortedError
					if !errors.As(err, &aborted) {
						t.Errorf("%+v, %v; want an aborted turn", r, err)
					}
					return
				}
				if err != nil || r.Text != c.want {
					t.Errorf("chose %q (%v), want %q", r.Text, err, c.want)
				}
			})
		})
	}
}

// N-2: a person is asked, and the answer goes to the agent. What notices and
// inputs say answers nothing (D-17).
func TestPersonAnswers(t *testing.T) {
	t.Parallel()
	a := agenttest.New(agenttest.Ask(agent.ToolCall{ID: "t", Title: "rm -rf /", Kind: "execute"}, options...))
	play(t, a, &agent.Options{Asks: true}, func(t *testing.T, s *stage) {
		ticket := s.submit("go", nil)
		synctest.Wait()
		if err := s.Notify(agent.Notice{ID: "n1", Name: "o3", Text: "allow_once o3 yes"}, nil); err != nil {
			t.Fatal(err)
		}
		s.submit("yes, o3", nil)
		synctest.Wait()
		open := s.Questions()
		if len(open) != 1 || open[0].Call.Title != "rm -rf /" || len(open[0].Options) != 4 {
			t.Fatalf("questions: %+v", open)
		}
		if err := s.Answer(open[0].ID, "o9"); !errors.Is(err, agent.ErrNotFound) {
			t.Errorf("an answer that was not offered: %v", err)
		}
		if err := s.Answer("ask-nothing", "o3"); !errors.Is(err, agent.ErrNotFound) {
			t.Errorf("an answer to nothing: %v", err)
		}
		if err := s.Answer(open[0].ID, "o3"); err != nil {
			t.Error(err)
		}
		if err := s.Answer(open[0].ID, "o3"); !errors.Is(err, agent.ErrNotFound) {
			t.Errorf("a second answer: %v", err)
		}
		r, err := ticket.Wait(t.Context())
		if err != nil || r.Text != "o3" {
			t.Errorf("%+v, %v", r, err)
		}
		got := s.events(agent.EventPermission, agent.EventPermissionDone)
		if len(got) != 2 || got[0].ID != open[0].ID || got[1].Kind != "allow_once" {
			t.Errorf("updates: %+v", got)
		}
		if e := s.entries(agent.EntryPermission); len(e) != 1 || e[0].Status != "allow_once" || e[0].Text != "a person" {
			t.Errorf("transcript: %+v", e)
		}
	})
}

// Every wait has a deadline: a question that nobody answers is rejected.
func TestQuestionRunsOut(t *testing.T) {
	t.Parallel()
	a := agenttest.New(agenttest.Ask(agent.ToolCall{ID: "t"}, options...))
	play(t, a, &agent.Options{Asks: true, PermissionWait: time.Minute}, func(t *testing.T, s *stage) {
		began := time.Now()
		r, err := s.submit("go", nil).Wait(t.Context())
		if err != nil || r.Text != "o4" || time.Since(began) != time.Minute {
			t.Errorf("%+v, %v after %v", r, err, time.Since(began))
		}
	})
}

// A cancelled turn answers its open requests as cancelled, so that the agent
// does not wait for ever; so do a shutdown and a death.
func TestCancelAnswersQuestions(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *stage){
		"Cancel":   func(s *stage) { s.Cancel() },
		"Shutdown": func(s *stage) { s.stop() },
		"Death":    func(s *stage) { s.agent.Die("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := agenttest.New(agenttest.Ask(agent.ToolCall{ID: "t"}, options...))
			play(t, a, &agent.Options{Asks: true}, func(t *testing.T, s *stage) {
				ticket := s.submit("go", nil)
				synctest.Wait()
				began := time.Now()
				end(s)
				if _, err := ticket.Wait(t.Context()); err == nil {
					t.Error("the turn went on")
				}
				if took := time.Since(began); took > agent.DefaultGrace {
					t.Errorf("the answer took %v", took)
				}
				if e := s.entries(agent.EntryPermission); len(e) != 1 || e[0].Status != "cancelled" {
					t.Errorf("transcript: %+v", e)
				}
				if got := s.Questions(); len(got) != 0 {
					t.Errorf("open: %+v", got)
				}
			})
		})
	}
}

// N-25: a request that names a known call knows what the call is.
func TestRequestKnowsItsCall(t *testing.T) {
	t.Parallel()
	ask := agenttest.Ask(agent.ToolCall{ID: "t"}, options...)
	a := agenttest.New(func(turn *agenttest.Turn) (agent.Outcome, error) {
		turn.Emit(agent.ToolCall{ID: "t", Title: "cat", Kind: "read", Status: agent.ToolPending})
		return ask(turn)
	})
	play(t, a, &agent.Options{Policy: agent.PolicyAllowRead}, func(t *testing.T, s *stage) {
		r, err := s.submit("go", nil).Wait(t.Context())
		if err != nil || r.Text != "o3" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestProfileIsChecked(t *testing.T) {
	t.Parallel()
	if err := (agent.Profile{Name: "p", Policy: "yolo"}).Validate(); err == nil {
		t.Error("an unknown policy passed")
	}
	if err := (agent.Profile{}).Validate(); err == nil {
		t.Error("a profile without a name passed")
	}
	if err := (agent.Profile{Name: "p", Command: []string{"codex-acp"}}).Validate(); err != nil {
		t.Error(err)
	}
	if _, err := agent.NewSession("s", agenttest.New().New, agent.NewMemoryStore(0, 0), frame, &agent.Options{Policy: "yolo"}); err == nil {
		t.Error("a session took an unknown policy")
	}
}
