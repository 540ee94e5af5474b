package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

// N-22: after a person cancels, notices wait for that person's next prompt,
// those of the cancelled run too; they are then shown once.
func TestCancelHoldsNotices(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(agenttest.Slow(time.Hour, "never"), agenttest.Say("with all")), nil, func(t *testing.T, s *stage) {
		asked := s.submit("go", s.term)
		s.notify("n1")
		synctest.Wait()
		s.notify("n2")
		if !s.Cancel() {
			t.Fatal("there was nothing to cancel")
		}
		if _, err := asked.Wait(t.Context()); !errors.Is(err, agent.ErrCancelled) {
			t.Errorf("the input ended with %v", err)
		}
		s.notify("n3")
		time.Sleep(time.Hour)
		if got := len(s.prompts()); got != 1 {
			t.Fatalf("%d prompts while notices are held", got)
		}
		if !s.Idle() || !s.Status().Held {
			t.Error("held notices keep the session from being idle")
		}
		equal(t, "published", s.term.Texts(), nil)
		s.submit("go on", s.term)
		s.idle()
		equal(t, "second prompt", s.prompts()[1:], []string{"<n1 ADDED n1> <n2 ADDED n2> <n3 ADDED n3> aside\n\ngo on"})
		for _, id := range []string{"n1", "n2", "n3"} {
			if states := s.acks.States(id); states[len(states)-1] != agent.AckSeen {
				t.Errorf("%s: %v", id, states)
			}
		}
		if s.Cancel() {
			t.Error("cancelled although idle")
		}
	})
}

// What a person typed before the cancel still runs, without the notices.
func TestCancelKeepsWaitingInputs(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(agenttest.Slow(time.Hour, "never")), nil, func(t *testing.T, s *stage) {
		s.submit("one", nil)
		synctest.Wait()
		s.submit("two", nil)
		s.notify("n1")
		s.Cancel()
		s.idle()
		equal(t, "prompts", s.prompts(), []string{"one", "two"})
		s.submit("three", nil)
		s.idle()
		equal(t, "last prompt", s.prompts()[2:], []string{"<n1 ADDED n1> aside\n\nthree"})
	})
}

// A cancel while the agent starts ends what would have been its first run.
func TestCancelDuringTheStart(t *testing.T) {
	t.Parallel()
	a := agenttest.New()
	a.OnStart = func(context.Context, int, agent.StartOptions, agent.Sink) error {
		time.Sleep(20 * time.Second)
		return nil
	}
	play(t, a, nil, func(t *testing.T, s *stage) {
		asked := s.submit("go", nil)
		s.notify("n1")
		time.Sleep(time.Second)
		if !s.Cancel() {
			t.Error("there was nothing to cancel")
		}
		if _, err := asked.Wait(t.Context()); !errors.Is(err, agent.ErrCancelled) {
			t.Errorf("the input ended with %v", err)
		}
		s.idle()
		equal(t, "prompts", s.prompts(), nil)
	})
}

// An agent that does not end its turn is asked again, then abandoned, then
// killed; the next turn has a new one.
func TestDeafAgentIsKilled(t *testing.T) {
	t.Parallel()
	a := agenttest.New(func(turn *agenttest.Turn) (agent.Outcome, error) { <-turn.Cancelled; return agenttest.Aborted() }, agenttest.Say("alive"))
	a.Deaf = true
	play(t, a, nil, func(t *testing.T, s *stage) {
		asked := s.submit("go", nil)
		synctest.Wait()
		began := time.Now()
		s.Cancel()
		if _, err := asked.Wait(t.Context()); !errors.Is(err, agent.ErrCancelled) {
			t.Errorf("the input ended with %v", err)
		}
		if took := time.Since(began); took != 15*time.Second || s.agent.Cancels() != 2 {
			t.Errorf("it took %v and %d requests", took, s.agent.Cancels())
		}
		r, err := s.submit("again", nil).Wait(t.Context())
		if err != nil || r.Text != "alive" || len(s.agent.Starts()) != 2 {
			t.Errorf("%+v, %v, %d starts", r, err, len(s.agent.Starts()))
		}
	})
}

