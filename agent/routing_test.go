package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

func channels(labels ...string) []*agenttest.Channel {
	var all []*agenttest.Channel
	for _, label := range labels {
		all = append(all, &agenttest.Channel{Label: label})
	}
	return all
}

// W-152, W-153, N-13: a run claims all inputs, and its reply goes to the most
// recent channel among them; every input learns how its run ended.
func TestReplyGoesToTheMostRecentChannel(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(agenttest.Slow(time.Minute, "first"), agenttest.Say("both")), nil, func(t *testing.T, s *stage) {
		c := channels("a", "b")
		s.submit("one", c[0])
		synctest.Wait()
		two := s.submit("two", c[0])
		three := s.submit("three", c[1])
		s.idle()
		equal(t, "channel a", c[0].Texts(), []string{"first"})
		equal(t, "channel b", c[1].Texts(), []string{"both"})
		r2, err2 := two.Wait(t.Context())
		r3, err3 := three.Wait(t.Context())
		if err2 != nil || err3 != nil || r2 != r3 || r2.Text != "both" || r2.Channel != "b" {
			t.Errorf("results %+v (%v) and %+v (%v)", r2, err2, r3, err3)
		}
	})
}

// W-155: first-in-first-out bookkeeping would answer the last question in the
// channel of the second one; claims do not drift.
func TestRoutingDoesNotDriftWhenInputsCoalesce(t *testing.T) {
	t.Parallel()
	a := agenttest.New(agenttest.Slow(time.Minute, "r0"), agenttest.Say("r123"), agenttest.Say("r4"), agenttest.Say("r5"))
	play(t, a, nil, func(t *testing.T, s *stage) {
		c := channels("zero", "one", "two", "three", "four", "five")
		s.submit("q0", c[0])
		synctest.Wait()
		s.submit("q1", c[1])
		s.submit("q2", c[2])
		s.submit("q3", c[3])
		s.idle()
		s.submit("q4", c[4])
		s.idle()
		s.submit("q5", c[5])
		s.idle()
		for i, want := range [][]string{{"r0"}, nil, nil, {"r123"}, {"r4"}, {"r5"}} {
			equal(t, "channel "+c[i].Label, c[i].Texts(), want)
		}
	})
}

// W-154, WA-33: notices go where the agent was last addressed, before that to
// the first configured channel, and without one nowhere.
func TestNoticeReplyRouting(t *testing.T) {
	t.Parallel()
	c := channels("#first", "#second", "#elsewhere", "#chatter")
	opts := &agent.Options{Channels: []agent.Channel{c[0], c[1]}}
	play(t, agenttest.New(agenttest.Say("r1"), agenttest.Say("r2"), agenttest.Say("r3"), agenttest.Say("r4"), agenttest.Say("r5"), agenttest.Say("r6"), agenttest.Say("r7")), opts, func(t *testing.T, s *stage) {
		s.notify("n1")
		s.idle()
		s.submit("hello", c[2])
		s.idle()
		s.notify("n2")
		s.idle()
		if _, err := s.Submit(agent.Input{Text: "others talk", Channel: c[3], Chatter: true}); err != nil {
			t.Fatal(err)
		}
		s.idle()
		s.notify("n3")
		s.idle()
		s.submit("over here now", c[1])
		s.idle()
		s.notify("n4")
		s.idle()
		equal(t, "#first", c[0].Texts(), []string{"r1"})
		equal(t, "#second", c[1].Texts(), []string{"r6", "r7"})
		equal(t, "#elsewhere", c[2].Texts(), []string{"r2", "r3", "r5"})
		equal(t, "#chatter", c[3].Texts(), []string{"r4"})
	})
	play(t, agenttest.New(agenttest.Say("to nobody")), nil, func(t *testing.T, s *stage) {
		s.notify("n1")
		s.idle()
		equal(t, "acks", s.acks.States("n1"), []agent.AckState{agent.AckWoken, agent.AckSeen})
		if got := s.events(agent.EventReply); len(got) != 1 || got[0].Channel != "" || got[0].Text != "to nobody" {
			t.Errorf("updates: %+v", got)
		}
	})
}

// A question is answered where it was asked, though others talk meanwhile (N-14).
func TestChatterDoesNotTakeTheAnswer(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(agenttest.Slow(time.Minute, "x"), agenttest.Say("answer")), nil, func(t *testing.T, s *stage) {
		c := channels("asked", "chatter")
		s.submit("go", nil)
		synctest.Wait()
		s.submit("question", c[0])
		if _, err := s.Submit(agent.Input{Text: "blah", Channel: c[1], Chatter: true}); err != nil {
			t.Fatal(err)
		}
		s.idle()
		equal(t, "asked", c[0].Texts(), []string{"answer"})
		equal(t, "chatter", c[1].Texts(), nil)
	})
}

