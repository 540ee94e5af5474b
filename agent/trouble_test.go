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

// troubled holds a session to what it says is wrong with it.
func (s *stage) troubled(kind agent.TroubleKind, parts ...string) {
	s.t.Helper()
	got := s.Status().Trouble
	if got == nil || got.Kind != kind {
		s.t.Errorf("trouble %+v, want %s", got, kind)
		return
	}
	contains(s.t, got.Text, parts...)
	if len(got.Text) > agent.MaxTrouble || strings.ContainsAny(got.Text, "\n\r\x1b") {
		s.t.Errorf("%d bytes: %q", len(got.Text), got.Text)
	}
}

func (s *stage) well() {
	s.t.Helper()
	if got := s.Status().Trouble; got != nil {
		s.t.Errorf("trouble %+v, want none", got)
	}
}

func (s *stage) say(text string) {
	s.t.Helper()
	_, _ = s.submit(text, nil).Wait(s.t.Context())
	s.idle()
}

// A turn that failed is told until one completes, or a person has moved on; what
// must not leave the session is not in it.
func TestTroubleOfATurn(t *testing.T) {
	t.Parallel()
	secret := errors.New("run turn: no such model\nfor hunter2" + strings.Repeat(" and so on", 100))
	a := agenttest.New(agenttest.Fail(secret), agenttest.Slow(time.Minute, "ok"), agenttest.Fail(secret), agenttest.Slow(time.Hour, "ok"), agenttest.Fail(secret))
	scrub := func(s string) string { return strings.ReplaceAll(s, "hunter2", "[redacted]") }
	play(t, a, &agent.Options{Scrub: scrub}, func(t *testing.T, s *stage) {
		s.well()
		s.say("one")
		s.troubled(agent.TroubleFailed, "The last turn failed: ", "no such model for [redacted]", "Say it again")
		since := s.Status().Trouble.Since
		if !since.Equal(time.Now()) {
			t.Errorf("since %v, it is %v", since, time.Now())
		}
		ticket := s.submit("two", nil)
		time.Sleep(30 * time.Second)
		s.troubled(agent.TroubleFailed)
		if st := s.Status(); st.State != "running" || !st.Trouble.Since.Equal(since) || time.Since(st.Since) != 30*time.Second {
			t.Errorf("%+v, %+v", st, st.Trouble)
		}
		if _, err := ticket.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		s.idle()
		s.well()

		s.say("three")
		s.troubled(agent.TroubleFailed)
		s.submit("four", nil)
		synctest.Wait()
		s.Cancel()
		s.idle()
		s.well()

		s.say("five")
		s.troubled(agent.TroubleFailed)
		if err := s.Reset(t.Context()); err != nil {
			t.Error(err)
		}
		s.well()
		causes := []agent.Cause{}
		for _, e := range s.entries(agent.EntryRunEnd) {
			causes = append(causes, e.Cause)
		}
		equal(t, "causes", causes, []agent.Cause{agent.CauseFailed, "", agent.CauseFailed, agent.CauseCancelled, agent.CauseFailed})
	})
}

// An agent that has died is told, in a turn or out of it, until another one lives.
func TestTroubleOfADeadAgent(t *testing.T) {
	t.Parallel()
	a := agenttest.New(agenttest.Die("stderr is no part of it"), agenttest.Say("ok"))
	play(t, a, nil, func(t *testing.T, s *stage) {
		s.say("one")
		s.troubled(agent.TroubleExited, "The agent ended", "Your next message starts it again.")
		if text := s.Status().Trouble.Text; strings.Contains(text, "stderr") || strings.Contains(text, "run agent") {
			t.Errorf("%q", text)
		}
		if ends := s.entries(agent.EntryRunEnd); len(ends) != 1 || ends[0].Cause != agent.CauseExited {
			t.Errorf("%+v", ends)
		}
		s.say("two")
		s.well()
		s.agent.Die("")
		s.idle()
		s.troubled(agent.TroubleExited)
		if err := s.Reset(t.Context()); err != nil {
			t.Error(err)
		}
		s.well()
	})
}

// An agent that cannot be started is told with its cause, before the first turn where
// that is known; a reset does not mend it, a start does.
func TestTroubleOfAnAgentThatIsNotThere(t *testing.T) {
	t.Parallel()
	missing := errors.New("start /nosuch: no such file")
	a := agenttest.New()
	a.OnStart = func(_ context.Context, life int, _ agent.StartOptions, _ agent.Sink) error {
		if life <= 5 {
			return missing
		}
		return nil
	}
	play(t, a, &agent.Options{Missing: missing, Restarts: 3, RestartWindow: time.Hour}, func(t *testing.T, s *stage) {
		s.troubled(agent.TroubleUnavailable, "The agent could not be started: start /nosuch: no such file. ", "next message tries again")
		if got := s.entries(agent.EntryAgent); len(got) != 1 || got[0].Title != "unavailable" || got[0].Error != "start agent: start /nosuch: no such file" {
			t.Errorf("%+v", got)
		}
		s.say("one")
		s.troubled(agent.TroubleUnavailable, "could not be started: start /nosuch")
		if ends := s.entries(agent.EntryRunEnd); len(ends) != 1 || ends[0].Cause != agent.CauseUnavailable {
			t.Errorf("%+v", ends)
		}
		if err := s.Reset(t.Context()); err != nil {
			t.Error(err)
		}
		s.troubled(agent.TroubleUnavailable)
		for range 5 { // one start and three restarts
			s.say("again")
		}
		s.troubled(agent.TroubleUnavailable, "could not be started: it was restarted 3 times", "a reset")
		if err := s.Reset(t.Context()); err != nil {
			t.Error(err)
		}
		s.well() // it is allowed to start again
		s.say("two")
		s.well()
	})
}