// N-22: a prompt that ends aborted was not delivered: its notices are offered
// once more, and after that they go back to their owner.
func TestAbortedNoticesAreOfferedOnceMore(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(agenttest.Abort(), agenttest.Say("seen")), nil, func(t *testing.T, s *stage) {
		s.notify("n1")
		s.idle()
		equal(t, "prompts", s.prompts(), []string{"<n1 ADDED n1>", "<n1 ADDED n1>"})
		equal(t, "acks", s.acks.States("n1"), []agent.AckState{agent.AckWoken, agent.AckSeen})
	})
	play(t, agenttest.New(agenttest.Abort(), agenttest.Fail(errors.New("overloaded"))), nil, func(t *testing.T, s *stage) {
		s.notify("n1")
		s.idle()
		if got := len(s.prompts()); got != 2 {
			t.Errorf("offered %d times, want 2", got)
		}
		equal(t, "acks", s.acks.States("n1"), []agent.AckState{agent.AckUndelivered})
		if err := s.Notify(agent.Notice{ID: "n1"}, nil); err != nil { // its owner may try again
			t.Error(err)
		}
		s.idle()
		if got := len(s.prompts()); got != 3 {
			t.Errorf("offered %d times, want 3", got)
		}
	})
}

// An input whose turn breaks is reported to its channel and not sent again.
func TestBrokenTurnIsReported(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(agenttest.Fail(errors.New("overloaded")), agenttest.Abort()), nil, func(t *testing.T, s *stage) {
		if _, err := s.submit("one", s.term).Wait(t.Context()); err == nil || err.Error() != "overloaded" {
			t.Errorf("first: %v", err)
		}
		var aborted *agent.AbortedError
		if _, err := s.submit("two", s.term).Wait(t.Context()); !errors.As(err, &aborted) {
			t.Errorf("second: %v", err)
		}
		s.idle()
		equal(t, "published", s.term.Texts(), []string{"error: overloaded", "error: run turn: the agent aborted it"})
	})
}

// D-2: woken needs proof that the turn began; handing over the prompt is none.
func TestWokenNeedsProof(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(func(turn *agenttest.Turn) (agent.Outcome, error) {
		turn.Wait(time.Minute)
		turn.Emit(agent.Usage{InputTokens: 1}) // proves nothing
		turn.Wait(time.Minute)
		turn.Emit(agent.Thought{Text: "hm"})
		turn.Wait(time.Minute)
		return agenttest.End()
	}), nil, func(t *testing.T, s *stage) {
		s.notify("n1")
		time.Sleep(90 * time.Second)
		synctest.Wait()
		equal(t, "before", s.acks.States("n1"), nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		equal(t, "during", s.acks.States("n1"), []agent.AckState{agent.AckWoken})
		s.idle()
		equal(t, "after", s.acks.States("n1"), []agent.AckState{agent.AckWoken, agent.AckSeen})
	})
}

