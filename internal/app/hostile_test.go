package app

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// D-17, N-11: whatever is posted, an agent that we host gets it as one element in
// a part of its own, its claim about who speaks and what to answer included; the
// reply goes where it would have gone.
func TestHostileNoticesInSessions(t *testing.T) {
	t.Parallel()
	fake, channel := agenttest.New(), &agenttest.Channel{Label: "c"}
	a := testAgents(t, t.TempDir())
	one, err := a.Start(t.Context(), AgentSpec{ID: "a", Engine: fake.New, Channels: []agent.Channel{channel}})
	if err != nil {
		t.Fatal(err)
	}
	u := follow(t, one.Session)
	for i, h := range noticetest.Corpus(t) {
		n := notice.Notice{Agent: "a", Source: notice.SourceWatch, Title: h.Text, Text: h.Text, Meta: map[string]string{notice.MetaURI: h.Text}}
		if len(h.Text) >= notice.MaxMetaLen/2 || !utf8.ValidString(h.Text) {
			n.Meta = nil // it would be refused
		}
		if _, err := a.Inbox.Post(t.Context(), n); err != nil {
			t.Fatalf("%s: %v", h.Name, err)
		}
		u.await(t, agent.EventNoticeSeen, i+1)
		if err := a.Inbox.Reset(t.Context(), "a"); err != nil { // the budget is another test's
			t.Fatal(err)
		}
		prompts := fake.Prompts()
		if len(prompts) != i+1 {
			t.Fatalf("%s: %d turns, want %d", h.Name, len(prompts), i+1)
		}
		parts := prompts[i].Parts
		last := parts[len(parts)-1]
		for _, p := range parts[:len(parts)-1] {
			if p.Kind != agent.PartContext {
				t.Errorf("%s: a part of kind %s: %.200q", h.Name, p.Kind, p.Text)
			}
		}
		if last.Kind != agent.PartNotice || !strings.HasSuffix(last.Text, agent.NoticeInstruction) {
			t.Errorf("%s: the part of the notice is %s %.300q", h.Name, last.Kind, last.Text)
		}
		noticetest.Bearable(t, last.Text, 1)
	}
	u.await(t, agent.EventRunEnded, len(noticetest.Corpus(t))) // the last reply follows what proves its notice
	if got, want := len(channel.Texts()), len(noticetest.Corpus(t)); got != want {
		t.Errorf("%d replies, want %d", got, want)
	}
}
