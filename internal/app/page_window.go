package app

import (
	"slices"
	"time"

	"github.com/ossicle/ossicle/agent"
)

// Bounds of a window.
const (
	windowUpdates = 256      // beyond them it ends early
	windowText    = 64 << 10 // bytes of one update
)

// window gathers updates for a moment, so that many cost few frames. The first
// after a pause leaves at once.
type window struct {
	updates []agent.Update
	last    time.Time // it was emptied
}

// add takes an update in. Pieces of text become one, later news of a tool call
// take the place of earlier ones, and a plan that of the one before.
func (w *window) add(u agent.Update) {
	last := len(w.updates) - 1
	switch u.Event {
	case agent.EventText, agent.EventThought:
		if last >= 0 {
			if l := &w.updates[last]; l.Event == u.Event && l.Run == u.Run && l.Aside == u.Aside && len(l.Text)+len(u.Text) <= windowText {
				l.Text += u.Text
				l.Time = u.Time
				return
			}
		}
	case agent.EventTool:
		if i := w.find(u.Event, u.ID); i >= 0 {
			t := &w.updates[i]
			t.Time, t.Text, t.Kind, t.Status = u.Time, u.Text, u.Kind, u.Status
			if u.Input != nil {
				t.Input = u.Input
			}
			if u.Output != nil {
				t.Output = u.Output
			}
			return
		}
	case agent.EventPlan:
		if i := w.find(u.Event, ""); i >= 0 && w.updates[i].Run == u.Run {
			w.updates[i] = u
			return
		}
	}
	w.updates = append(w.updates, u)
}

func (w *window) find(event, id string) int {
	return slices.IndexFunc(w.updates, func(u agent.Update) bool { return u.Event == event && (id == "" || u.ID == id) })
}

// wait is how long the window stays open; 0 when it is to be emptied now.
func (w *window) wait(now time.Time) time.Duration {
	if len(w.updates) >= windowUpdates {
		return 0
	}
	return max(0, w.last.Add(textWindow).Sub(now))
}

// take empties the window.
func (w *window) take(now time.Time) []agent.Update {
	taken := w.updates
	w.updates, w.last = nil, now
	return taken
}