// D-4: when the owner hears that a notice was seen, the end of its run is in the
// store already: a crash between the two shows nothing twice.
func TestSeenIsRecordedFirst(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(), nil, func(t *testing.T, s *stage) {
		recorded := false
		err := s.Notify(agent.Notice{ID: "n1"}, func(ack agent.Ack) {
			if ack.State != agent.AckSeen {
				return
			}
			all, err := s.store.List(t.Context(), "s1", agent.Query{})
			if err != nil {
				t.Error(err)
			}
			for _, e := range all {
				recorded = recorded || e.Kind == agent.EntryRunEnd && e.Delivered && len(e.Notices) == 1 && e.Notices[0] == "n1"
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		s.idle()
		if !recorded {
			t.Error("the end of the run was not recorded before the owner was told")
		}
	})
}

// N-2: a dead agent is reported and restarted on the next turn, with its
// conversation.
func TestDeadAgentIsRestartedOnTheNextTurn(t *testing.T) {
	t.Parallel()
	a := agenttest.New(agenttest.Say("one"), agenttest.Say("two"))
	a.Info.Conversation = "c-1"
	play(t, a, nil, func(t *testing.T, s *stage) {
		s.submit("hello", nil)
		s.idle()
		s.agent.Die("segmentation fault")
		time.Sleep(time.Hour)
		if got := len(s.agent.Starts()); got != 1 {
			t.Errorf("restarted without a turn: %d starts", got)
		}
		if got := s.events(agent.EventExited); len(got) != 1 || got[0].Error != "run agent: it exited: exit status 3" {
			t.Errorf("updates: %+v", got)
		}
		r, err := s.submit("again", nil).Wait(t.Context())
		if err != nil || r.Text != "two" {
			t.Errorf("%+v, %v", r, err)
		}
		if starts := s.agent.Starts(); len(starts) != 2 || starts[1].Resume != "c-1" {
			t.Errorf("starts: %+v", starts)
		}
	})
}

// N-2: that is done at most 3 times in 5 minutes.
func TestRestartBudget(t *testing.T) {
	t.Parallel()
	a := agenttest.New()
	for range 10 {
		a.Then(agenttest.Die("boom"))
	}
	play(t, a, nil, func(t *testing.T, s *stage) {
		ask := func() error { _, err := s.submit("go", nil).Wait(t.Context()); return err }
		for i := range 4 {
			var exit *agent.ExitError
			if err := ask(); !errors.As(err, &exit) {
				t.Errorf("turn %d: %v", i, err)
			}
			time.Sleep(time.Minute)
		}
		var refused *agent.RestartError
		if err := ask(); !errors.As(err, &refused) {
			t.Errorf("fifth turn: %v", err)
		}
		s.notify("n1")
		s.idle()
		equal(t, "a notice meanwhile", s.acks.States("n1"), []agent.AckState{agent.AckUndelivered})
		if got := len(s.agent.Starts()); got != 4 {
			t.Errorf("%d starts, want 1 and 3 restarts", got)
		}
		time.Sleep(time.Until(refused.Until))
		var exit *agent.ExitError
		if err := ask(); !errors.As(err, &exit) {
			t.Errorf("after the window: %v", err)
		}
	})
}

// A notice whose turn kills the agent is tried once more, with a new agent.
func TestDeathInATurnOffersTheNoticeAgain(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(agenttest.Die("boom"), agenttest.Say("fine")), nil, func(t *testing.T, s *stage) {
		s.notify("n1")
		s.idle()
		equal(t, "acks", s.acks.States("n1"), []agent.AckState{agent.AckWoken, agent.AckSeen})
		if got := s.events(agent.EventExited); len(got) != 1 {
			t.Errorf("the death was reported %d times", len(got))
		}
		if got := s.entries(agent.EntryAssistant); len(got) != 2 || got[0].Text != "I am about to" {
			t.Errorf("transcript: %+v", got)
		}
	})
}

// An agent that cannot be started is reported to whoever asked.
func TestFailedStartIsReported(t *testing.T) {
	t.Parallel()
	a := agenttest.New()
	a.OnStart = func(_ context.Context, life int, _ agent.StartOptions, sink agent.Sink) error {
		sink(agent.Progress{What: "initialize"})
		if life == 1 {
			return errors.New("no such command")
		}
		return nil
	}
	play(t, a, nil, func(t *testing.T, s *stage) {
		_, err := s.submit("go", s.term).Wait(t.Context())
		if err == nil || err.Error() != "start agent: no such command" {
			t.Errorf("%v", err)
		}
		equal(t, "published", s.term.Texts(), []string{"error: start agent: no such command"})
		if _, err := s.submit("again", nil).Wait(t.Context()); err != nil {
			t.Errorf("second start: %v", err)
		}
		if got := s.events(agent.EventStarting); len(got) < 3 || got[1].Text != "initialize" {
			t.Errorf("progress: %+v", got)
		}
	})
}

// N-22: what an agent does on its own account counts as busy until it has been
// quiet; no prompt is sent before.
func TestOutOfTurnActivityHoldsTurns(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(), nil, func(t *testing.T, s *stage) {
		s.submit("hello", s.term)
		s.idle()
		s.agent.Emit(agent.Text{Text: "By the way, "}) // Claude's autonomous turn
		s.notify("n1")
		for range 5 {
			time.Sleep(2 * time.Second)
			s.agent.Emit(agent.Text{Text: "more. "})
		}
		if s.Idle() || s.Status().State != "busy" {
			t.Errorf("idle, or state %q", s.Status().State)
		}
		time.Sleep(agent.DefaultQuiet - time.Nanosecond)
		synctest.Wait()
		if got := len(s.prompts()); got != 1 {
			t.Fatalf("%d prompts before it was quiet", got)
		}
		time.Sleep(time.Nanosecond)
		s.idle()
		if got := len(s.prompts()); got != 2 {
			t.Errorf("%d prompts after it was quiet", got)
		}
		said := s.entries(agent.EntryAssistant)
		if len(said) != 3 || said[1].Text != "By the way, more. more. more. more. more. " || said[1].Run != "" {
			t.Errorf("said: %+v", said)
		}
		equal(t, "published", s.term.Texts(), []string{"ok", "ok"}) // not what was said out of turn
	})
}