// The answer is what the agent says last; what it says before a tool call is a
// message of its own, in the transcript.
func TestAnswerIsTheLastMessage(t *testing.T) {
	t.Parallel()
	talk := func(turn *agenttest.Turn) (agent.Outcome, error) {
		turn.Emit(
			agent.Text{Text: "I will "}, agent.Text{Text: "look."},
			agent.ToolCall{ID: "t1", Title: "run_code", Status: agent.ToolRunning, Input: []byte(`{"code":"1"}`)},
			agent.ToolCall{ID: "t1", Status: agent.ToolCompleted, Output: []byte(`"1"`)},
			agent.Text{Text: "It is ", Message: "m2"}, agent.Text{Text: "1.", Message: "m2"},
			agent.Usage{InputTokens: 10}, agent.Usage{InputTokens: 12},
			agent.Raw{Kind: "future_chunk", JSON: []byte(`{"sessionUpdate":"future_chunk","n":1915883588174806058}`)},
		)
		return agenttest.End()
	}
	play(t, agenttest.New(talk), nil, func(t *testing.T, s *stage) {
		s.submit("what is it?", s.term)
		s.idle()
		equal(t, "published", s.term.Texts(), []string{"It is 1."})
		var said []string
		for _, e := range s.entries(agent.EntryAssistant) {
			said = append(said, e.Text)
		}
		equal(t, "said", said, []string{"I will look.", "It is 1."})
		tools := s.entries(agent.EntryTool)
		if len(tools) != 1 || tools[0].Title != "run_code" || tools[0].Status != "completed" || string(tools[0].Input) != `{"code":"1"}` || string(tools[0].Output) != `"1"` {
			t.Errorf("tools: %+v", tools)
		}
		unknown := s.entries(agent.EntryUnknown) // N-21: kept raw
		if len(unknown) != 1 || unknown[0].Title != "future_chunk" || string(unknown[0].Input) != `{"sessionUpdate":"future_chunk","n":1915883588174806058}` {
			t.Errorf("unknown: %+v", unknown)
		}
		if usage := s.events(agent.EventUsage); len(usage) != 1 || usage[0].Usage.InputTokens != 12 {
			t.Errorf("usage: %+v", usage)
		}
	})
}

// What is said last in the prompt is what people said: the instruction of a
// notice must not be taken for theirs.
func TestNoticesComeBeforeInputs(t *testing.T) {
	t.Parallel()
	note := "vars: x"
	opts := &agent.Options{System: "be brief", Context: func() string { return note }}
	a := agenttest.New(agenttest.Slow(time.Minute, "x"))
	a.Info.System = false
	play(t, a, opts, func(t *testing.T, s *stage) {
		s.submit("q1", nil)
		synctest.Wait()
		s.submit("q2", nil)
		s.notify("n1")
		s.idle()
		s.submit("q3", nil)
		s.idle()
		note = "vars: x, y"
		s.submit("q4", nil)
		s.idle()
		equal(t, "prompts", s.prompts(), []string{
			"be brief\n\nvars: x\n\nq1", "<n1 ADDED n1> aside\n\nq2", "q3", "vars: x, y\n\nq4",
		})
		if got := s.entries(agent.EntryContext); len(got) != 3 {
			t.Errorf("context records: %+v", got)
		}
	})
}

// A reply is bounded, and says so.
func TestReplyIsBounded(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(agenttest.Say(strings.Repeat("é", agent.MaxReply))), nil, func(t *testing.T, s *stage) {
		r, err := s.submit("go", nil).Wait(t.Context())
		if err != nil || len(r.Text) > agent.MaxReply+100 || !strings.HasSuffix(r.Text, "é\n[cut: the reply was longer than 1 MiB]") {
			t.Errorf("%d bytes, %v", len(r.Text), err)
		}
	})
}

// A channel that fails does not hold up the session; the input learns of it.
func TestFailingChannel(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(), nil, func(t *testing.T, s *stage) {
		s.term.Err = errors.New("not connected")
		r, err := s.submit("hello", s.term).Wait(t.Context())
		if err != nil || r.Channel != "" || r.Text != "ok" {
			t.Errorf("%+v, %v", r, err)
		}
		if got := s.events(agent.EventReplyFailed); len(got) != 1 {
			t.Errorf("updates: %+v", got)
		}
	})
}

// stuck is a channel that takes nothing.
type stuck struct{}

func (stuck) Name() string                                     { return "stuck" }
func (stuck) Publish(ctx context.Context, _ agent.Reply) error { <-ctx.Done(); return ctx.Err() }

// A channel that hangs holds up the session for a bounded time, and intake not
// at all (N-17).
func TestStuckChannel(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(), nil, func(t *testing.T, s *stage) {
		began := time.Now()
		s.submit("hello", stuck{})
		synctest.Wait()
		s.notify("n1")
		if time.Since(began) != 0 {
			t.Error("intake waited")
		}
		s.idle()
		if took := time.Since(began); took != 2*agent.DefaultReplyTime {
			t.Errorf("it took %v", took)
		}
		equal(t, "acks", s.acks.States("n1"), []agent.AckState{agent.AckWoken, agent.AckSeen})
	})
}