// A turn that the death of the process cut off has no end in the transcript. Whoever
// opens the session next writes one, and tells of it until a turn completes.
func TestTroubleOfACutOffTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, agenttest.New(agenttest.Say("ok")), nil)
		began := time.Now()
		entries := []agent.Entry{
			{Time: began, Kind: agent.EntryRunStart, Run: "run-1", Inputs: []string{"in-1"}, Notices: []string{"n1"}},
			{Time: began.Add(time.Minute), Kind: agent.EntryTool, Run: "run-1", Title: "rm"},
		}
		if err := s.store.Append(t.Context(), "s1", entries...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := agent.FindLastTurn(entries).Trouble(); got == nil || got.Kind != agent.TroubleCutOff || !got.Since.Equal(began) {
			t.Errorf("while it does not run: %+v", got)
		}
		for range 2 { // as often as it is started
			s.start()
			s.troubled(agent.TroubleCutOff, "The last turn was cut off", "say it again")
			if since := s.Status().Trouble.Since; !since.Equal(began) {
				t.Errorf("since %v, want %v", since, began)
			}
			ends := s.entries(agent.EntryRunEnd)
			if len(ends) != 1 || ends[0].Run != "run-1" || ends[0].Cause != agent.CauseCutOff || ends[0].Delivered || len(ends[0].Inputs) != 1 || len(ends[0].Notices) != 1 {
				t.Errorf("%+v", ends)
			}
			s.end()
			s.open(nil)
			s.done = make(chan error, 1)
		}
		s.start()
		s.say("go on")
		s.well()
		s.end()
		all, err := s.store.List(t.Context(), "s1", agent.Query{})
		if err != nil || agent.FindLastTurn(all).Trouble() != nil {
			t.Errorf("%v, %+v", err, agent.FindLastTurn(all))
		}
	})
}

// What the last entries of a transcript tell of its last turn.
func TestFindLastTurn(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC)
	start := func(run string) agent.Entry { return agent.Entry{Time: at, Kind: agent.EntryRunStart, Run: run} }
	end := func(run string, cause agent.Cause, err string) agent.Entry {
		return agent.Entry{Time: at.Add(time.Minute), Kind: agent.EntryRunEnd, Run: run, Cause: cause, Error: err}
	}
	reset := agent.Entry{Kind: agent.EntryAgent, Title: "reset"}
	tool := agent.Entry{Kind: agent.EntryTool, Run: "b"}
	for name, c := range map[string]struct {
		tail []agent.Entry
		kind agent.TroubleKind
	}{
		"nothing":                   {nil, ""},
		"delivered":                 {[]agent.Entry{start("a"), end("a", "", "")}, ""},
		"cancelled":                 {[]agent.Entry{start("a"), end("a", agent.CauseCancelled, "x")}, ""},
		"failed":                    {[]agent.Entry{start("a"), end("a", agent.CauseFailed, "x")}, agent.TroubleFailed},
		"failed, of an older form":  {[]agent.Entry{end("a", "", "x")}, agent.TroubleFailed},
		"unavailable":               {[]agent.Entry{start("a"), end("a", agent.CauseUnavailable, "x")}, agent.TroubleFailed},
		"stopped":                   {[]agent.Entry{start("a"), end("a", agent.CauseStopped, "x")}, agent.TroubleCutOff},
		"cut off":                   {[]agent.Entry{end("a", "", ""), start("b"), tool}, agent.TroubleCutOff},
		"its start is further back": {[]agent.Entry{tool, tool}, agent.TroubleCutOff},
		"reset":                     {[]agent.Entry{start("a"), end("a", agent.CauseFailed, "x"), reset}, ""},
		"well since":                {[]agent.Entry{end("a", agent.CauseFailed, "x"), start("b"), end("b", "", "")}, ""},
		"late words":                {[]agent.Entry{start("b"), end("b", "", ""), tool}, ""},
	} {
		got := agent.FindLastTurn(c.tail).Trouble()
		if c.kind == "" && got != nil || c.kind != "" && (got == nil || got.Kind != c.kind) {
			t.Errorf("%s: %+v, want %q", name, got, c.kind)
		}
		if got != nil && strings.Contains(got.Text, "x.") {
			t.Errorf("%s: %q holds the error", name, got.Text)
		}
	}
}