// Frames that are normal out of turn do not count as activity.
func TestHarmlessEventsDoNotHoldTurns(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(), nil, func(t *testing.T, s *stage) {
		s.submit("hello", nil)
		s.idle()
		s.agent.Emit(agent.Usage{ContextUsed: 5}, agent.Raw{Kind: "available_commands_update"}, agent.Progress{What: "x"})
		if !s.Idle() {
			t.Error("busy")
		}
	})
}

// An agent that never falls silent gets its prompt in the end: nothing waits
// for a turn that never comes.
func TestEndlessActivityDoesNotHoldTurnsForEver(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(), nil, func(t *testing.T, s *stage) {
		s.submit("hello", nil)
		s.idle()
		s.framed = func() { s.agent.Emit(agent.Activity{What: "at the worst moment"}) }
		s.notify("n1")
		began := time.Now()
		for time.Since(began) < 15*time.Minute && len(s.prompts()) < 2 {
			s.agent.Emit(agent.Activity{What: "thinking"})
			time.Sleep(time.Second)
		}
		took := time.Since(began)
		synctest.Wait() // the prompt comes before its acknowledgement
		if s.acks.Count(agent.AckSeen) != 1 || took > 11*time.Minute {
			t.Errorf("the notice still waits after %v", took)
		}
	})
}

// A person can cancel what the agent does on its own account.
func TestCancelOutOfTurn(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(), nil, func(t *testing.T, s *stage) {
		s.submit("hello", nil)
		s.idle()
		s.agent.Emit(agent.Activity{What: "thinking"})
		if !s.Cancel() {
			t.Error("there was nothing to cancel")
		}
		synctest.Wait()
		if s.agent.Cancels() != 1 {
			t.Errorf("%d requests", s.agent.Cancels())
		}
		s.idle()
	})
}

// N-7, W-261: NO_REPLY as code ends the turn, as if the model had replied so.
func TestEndTurnEndsTheTurn(t *testing.T) {
	t.Parallel()
	var session *agent.Session
	// This agent goes on after its tool call; the session cancels it.
	talker := func(turn *agenttest.Turn) (agent.Outcome, error) {
		turn.Emit(agent.ToolCall{ID: "t", Title: "run_code", Status: agent.ToolRunning})
		session.EndTurn()
		turn.Emit(agent.ToolCall{ID: "t", Status: agent.ToolCompleted})
		if !turn.Wait(time.Hour) {
			return agenttest.Aborted()
		}
		return agenttest.End()
	}
	// This one ends by itself.
	obedient := func(turn *agenttest.Turn) (agent.Outcome, error) {
		session.EndTurn()
		turn.Emit(agent.Text{Text: "Done."})
		return agenttest.End()
	}
	// And this one shows no tool calls.
	hidden := func(turn *agenttest.Turn) (agent.Outcome, error) {
		session.EndTurn()
		if !turn.Wait(time.Hour) {
			return agenttest.Aborted()
		}
		return agenttest.End()
	}
	play(t, agenttest.New(talker, obedient, hidden), nil, func(t *testing.T, s *stage) {
		session = s.Session
		for i, most := range []time.Duration{0, 0, 2 * time.Second} {
			began := time.Now()
			s.notify([]string{"n1", "n2", "n3"}[i])
			s.idle()
			if took := time.Since(began); took > most {
				t.Errorf("turn %d took %v", i, took)
			}
		}
		for _, id := range []string{"n1", "n2", "n3"} {
			equal(t, id, s.acks.States(id), []agent.AckState{agent.AckWoken, agent.AckSeen})
		}
		got := s.events(agent.EventReplySuppressed)
		if len(got) != 3 || got[0].Reason != "no_reply_code" {
			t.Errorf("updates: %+v", got)
		}
		if got := len(s.prompts()); got != 3 {
			t.Errorf("%d prompts: a turn that the model ended is not repeated", got)
		}
	})
}

