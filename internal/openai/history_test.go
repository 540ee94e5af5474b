package openai

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
)

func said(text string) []agent.Part { return []agent.Part{{Kind: agent.PartUser, Text: text}} }

// outline names the messages, with the beginning of their texts.
func outline(h *history) []string {
	var out []string
	for _, m := range h.messages {
		text := m.text + m.part.Text
		out = append(out, fmt.Sprintf("%d %s %.12s%s", m.turn, [...]string{"user", "model", "tool"}[m.role], text, strings.Repeat(" call", len(m.calls))))
	}
	return out
}

// N-3: the oldest tool results go first, then whole turns; the newest round and
// the running turn stay.
func TestTrim(t *testing.T) {
	t.Parallel()
	full := func() *history {
		h := &history{system: "system"}
		for turn := 1; turn <= 3; turn++ {
			h.ask(turn, said(fmt.Sprintf("question %d", turn)))
			for round := range 2 {
				ids := h.answer(turn, "", []call{{name: "f", args: "{}"}})
				h.result(turn, ids[0], fmt.Sprintf("result %d%d %s", turn, round, strings.Repeat("x", 1000)))
			}
			if turn < 3 {
				h.answer(turn, fmt.Sprintf("answer %d", turn), nil)
			}
		}
		return h
	}
	all := outline(full())
	size := full().size()
	without := func(cut ...string) []string {
		out := append([]string(nil), all...)
		for i := range out {
			for _, c := range cut {
				if strings.Contains(out[i], "result "+c) {
					out[i] = out[i][:strings.Index(out[i], "result")] + "[result of 1"
				}
			}
		}
		return out
	}
	for _, tc := range []struct {
		name   string
		budget int
		want   []string
	}{
		{"fits", size, all},
		{"one result", size - 1, without("10")},
		{"two results", size - 1000, without("10", "11")},
		{"all but the newest", size - 4800, without("10", "11", "20", "21", "30")},
		{"a turn", size - 4900, without("10", "11", "20", "21", "30")[6:]},
		{"everything that may go", 1, without("10", "11", "20", "21", "30")[12:]},
	} {
		h := full()
		h.budget = tc.budget
		h.trim()
		if d := cmp.Diff(tc.want, outline(h)); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
		if tc.budget > 1 && h.size() > tc.budget {
			t.Errorf("%s: %d bytes, budget %d", tc.name, h.size(), tc.budget)
		}
		h.trim()
		if d := cmp.Diff(tc.want, outline(h)); d != "" {
			t.Errorf("%s: trimming again changes it: %s", tc.name, d)
		}
	}
}

// N-22: what will be offered again does not stay.
func TestUndelivered(t *testing.T) {
	t.Parallel()
	parts := []agent.Part{{Kind: agent.PartContext, Text: "note"}, {Kind: agent.PartUser, Text: "user"}, {Kind: agent.PartNotice, Text: "notice"}}
	h := &history{}
	h.ask(1, said("before"))
	h.answer(1, "answer", nil)
	h.ask(2, parts)
	ids := h.answer(2, "let me see", []call{{name: "f", args: "{}"}, {name: "g", args: "{}"}})
	h.result(2, ids[0], "result")
	h.undelivered(2)
	want := []string{"1 user before", "1 model answer", "2 user user", "2 model let me see call call", "2 tool The call was", "2 tool result"}
	got := outline(h)
	if len(got) == len(want) && strings.Contains(got[4], "result") {
		got[4], got[5] = got[5], got[4]
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	h.ask(3, []agent.Part{{Kind: agent.PartNotice, Text: "only"}})
	h.answer(3, "half", nil)
	h.undelivered(3)
	if d := cmp.Diff(len(want), len(h.messages)); d != "" {
		t.Error(outline(h))
	}
}

func TestToolNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70)
	var tools []agent.Tool
	for _, n := range []string{"fine", "a.b/c", "a_b_c", "", long, long} {
		tools = append(tools, agent.Tool{Name: n})
	}
	var got []string
	for _, p := range newToolbox(tools).params {
		got = append(got, p.OfFunction.Function.Name)
	}
	want := []string{"fine", "a_b_c", "a_b_c_2", "tool", long[:64], long[:62] + "_2"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// N-19: what an earlier life said comes before the first turn, and is the first
// to go when there is no room.
func TestHistoryOfEarlierLives(t *testing.T) {
	t.Parallel()
	h := &history{budget: 1000}
	h.recall([]agent.Past{
		{Parts: said(strings.Repeat("x", 900)), Reply: "old answer"},
		{Parts: append([]agent.Part{{Kind: agent.PartNotice, Text: "<watch-event>"}}, said("who?")...), Reply: "me"},
		{Parts: said("silence")},
	})
	h.ask(1, said("and now?"))
	want := []string{"-3 user xxxxxxxxxxxx", "-3 model old answer", "-2 user <watch-event", "-2 user who?", "-2 model me", "-1 user silence", "1 user and now?"}
	if d := cmp.Diff(want, outline(h)); d != "" {
		t.Errorf("history (-want +got):\n%s", d)
	}
	h.trim()
	if d := cmp.Diff(want[2:], outline(h)); d != "" {
		t.Errorf("trimmed (-want +got):\n%s", d)
	}
	if n := len(h.render()); n != 3 { // messages of the user in a row are one
		t.Errorf("%d messages", n)
	}
}
