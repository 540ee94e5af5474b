package agent_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

// past is what the agent's last start could know of earlier turns.
func (s *stage) past() []agent.Past {
	s.t.Helper()
	starts := s.agent.Starts()
	past, err := starts[len(starts)-1].History(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return past
}

// N-19: a new life knows the turns of the earlier ones that completed: what was
// said and noticed, as data again, and the answers; not those that broke, nor
// what was before a reset.
func TestPastOfASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := agenttest.New(agenttest.Say("hello"), agenttest.Fail(errors.New("overloaded")), agenttest.Say("noted"), agenttest.Say("both"))
		s := newStage(t, fake, nil)
		s.start()
		s.submit("who are you?", s.term)
		s.idle()
		s.submit("this breaks", s.term)
		s.idle()
		s.notify("n1")
		s.idle()
		s.notify("n2")
		s.submit("and now?", s.term)
		s.idle()
		s.end()

		next := &stage{t: t, agent: fake, store: s.store, term: s.term, done: make(chan error, 1)}
		next.open(nil)
		next.start()
		next.submit("again", nil)
		next.idle()
		want := []agent.Past{
			{Parts: []agent.Part{{Kind: agent.PartUser, Text: "who are you?"}}, Reply: "hello"},
			{Parts: []agent.Part{{Kind: agent.PartNotice, Text: "<n1 ADDED n1>"}}, Reply: "noted"},
			{Parts: []agent.Part{{Kind: agent.PartNotice, Text: "<n2 ADDED n2> aside"}, {Kind: agent.PartUser, Text: "and now?"}}, Reply: "both"},
			{Parts: []agent.Part{{Kind: agent.PartUser, Text: "again"}}, Reply: "ok"},
		}
		if d := cmp.Diff(want, next.past()); d != "" {
			t.Errorf("past (-want +got):\n%s", d)
		}
		if err := next.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		next.submit("afresh", nil)
		next.idle()
		if d := cmp.Diff([]agent.Past{{Parts: []agent.Part{{Kind: agent.PartUser, Text: "afresh"}}, Reply: "ok"}}, next.past()); d != "" {
			t.Errorf("past after a reset (-want +got):\n%s", d)
		}
		next.end()
	})
}

// N-19: the past is bounded, the newest turns stay.
func TestPastIsBounded(t *testing.T) {
	t.Parallel()
	play(t, agenttest.New(), nil, func(t *testing.T, s *stage) {
		const each = 50 << 10
		for _, c := range []string{"a", "b", "c", "d"} {
			s.submit(strings.Repeat(c, each), nil)
			s.idle()
			time.Sleep(time.Second)
		}
		var got strings.Builder
		size := 0
		for _, p := range s.past() {
			got.WriteString(p.Parts[0].Text[:1])
			size += len(p.Parts[0].Text) + len(p.Reply)
		}
		if got.String() != "cd" || size > agent.MaxPast {
			t.Errorf("kept %q, %d bytes", got.String(), size)
		}
	})
}