// N-24: an offer to the running turn is part of it only by the agent's word.
func TestSteering(t *testing.T) {
	t.Parallel()
	answer := agent.SteerInjected
	a := agenttest.New(agenttest.Slow(time.Minute, "with it"), agenttest.Slow(time.Minute, "x"), agenttest.Say("later"))
	a.Info.Steering = true
	var offered []string
	a.OnSteer = func(_ context.Context, p agent.Prompt) (agent.SteerOutcome, error) {
		offered = append(offered, p.Text())
		return answer, nil
	}
	play(t, a, &agent.Options{MidTurn: true}, func(t *testing.T, s *stage) {
		s.submit("go", nil)
		synctest.Wait()
		s.notify("n1")
		synctest.Wait()
		equal(t, "injected", s.acks.States("n1"), []agent.AckState{agent.AckWoken})
		s.idle()
		equal(t, "after", s.acks.States("n1"), []agent.AckState{agent.AckWoken, agent.AckSeen})
		if got := len(s.prompts()); got != 1 {
			t.Errorf("%d prompts", got)
		}
		answer = agent.SteerNeedsTurn
		s.submit("go", nil)
		synctest.Wait()
		s.notify("n2")
		synctest.Wait()
		equal(t, "not injected", s.acks.States("n2"), nil)
		s.idle()
		equal(t, "last prompt", s.prompts()[2:], []string{"<n2 ADDED n2>"})
		equal(t, "offers", offered, []string{"<n1 ADDED n1> aside", "<n2 ADDED n2> aside"}) // the turn is somebody else's
	})
}

// Steering is opt-in.
func TestNoSteeringUnlessWanted(t *testing.T) {
	t.Parallel()
	a := agenttest.New(agenttest.Slow(time.Minute, "x"))
	a.Info.Steering = true
	a.OnSteer = func(context.Context, agent.Prompt) (agent.SteerOutcome, error) {
		t.Error("steered")
		return agent.SteerInjected, nil
	}
	play(t, a, nil, func(t *testing.T, s *stage) {
		s.submit("go", nil)
		synctest.Wait()
		s.notify("n1")
		s.idle()
		if got := len(s.prompts()); got != 2 {
			t.Errorf("%d prompts", got)
		}
	})
}

// N-24: the mid-turn request of Qwen is answered, always; what it takes is part
// of the turn once it is written.
func TestDrain(t *testing.T) {
	t.Parallel()
	var got []string
	drain := func(err error) agenttest.Handler {
		return func(turn *agenttest.Turn) (agent.Outcome, error) {
			turn.Wait(time.Minute)
			got = append(got, turn.Drain(err).Text())
			got = append(got, turn.Drain(err).Text())
			turn.Wait(time.Minute)
			return agenttest.End()
		}
	}
	run := func(midTurn bool, err error, want []string, prompts int) {
		t.Helper()
		got = nil
		play(t, agenttest.New(drain(err)), &agent.Options{MidTurn: midTurn}, func(t *testing.T, s *stage) {
			s.submit("go", nil)
			synctest.Wait()
			s.notify("n1")
			s.idle()
			equal(t, "drained", got, want)
			equal(t, "acks", s.acks.States("n1"), []agent.AckState{agent.AckWoken, agent.AckSeen})
			if n := len(s.prompts()); n != prompts {
				t.Errorf("%d prompts, want %d", n, prompts)
			}
		})
	}
	run(true, nil, []string{"<n1 ADDED n1> aside", ""}, 1)
	run(true, errors.New("broken pipe"), []string{"<n1 ADDED n1> aside", ""}, 2)
	run(false, nil, []string{"", ""}, 2)
}

// N-19: a reset starts a new conversation and keeps what waits.
func TestReset(t *testing.T) {
	t.Parallel()
	a := agenttest.New(agenttest.Say("one"), agenttest.Slow(time.Hour, "never"), agenttest.Say("fresh"))
	a.Info.Conversation = "c-1"
	play(t, a, nil, func(t *testing.T, s *stage) {
		s.submit("hello", nil)
		s.idle()
		s.notify("n1")
		synctest.Wait()
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.idle()
		starts := s.agent.Starts()
		if len(starts) != 2 || starts[1].Resume != "" {
			t.Errorf("starts: %+v", starts)
		}
		equal(t, "acks", s.acks.States("n1"), []agent.AckState{agent.AckWoken, agent.AckSeen})
		if err := s.Reset(t.Context()); err != nil { // while idle, and with a busy agent
			t.Fatal(err)
		}
	})
}

