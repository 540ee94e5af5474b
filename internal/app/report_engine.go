package app

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/ossicle/ossicle/agent"
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/version"
)

// reported is one life of an agent of whose servers a report is kept.
type reported struct {
	agent.Engine

	r         *sessionReport
	execution string

	mu      sync.Mutex
	cur     *attempt
	servers []agent.MCPServer // of cur
	tools   []agent.Tool
	asked   bool // cur was delivered, or is on its way
	told    bool // the engine has said what became of cur
	spoke   bool // and what it decided, in evidence of its own
	ending  sync.Once
}

var (
	_ agent.Steerer    = (*reported)(nil)
	_ agent.Attachment = (*reported)(nil)
)

// report keeps a report of the servers of every life.
func (r *sessionReport) report(newEngine func() (agent.Engine, error)) func() (agent.Engine, error) {
	return func() (agent.Engine, error) {
		e, err := newEngine()
		if err != nil {
			return nil, err
		}
		return &reported{Engine: e, r: r, execution: newExecution()}, nil
	}
}

// Start implements agent.Engine. The attempt begins before the agent's process.
func (e *reported) Start(ctx context.Context, so agent.StartOptions, sink agent.Sink) (agent.Info, error) {
	e.r.runs(e.Engine)
	e.tools = so.Tools
	if e.r.o.inProcess {
		so.Tools = e.counted(so.Tools)
	}
	if err := e.attempt(ctx); err != nil {
		return agent.Info{}, err
	}
	so.MCPServers, so.Attachment = e.servers, e
	info, err := e.Engine.Start(ctx, so, func(ev agent.Event) {
		sink(ev)
		if _, dead := ev.(agent.Exited); dead {
			e.end()
		}
	})
	e.started(info, err)
	return info, err
}

// attempt begins one, with ways in of its own.
func (e *reported) attempt(ctx context.Context) error {
	a, err := e.r.begin(ctx, e.execution)
	if err != nil {
		return err
	}
	var servers []agent.MCPServer
	if !e.r.o.inProcess {
		if servers, err = a.equip(e.tools); err != nil {
			a.failed(err)
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cur, e.servers, e.asked, e.told, e.spoke = a, servers, false, false, false
	return nil
}

func (e *reported) now() *attempt {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cur
}

// started tells what an engine says only at the end of its start.
func (e *reported) started(info agent.Info, err error) {
	a := e.now()
	e.mu.Lock()
	told, spoke := e.told, e.asked || e.spoke
	e.mu.Unlock()
	switch {
	case errors.Is(err, agent.ErrClosed), errors.Is(err, context.Canceled): // nobody wants it any more
	case err != nil && !told:
		a.failed(err)
	case err != nil:
	case e.r.o.inProcess:
		e.loaded(a)
	case !spoke:
		a.decided(info.Injected)
		a.answered(info.Conversation, nil)
	}
}

// loaded tells of a loop of our own: every request to its model has the tools,
// and no server stands between.
func (e *reported) loaded(a *attempt) {
	d := evidence.Detail{Source: evidence.SourceBuiltin, Transport: evidence.InProcess}
	a.take(evidence.Evidence{Server: version.Name, Kind: evidence.ServerDelivered, Detail: d})
	a.take(evidence.Evidence{Kind: evidence.SessionAccepted})
	c := evidence.NewCatalogue(toolNames(e.tools))
	a.catalogue.Store(&c)
	d.ToolCount = &c.Total
	a.take(evidence.Evidence{Server: version.Name, Kind: evidence.ToolsListObserved, Detail: d})
}

// counted are tools whose calls are told.
func (e *reported) counted(tools []agent.Tool) []agent.Tool {
	out := make([]agent.Tool, len(tools))
	for i, t := range tools {
		call := t.Call
		out[i] = t
		out[i].Call = func(ctx context.Context, args json.RawMessage) (agent.ToolResult, error) {
			res, err := call(ctx, args)
			if a := e.now(); err == nil && a != nil {
				a.take(evidence.Evidence{Server: version.Name, Kind: evidence.ToolCallObserved, Detail: evidence.Detail{Tool: t.Name, Transport: evidence.InProcess}})
			}
			return res, err
		}
	}
	return out
}

// Servers implements agent.Attachment: the first delivery is that of the start, and
// each one after it an attempt of its own.
func (e *reported) Servers(ctx context.Context) ([]agent.MCPServer, error) {
	e.mu.Lock()
	again := e.asked
	e.mu.Unlock()
	if again {
		if err := e.attempt(ctx); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = true
	return e.servers, nil
}

// Decided implements agent.Attachment.
func (e *reported) Decided(decisions []agent.Injected) { e.now().decided(decisions) }

// Answered implements agent.Attachment.
func (e *reported) Answered(conversation string, err error) {
	e.mu.Lock()
	e.told = true
	e.mu.Unlock()
	e.now().answered(conversation, err)
}

// Busy implements agent.Attachment.
func (e *reported) Busy() bool { return e.now().busy() }

// Saw implements agent.Attachment. An engine may tell all that way.
func (e *reported) Saw(ev evidence.Evidence) {
	e.mu.Lock()
	a := e.cur
	switch ev.Kind {
	case evidence.SessionError:
		e.told = true
	case evidence.ServerDelivered, evidence.ServerFiltered, evidence.SessionAccepted:
		e.spoke = true
	default:
	}
	e.mu.Unlock()
	a.take(ev)
}

// Steer implements agent.Steerer for engines that are.
func (e *reported) Steer(ctx context.Context, p agent.Prompt) (agent.SteerOutcome, error) {
	s, ok := e.Engine.(agent.Steerer)
	if !ok {
		return agent.SteerFailed, nil
	}
	return s.Steer(ctx, p)
}

// Close implements agent.Engine.
func (e *reported) Close() error {
	err := e.Engine.Close()
	e.end()
	return err
}

// end tells once that this life is over.
func (e *reported) end() {
	e.ending.Do(func() {
		if a := e.now(); a != nil {
			a.agentEnded()
		}
	})
}
