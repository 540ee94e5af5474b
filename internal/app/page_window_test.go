package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
)

// Pieces of text become one, later news of a call take the place of earlier ones, and
// everything else stays as it is, in its order.
func TestWindow(t *testing.T) {
	t.Parallel()
	var w window
	text := func(run, s string) agent.Update { return agent.Update{Event: agent.EventText, Run: run, Text: s} }
	tool := func(id, title, status string) agent.Update {
		return agent.Update{Event: agent.EventTool, Run: "r", ID: id, Text: title, Status: status}
	}
	long := strings.Repeat("x", windowText-1)
	started := tool("t", "look", "pending")
	started.Input = []byte(`1`)
	ended := tool("t", "look at it", "completed")
	ended.Output = []byte(`2`)
	for _, u := range []agent.Update{
		{Event: agent.EventRunStarted, Run: "r"},
		text("r", "a"), text("r", "b"),
		{Event: agent.EventThought, Run: "r", Text: "h"},
		{Event: agent.EventThought, Run: "r", Text: "m"},
		started, text("r", "c"), tool("u", "other", "pending"), ended,
		{Event: agent.EventPlan, Run: "r", Plan: []agent.PlanEntry{{Content: "1"}}},
		{Event: agent.EventPlan, Run: "r", Plan: []agent.PlanEntry{{Content: "2"}}},
		text("r", "d"), text("", "aside"),
		{Event: agent.EventPermission, Run: "r", ID: "q"},
		text("", "e"), text("", long), text("", "f"),
		{Event: agent.EventRunEnded, Run: "r"},
	} {
		w.add(u)
	}
	var got []string
	for _, u := range w.take(time.Now()) {
		line := u.Event + " " + u.Run
		switch {
		case u.Event == agent.EventPlan:
			line += " " + u.Plan[0].Content
		case u.Event == agent.EventTool:
			line += fmt.Sprintf(" %s %s %s in %s out %s", u.ID, u.Text, u.Status, u.Input, u.Output)
		case len(u.Text) > 100:
			line += fmt.Sprint(" ", len(u.Text))
		default:
			line += " " + u.Text
		}
		got = append(got, line)
	}
	want := []string{
		"run.started r ", "text r ab", "thought r hm", "tool r t look at it completed in 1 out 2", "text r c", "tool r u other pending in  out ",
		"plan r 2", "text r d", "text  aside", "permission.asked r ", fmt.Sprint("text  ", windowText), "text  f", "run.ended r ",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if left := w.take(time.Now()); left != nil {
		t.Errorf("left: %v", left)
	}
}

// 10,000 pieces of text in a minute cost at most a frame each 30 ms, and a flood does
// not wait for the end of the window.
func TestWindowsAreFew(t *testing.T) {
	t.Parallel()
	var w window
	at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	due, frames, said := time.Time{}, 0, 0
	flush := func() {
		for _, u := range w.take(at) {
			frames++
			said += len(u.Text)
		}
		due = time.Time{}
	}
	const pieces = 10_000
	for range pieces {
		at = at.Add(time.Minute / pieces)
		if !due.IsZero() && !at.Before(due) {
			flush()
		}
		w.add(agent.Update{Event: agent.EventText, Run: "r", Text: "x"})
		switch wait := w.wait(at); {
		case wait == 0:
			flush()
		case due.IsZero():
			due = at.Add(wait)
		}
	}
	flush()
	if most := int(time.Minute / textWindow); said != pieces || frames > most+1 || frames < most/2 {
		t.Errorf("%d of %d pieces in %d frames", said, pieces, frames)
	}
	w.last = at
	for range windowUpdates - 1 {
		w.add(agent.Update{Event: agent.EventPermission})
	}
	if w.wait(at) == 0 {
		t.Error("it ends early without a flood")
	}
	w.add(agent.Update{Event: agent.EventPermission})
	if w.wait(at) != 0 {
		t.Error("a flood waits")
	}
}