// A reset while the agent starts comes before the run that waits for it.
func TestResetDuringTheStart(t *testing.T) {
	t.Parallel()
	lives := 0
	a := agenttest.New()
	a.OnStart = func(context.Context, int, agent.StartOptions, agent.Sink) error {
		lives++
		time.Sleep(20 * time.Second)
		return nil
	}
	a.Then(func(*agenttest.Turn) (agent.Outcome, error) {
		if lives != 2 {
			t.Errorf("the prompt went to life %d", lives)
		}
		return agenttest.End()
	})
	play(t, a, nil, func(t *testing.T, s *stage) {
		s.submit("hello", nil)
		time.Sleep(time.Second)
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.idle()
		equal(t, "prompts", s.prompts(), []string{"hello"})
	})
}

// The word of an agent that is gone belongs to nobody's turn.
func TestLateEventsOfADeadAgent(t *testing.T) {
	t.Parallel()
	var dead agent.Sink
	a := agenttest.New(agenttest.Die("boom"), func(turn *agenttest.Turn) (agent.Outcome, error) {
		dead(agent.Text{Text: "from the grave "})
		dead(agent.Exited{Err: &agent.ExitError{Err: errors.New("late")}})
		turn.Emit(agent.Text{Text: "alive"})
		return agenttest.End()
	})
	a.OnStart = func(_ context.Context, life int, _ agent.StartOptions, sink agent.Sink) error {
		if life == 1 {
			dead = sink
		}
		return nil
	}
	play(t, a, nil, func(t *testing.T, s *stage) {
		s.notify("n1")
		s.idle()
		r, err := s.submit("still there?", nil).Wait(t.Context())
		if err != nil || r.Text != "ok" || len(s.agent.Starts()) != 2 {
			t.Errorf("%+v, %v, %d starts", r, err, len(s.agent.Starts()))
		}
		said := s.entries(agent.EntryAssistant)
		if len(said) != 3 || said[1].Text != "alive" {
			t.Errorf("said: %+v", said)
		}
	})
}

// Activity between the claim and the prompt gives the claim back: no prompt is
// sent to an agent that is at work.
func TestActivityBeforeThePrompt(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(), nil, func(t *testing.T, s *stage) {
		s.submit("hello", nil)
		s.idle()
		once := true
		s.framed = func() {
			if once {
				once = false
				s.agent.Emit(agent.Activity{What: "own account"})
			}
		}
		began := time.Now()
		s.notify("n1")
		s.idle()
		if took := time.Since(began); took != agent.DefaultQuiet {
			t.Errorf("the prompt was sent after %v", took)
		}
		if starts := s.events(agent.EventRunStarted); len(starts) != 2 {
			t.Errorf("%d runs", len(starts))
		}
		equal(t, "acks", s.acks.States("n1"), []agent.AckState{agent.AckWoken, agent.AckSeen})
	})
}

// A turn has a time limit.
func TestTurnTime(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(agenttest.Slow(100*time.Hour, "never")), &agent.Options{TurnTime: time.Hour}, func(t *testing.T, s *stage) {
		began := time.Now()
		if _, err := s.submit("go", nil).Wait(t.Context()); err == nil {
			t.Error("no error")
		}
		if took := time.Since(began); took != time.Hour {
			t.Errorf("it took %v", took)
		}
	})
}

// Warm starts the agent before anybody asks, and no more.
func TestWarm(t *testing.T) {
	t.Parallel()
	pull := func(context.Context, bool) []agent.Waiting {
		t.Error("pulled although no run is due")
		return nil
	}
	play(t, agenttest.New(), &agent.Options{Warm: true, Pull: pull}, func(t *testing.T, s *stage) {
		s.idle()
		if len(s.agent.Starts()) != 1 || len(s.prompts()) != 0 {
			t.Errorf("%d starts, prompts %q", len(s.agent.Starts()), s.prompts())
		}
	})
}
