package acp

import (
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/agent"
)

// maxPermissions bounds the questions that are open at once; more are answered
// "cancelled".
const maxPermissions = 64

// permissions are the questions of the agent that nobody has answered yet.
type permissions struct {
	mu   sync.Mutex
	open []*question
}

// question is answered once: by the session, by a cancelled turn, or because
// the agent takes it back.
type question struct {
	once   sync.Once
	id     jsontext.Value
	answer func(permissionOutcome)
	refuse func()
}

// ask hands a question to the session. It reports false if params make no
// sense.
func (p *permissions) ask(c *conn, f frame, emit agent.Sink) bool {
	var q permissionParams
	if decode(f.params, &q) != nil {
		return false
	}
	var call update
	if len(q.ToolCall) > 0 && decode(q.ToolCall, &call) != nil {
		return false
	}
	open := &question{
		id:     f.id,
		answer: func(o permissionOutcome) { c.reply(f.id, permissionResult{Outcome: o}) },
		refuse: func() { c.refuse(f.id, codeCancelled, "request cancelled", nil) },
	}
	if !p.add(open) {
		open.answer(permissionOutcome{Outcome: "cancelled"})
		return true
	}
	e := agent.Permission{Call: call.call(call.Content)}
	for _, o := range q.Options {
		e.Options = append(e.Options, agent.PermissionOption{ID: o.ID, Name: o.Name, Kind: agent.PermissionKind(o.Kind)})
	}
	e.Reply = func(option string) {
		known := slices.ContainsFunc(e.Options, func(o agent.PermissionOption) bool { return o.ID == option })
		if option == "" || !known {
			p.settle(open, func() { open.answer(permissionOutcome{Outcome: "cancelled"}) })
			return
		}
		p.settle(open, func() { open.answer(permissionOutcome{Outcome: "selected", OptionID: option}) })
	}
	emit(e)
	return true
}

func (p *permissions) add(q *question) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) >= maxPermissions {
		return false
	}
	p.open = append(p.open, q)
	return true
}

func (p *permissions) settle(q *question, how func()) {
	q.once.Do(how)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = slices.DeleteFunc(p.open, func(o *question) bool { return o == q })
}

func (p *permissions) list() []*question {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.open)
}

// cancelAll answers every open question: the protocol wants it with the cancel
// of a turn.
func (p *permissions) cancelAll() {
	for _, q := range p.list() {
		p.settle(q, func() { q.answer(permissionOutcome{Outcome: "cancelled"}) })
	}
}

// withdraw answers the question with this id, which the agent takes back.
func (p *permissions) withdraw(id jsontext.Value) {
	for _, q := range p.list() {
		if string(q.id) == string(id) {
			p.settle(q, q.refuse)
		}
	}
}
