package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// maxQuestions bounds the questions that are open at once; one more is rejected.
const maxQuestions = 64

// question is a permission request that waits for a person.
type question struct {
	id         string
	life       int
	run        *run
	permission Permission
	until      time.Time
	once       sync.Once
}

// permissions are the open questions, under the session's lock.
type permissions struct{ open map[string]*question }

func (p *permissions) take(match func(*question) bool) []*question {
	var taken []*question
	for id, q := range p.open {
		if match(q) {
			taken = append(taken, q)
			delete(p.open, id)
		}
	}
	return taken
}

func (p *permissions) all() []*question { return p.take(func(*question) bool { return true }) }
func (p *permissions) of(life int) []*question {
	return p.take(func(q *question) bool { return q.life == life })
}

// expired takes the questions whose time is over, and tells wait of the others.
func (p *permissions) expired(wait func(time.Time) bool) []*question {
	return p.take(func(q *question) bool { return !wait(q.until) })
}

// permission answers a request of the agent, or asks a person. Nothing that a
// notice or an input says can answer it; only the policy and Answer can.
func (s *Session) permission(ctx context.Context, n int, ev Permission) {
	s.mu.Lock()
	if n != s.engine.count || s.state == closed {
		s.mu.Unlock()
		ev.Reply("")
		return
	}
	r := s.turnOf(ev)
	if known, ok := s.tools[ev.Call.ID]; ok { // the request names the call and may say no more
		ev.Call = merge(known, ev.Call)
	}
	q := &question{id: newID("ask"), life: n, run: r, permission: ev, until: time.Now().Add(s.opts.PermissionWait)}
	stopping := s.state == draining || r != nil && r.cause != nil
	allowed := s.opts.Policy.allows(ev.Call) && choose(ev.Options, AllowOnce, AllowAlways) != ""
	asks := s.opts.Asks && len(s.perms.open) < maxQuestions
	if !stopping && !allowed && asks {
		if s.perms.open == nil {
			s.perms.open = map[string]*question{}
		}
		s.perms.open[q.id] = q
	}
	s.publish(Update{
		Stream: StreamAgent, Event: EventPermission, Run: runID(r), ID: q.id, Name: ev.Call.ID, Text: ev.Call.Title,
		Kind: ev.Call.Kind, Input: cutRaw(ev.Call.Input), Options: ev.Options, Aside: r == nil,
	})
	s.mu.Unlock()
	s.ring()
	switch {
	case stopping:
		s.answer(q, "", "the run is being stopped")
	case allowed:
		s.answer(q, choose(ev.Options, AllowOnce, AllowAlways), "policy "+string(s.opts.Policy))
	case !asks:
		s.answer(q, choose(ev.Options, RejectOnce), "nobody can be asked")
	}
	s.log.LogAttrs(ctx, slog.LevelDebug, "permission.asked", logattr.Session(s.id), logattr.Tool(ev.Call.Title))
}

// answer replies once and says so. An empty option means that nobody decided.
func (s *Session) answer(q *question, option, why string) {
	q.once.Do(func() {
		q.permission.Reply(option)
		kind := "cancelled"
		for _, o := range q.permission.Options {
			if o.ID == option && option != "" {
				kind = string(o.Kind)
			}
		}
		s.transcript.add(Entry{Kind: EntryPermission, Run: runID(q.run), ID: q.permission.Call.ID, Title: q.permission.Call.Title, Status: kind, Text: why})
		s.publish(Update{Stream: StreamAgent, Event: EventPermissionDone, Run: runID(q.run), ID: q.id, Kind: kind, Reason: why})
	})
}

// Answer is a person's answer to an open question: its id and the id of one of
// its options, or "" to leave it undecided, which ends the turn. Errors:
// ErrNotFound if the question is not open, or has no such option.
func (s *Session) Answer(id, option string) error {
	s.mu.Lock()
	q := s.perms.open[id]
	if q == nil {
		s.mu.Unlock()
		return fmt.Errorf("answer question %q: %w", id, ErrNotFound)
	}
	known := option == ""
	for _, o := range q.permission.Options {
		known = known || o.ID == option
	}
	if !known {
		s.mu.Unlock()
		return fmt.Errorf("answer question %q: option %q: %w", id, option, ErrNotFound)
	}
	delete(s.perms.open, id)
	s.mu.Unlock()
	s.answer(q, option, "a person")
	return nil
}

// Question is an open permission request.
type Question struct {
	ID      string             `json:"id"`
	Run     string             `json:"run,omitempty"`
	Call    ToolCall           `json:"call"`
	Options []PermissionOption `json:"options"`
	Until   time.Time          `json:"until"` // rejected then
}

// Questions lists what a person is being asked, in no order.
func (s *Session) Questions() []Question {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Question
	for _, q := range s.perms.open {
		all = append(all, Question{ID: q.id, Run: runID(q.run), Call: q.permission.Call, Options: q.permission.Options, Until: q.until})
	}
	return all
}

// cancelQuestions withdraws the questions of a run that ends.
func (s *Session) cancelQuestions(r *run) {
	s.mu.Lock()
	open := s.perms.take(func(q *question) bool { return q.run == r })
	s.mu.Unlock()
	for _, q := range open {
		s.answer(q, "", "the run ended")
	}
}
