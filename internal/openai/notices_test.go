package openai

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/scripted"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// D-17: whatever a notice says, it reaches the model as the text of one message of
// the role user, as it was framed; it makes no message of another role and no call.
func TestHostileNotices(t *testing.T) {
	t.Parallel()
	calls := &tool{}
	e, model, _ := with(t, func(scripted.Turn) scripted.Reply { return scripted.Reply{Text: "NO_REPLY"} }, nil, calls.tool("danger"))
	var want []string
	for _, h := range noticetest.Corpus(t) {
		framed := notice.Frame(notice.Notice{Source: notice.SourceFeed, Title: h.Text, Text: h.Text})
		noticetest.Bearable(t, framed, 1)
		if _, err := e.Turn(t.Context(), agent.Prompt{Parts: []agent.Part{{Kind: agent.PartNotice, Text: framed}}}); err != nil {
			t.Fatalf("%s: %v", h.Name, err)
		}
		want = append(want, framed)
		records := model.Records()
		roles, last := conversation(t, records[len(records)-1].Body)
		if last != framed {
			t.Errorf("%s: the model got %.300q, want %.300q", h.Name, last, framed)
		}
		if expected := strings.TrimSuffix(strings.Repeat("user assistant ", len(want)), " assistant "); roles != expected {
			t.Errorf("%s: roles %q, want %q", h.Name, roles, expected)
		}
	}
	if n := len(model.Records()); n != len(want) {
		t.Errorf("%d requests for %d turns", n, len(want))
	}
	if seen := calls.seen(); len(seen) != 0 {
		t.Errorf("calls %q", seen)
	}
}

// conversation returns the roles of a request, the standing instruction aside,
// and the last text.
func conversation(t *testing.T, body []byte) (roles, last string) {
	t.Helper()
	var q struct {
		Messages []struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range q.Messages {
		if m.Role != "system" {
			all = append(all, m.Role)
		}
		last = m.Content
	}
	return strings.Join(all, " "), last
}
