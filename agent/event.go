package agent

import (
	"context"
	"maps"
	"slices"
	"time"
)

// maxTools bounds the tool calls that are followed at once. An agent that never
// ends its calls has the rest shown without their earlier fields.
const maxTools = 512

// event takes what the agent of life n does. It is called by the engine's
// goroutines and returns quickly.
func (s *Session) event(ctx context.Context, n int, ev Event) {
	switch ev := ev.(type) {
	case Exited:
		s.exited(ctx, n, ev.Err)
		return
	case Drain:
		s.drain(n, ev)
		return
	case Permission:
		s.permission(ctx, n, ev)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n != s.engine.count || s.state == closed {
		return // the word of an agent that is gone
	}
	r := s.turnOf(ev)
	u := Update{Stream: StreamAgent, Run: runID(r), Aside: r == nil}
	switch ev := ev.(type) {
	case Text:
		s.say(r, ev)
		u.Event, u.Text, u.message = EventText, ev.Text, s.messages
	case Thought:
		u.Event, u.Text = EventThought, ev.Text
	case ToolCall:
		u = s.toolCall(r, ev, u)
	case Plan:
		u.Event, u.Plan = EventPlan, ev.Entries
	case Usage:
		if r != nil {
			r.usage = &ev
			return // published once, with the end of the run
		}
		u.Event, u.Usage = EventUsage, &ev
	case Raw:
		s.transcript.add(Entry{Kind: EntryUnknown, Run: u.Run, Title: ev.Kind, Input: ev.JSON})
		u.Event, u.Kind, u.Input = EventUnknown, ev.Kind, cutRaw(ev.JSON)
	case Progress:
		u.Event, u.Text, u.Aside = EventStarting, ev.What, false
	case Activity:
		u.Event, u.Text = EventBusy, ev.What
	default:
		return
	}
	s.publish(u)
}

// turnOf returns the run that an event belongs to, nil for none. It takes note
// of the proof that a turn began, and of activity out of turn.
func (s *Session) turnOf(ev Event) *run {
	working := false
	switch ev.(type) {
	case Text, Thought, ToolCall, Plan, Permission, Activity:
		working = true
	}
	r := s.active
	_, screen := ev.(Screen)
	if r != nil && r.calling {
		if working && !r.proven {
			r.proven, r.wokenDue = true, true
			s.ring()
		}
		return r
	}
	if working || screen {
		if s.busy.touch(time.Now()) {
			s.publish(Update{Stream: StreamWaiting, Event: EventBusy})
		}
		s.ring()
	}
	return nil
}

// say gathers text: the reply of a run, or what is said out of turn.
func (s *Session) say(r *run, t Text) {
	to := s.reply(r)
	before := to.ends
	ended := to.add(t)
	if to.ends != before {
		s.recordText(r, ended)
	}
}

func (s *Session) reply(r *run) *reply {
	if r == nil {
		return &s.busy.text
	}
	return &r.text
}

// recordText records a message that has ended, unless nothing was said in it.
func (s *Session) recordText(r *run, text string) {
	s.feed.recorded(s.messages)
	s.messages++
	if text != "" {
		s.transcript.add(Entry{Kind: EntryAssistant, Run: runID(r), Text: text})
	}
}

// endText closes the message that is being said.
func (s *Session) endText(r *run) { s.recordText(r, s.reply(r).end()) }

// endAside ends the agent's activity out of turn. What it said is recorded and
// shown, and published nowhere: nobody asked.
func (s *Session) endAside() {
	if s.busy.active() {
		s.endText(nil)
		s.publish(Update{Stream: StreamWaiting, Event: EventQuiet})
	}
	s.busy = busy{}
}

// toolCall merges an event into what is known of its call. Whatever was said
// before a tool call is a message of its own.
func (s *Session) toolCall(r *run, ev ToolCall, u Update) Update {
	call, known := s.tools[ev.ID]
	if !known {
		s.endText(r)
	}
	call = merge(call, ev)
	switch {
	case call.Status.Done():
		delete(s.tools, ev.ID)
		s.recordTool(u.Run, call)
		if r != nil && !r.endBy.IsZero() {
			r.endBy = time.Now() // the call that ended the turn has its answer
			s.ring()
		}
	case known || len(s.tools) < maxTools:
		s.tools[ev.ID] = call
	}
	u.Event, u.ID, u.Text, u.Kind, u.Status = EventTool, call.ID, call.Title, call.Kind, string(call.Status)
	u.Input, u.Output = cutRaw(ev.Input), cutRaw(ev.Output)
	return u
}

func (s *Session) recordTool(run string, call ToolCall) {
	s.transcript.add(Entry{
		Kind: EntryTool, Run: run, ID: call.ID, Title: call.Title, Status: string(call.Status),
		Text: call.Kind, Input: call.Input, Output: call.Output,
	})
}

// endTools records the calls that the agent left open.
func (s *Session) endTools(run string) {
	for _, id := range slices.Sorted(maps.Keys(s.tools)) {
		s.recordTool(run, s.tools[id])
	}
	clear(s.tools)
}

func merge(old, ev ToolCall) ToolCall {
	old.ID = ev.ID
	if ev.Title != "" {
		old.Title = ev.Title
	}
	if ev.Kind != "" {
		old.Kind = ev.Kind
	}
	if ev.Status != "" {
		old.Status = ev.Status
	}
	if ev.Input != nil {
		old.Input = ev.Input
	}
	if ev.Output != nil {
		old.Output = ev.Output
	}
	return old
}

func runID(r *run) string {
	if r == nil {
		return ""
	}
	return r.id
}
