package mockagent

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/internal/version"
)

// session is one conversation.
type session struct {
	id       string
	servers  []*server
	attached chan struct{} // closed when an async agent has tried all servers

	mu      sync.Mutex
	quiet   bool
	current *flight
	tail    chan struct{} // closed when the last prompt so far has ended
	steered []string
}

// flight is a prompt in flight.
type flight struct {
	cancel context.CancelFunc
	reason string // stop reason if it is cancelled; "" is an error
}

func (s *session) close() {
	for _, srv := range s.servers {
		srv.close()
	}
}

// serve answers every request but prompts.
func (a *agent) serve(ctx context.Context, m message) {
	switch m.Method {
	case "initialize":
		pause(ctx, a.o.Slow)
		a.reply(m, a.hello())
	case "session/new":
		pause(ctx, a.o.Slow)
		a.open(ctx, m, "mock-"+strings.ToLower(rand.Text()))
	case "session/load", "session/resume":
		if a.o.NoLoad || (m.Method == "session/resume" && !a.o.Resume) {
			a.refuse(m, -32601, "method not found")
			return
		}
		a.reopen(ctx, m)
	case "session/set_mode":
		a.reply(m, object{})
	case "_session/steering":
		a.steer(m)
	default:
		a.refuse(m, -32601, "method not found")
	}
}

func (a *agent) hello() object {
	capabilities := object{
		"loadSession":        !a.o.NoLoad,
		"promptCapabilities": object{"embeddedContext": true},
		"mcpCapabilities":    object{"http": !a.o.NoHTTP, "sse": !a.o.NoSSE},
	}
	if a.o.Resume {
		capabilities["sessionCapabilities"] = object{"resume": object{}}
	}
	hello := object{
		"protocolVersion":   1,
		"agentInfo":         object{"name": "mock-agent", "title": "Mock agent", "version": version.Number()},
		"agentCapabilities": capabilities,
		"authMethods":       []any{},
	}
	if a.o.Steering {
		hello["_meta"] = object{"steering": object{"supported": true}}
	}
	return hello
}

type openParams struct {
	SessionID  string   `json:"sessionId"`
	CWD        string   `json:"cwd"`
	MCPServers []*entry `json:"mcpServers"`
}

// open makes a session. An entry without the members that the protocol
// requires fails it, as it does with agents that check.
func (a *agent) open(ctx context.Context, m message, id string) {
	s, err := a.session(ctx, m, id)
	if err != nil {
		a.refuse(m, -32602, err.Error())
		return
	}
	result := object{"sessionId": s.id}
	if m.Method != "session/new" {
		result = object{}
	}
	a.reply(m, result)
	a.update(s, object{"sessionUpdate": "available_commands_update", "availableCommands": []any{}})
	if a.o.Attach == Async {
		a.wg.Go(func() {
			defer close(s.attached)
			a.attach(ctx, s)
		})
	}
}

func (a *agent) reopen(ctx context.Context, m message) {
	var q openParams
	if err := json.Unmarshal(m.Params, &q); err != nil || !strings.HasPrefix(q.SessionID, "mock-") {
		a.refuse(m, -32002, "no such session")
		return
	}
	if m.Method == "session/load" && !a.o.LateReplay {
		a.replay(ctx, q.SessionID, 0)
	}
	a.open(ctx, m, q.SessionID)
	if m.Method == "session/load" && a.o.LateReplay {
		a.replay(ctx, q.SessionID, lateReplay)
	}
}

// lateReplay is the time between two pieces of a late replay.
const lateReplay = 50 * time.Millisecond

func (a *agent) replay(ctx context.Context, id string, pace time.Duration) {
	old := &session{id: id}
	for range 5 {
		pause(ctx, pace)
		a.update(old, object{"sessionUpdate": "user_message_chunk", "content": text("replayed question")})
		a.update(old, object{"sessionUpdate": "agent_message_chunk", "content": text("replayed answer")})
	}
}

func (a *agent) session(ctx context.Context, m message, id string) (*session, error) {
	var q openParams
	if err := json.Unmarshal(m.Params, &q); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	close(done)
	s := &session{id: id, quiet: a.o.Quiet, tail: done, attached: make(chan struct{})}
	for _, e := range q.MCPServers {
		if err := e.check(a.o); err != nil {
			return nil, err
		}
		s.servers = append(s.servers, &server{entry: *e, era: a.o.Era})
	}
	a.mu.Lock()
	a.sessions[id] = s
	a.mu.Unlock()
	if a.o.Attach == Eager || a.o.Attach == "" {
		a.attach(ctx, s)
	}
	return s, nil
}

func (a *agent) attach(ctx context.Context, s *session) {
	for _, srv := range s.servers {
		if err := srv.connect(ctx); err != nil {
			a.logf("MCP server %s failed: %v", srv.Name, err)
		}
	}
}

func (a *agent) find(id string) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessions[id]
}

func (a *agent) update(s *session, update object) {
	a.notify("session/update", object{"sessionId": s.id, "update": update})
}

func (a *agent) cancelled(m message) {
	var q openParams
	if json.Unmarshal(m.Params, &q) != nil || a.o.Deaf {
		return
	}
	if s := a.find(q.SessionID); s != nil {
		s.abort("cancelled")
	}
}

// abort ends the prompt in flight, if there is one.
func (s *session) abort(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.current; f != nil {
		f.reason = reason
		f.cancel()
	}
}

// steer folds a text into the running turn.
func (a *agent) steer(m message) {
	var q promptParams
	s := (*session)(nil)
	if a.o.Steering && json.Unmarshal(m.Params, &q) == nil {
		s = a.find(q.SessionID)
	}
	if s == nil {
		a.refuse(m, -32601, "method not found")
		return
	}
	s.mu.Lock()
	running := s.current != nil
	if running {
		s.steered = append(s.steered, q.text())
	}
	s.mu.Unlock()
	switch {
	case running:
		a.reply(m, object{"outcome": "injected"})
	case q.Meta.Steering.IdleBehavior == "promptRequired":
		a.reply(m, object{"outcome": "promptRequired", "reason": "noRunningTurn"})
	default:
		a.reply(m, object{"outcome": "failed"})
	}
}

func text(s string) object { return object{"type": "text", "text": s} }

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
