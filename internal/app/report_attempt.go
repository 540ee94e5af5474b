package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ossicle/ossicle/agent"
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/acp"
	"github.com/ossicle/ossicle/internal/ledger"
	"github.com/ossicle/ossicle/internal/observe"
	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/listen"
)

const (
	// stalledAfter is how long a server may leave a request without an answer before
	// an agent that has not opened its session is said to be blocked.
	stalledAfter = 10 * time.Second
	// lateEvery bounds how often traffic on an old way in is written down.
	lateEvery = time.Second
)

// attempt is one delivery of the servers of a session. Whoever sees something says
// so to it; what comes when another attempt has begun is refused and counted.
type attempt struct {
	*ledger.Attempt

	r         *sessionReport
	execution string
	catalogue atomic.Pointer[evidence.Catalogue] // of our own endpoint

	mu        sync.Mutex
	observers []*observe.Observer
	closers   []func()
	ended     bool
	pending   bool // delivered, and not answered
	stalled   bool // a server left a request without an answer
	late      time.Time
}

// take keeps evidence, with the time where it has none.
func (a *attempt) take(e evidence.Evidence) {
	if e.OccurredAt.IsZero() {
		e.OccurredAt = time.Now()
	}
	if e.Kind == evidence.ToolsListObserved && e.Server == version.Name {
		e.Catalogue = a.catalogue.Load()
	}
	a.Take(e)
}

// resolve tells what is configured, and what of it nobody hands to the agent.
func (a *attempt) resolve(servers []configured) {
	at := time.Now()
	for _, s := range servers {
		d := evidence.Detail{Source: s.source, Transport: s.transport, Target: s.target}
		a.take(evidence.Evidence{Server: s.name, Kind: evidence.ServerResolved, OccurredAt: at, Detail: d})
		if s.omitted != "" {
			d.Reason = s.omitted
			a.take(evidence.Evidence{Server: s.name, Kind: evidence.ServerFiltered, OccurredAt: at, Detail: d})
		}
	}
}

// observe returns ears for a server of this attempt, which end with it.
func (a *attempt) observe(server string, clean *evidence.Sanitizer) *observe.Observer {
	o := observe.New(a.take, &observe.Options{
		Server: server, Sanitizer: clean, Slow: a.stall, SlowAfter: stalledAfter, Logger: a.r.all.log,
	})
	a.mu.Lock()
	ended := a.ended
	if !ended {
		a.observers = append(a.observers, o)
	}
	a.mu.Unlock()
	if ended {
		o.Close()
	}
	return o
}

// equip opens a way in for each server, and returns how the agent reaches them.
func (a *attempt) equip(tools []agent.Tool) ([]agent.MCPServer, error) {
	var sources []listen.Source
	if a.r.o.sources != nil {
		sources = a.r.o.sources()
	}
	c := evidence.NewCatalogue(toolNames(tools))
	a.catalogue.Store(&c)
	way := wayIn{
		session: a.r.o.session, tools: tools, sources: sources,
		seen: a.observe(version.Name, a.r.clean), late: a.traffic, relays: map[string]http.Handler{},
	}
	var own []agent.MCPServer
	for i := range a.r.o.servers {
		if s := &a.r.o.servers[i]; s.handed() {
			server, err := a.hand(s, way.relays)
			if err != nil {
				return nil, err
			}
			own = append(own, server)
		}
	}
	server, err := a.r.o.endpoint.open(&way)
	if err != nil {
		return nil, err
	}
	return append([]agent.MCPServer{server}, own...), nil
}

// decided tells what is on its way to the agent.
func (a *attempt) decided(decisions []agent.Injected) {
	at := time.Now()
	for _, d := range decisions {
		a.take(Decided(d, at))
	}
	a.mu.Lock()
	a.pending = true
	a.mu.Unlock()
}

// answered tells what the agent said to that.
func (a *attempt) answered(conversation string, err error) {
	a.mu.Lock()
	a.pending = false
	a.mu.Unlock()
	if err == nil {
		a.take(evidence.Evidence{Kind: evidence.SessionAccepted, Detail: evidence.Detail{ACPSessionID: conversation}})
		return
	}
	a.failed(err)
}

// failed tells of an error that names no server. Of an agent that has ended, what
// it wrote to standard error is not told.
func (a *attempt) failed(err error) {
	// Of "session: call" the sanitizer would make a setting, and hide its value.
	d := evidence.Detail{Reason: evidence.ReasonSessionFailed, Summary: a.r.clean.Summary(strings.TrimPrefix(err.Error(), "open session: "))}
	var exit *agent.ExitError
	if errors.As(err, &exit) {
		d.Summary = a.r.clean.Summary(fmt.Sprintf("the agent ended: %v", exit.Err))
	}
	switch {
	case errors.Is(err, acp.ErrAuthentication):
		d.Reason = evidence.ReasonAuthRequired
	case errors.Is(err, acp.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		d.Reason = evidence.ReasonTimeout
	}
	a.take(evidence.Evidence{Kind: evidence.SessionError, Detail: d})
}

// stall notes a server that leaves the agent waiting: an agent that has not opened
// its session is then blocked (specification A-36).
func (a *attempt) stall() {
	a.mu.Lock()
	a.stalled = true
	blocked := a.pending
	a.mu.Unlock()
	if blocked {
		a.take(evidence.Evidence{Kind: evidence.SessionBlocked})
	}
}

// busy reports whether the agent was seen to wait for a server.
func (a *attempt) busy() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stalled
}

// traffic notes that somebody uses the way in of this attempt when it is over
// (specification A-31).
func (a *attempt) traffic() {
	now := time.Now()
	a.mu.Lock()
	again := now.Sub(a.late) < lateEvery
	if !again {
		a.late = now
	}
	a.mu.Unlock()
	if !again {
		a.take(evidence.Evidence{Kind: evidence.LateTraffic, OccurredAt: now})
	}
}

// agentEnded tells that the agent is no more, and with it its connections.
func (a *attempt) agentEnded() {
	if a.r.current() != a {
		return // another has begun: everybody knows
	}
	at := time.Now()
	if c := a.r.ledger.Report().CurrentAttempt(); c != nil && c.ID == a.ID {
		for _, s := range c.Servers {
			for _, open := range s.Connections {
				if !open.Closed {
					a.take(evidence.Evidence{Server: s.Name, Kind: evidence.ConnectionClosed, OccurredAt: at, Detail: evidence.Detail{ConnectionID: open.ID}})
				}
			}
		}
	}
	a.take(evidence.Evidence{Kind: evidence.AgentEnded, OccurredAt: at})
}

// end waits until everything was taken that was seen.
func (a *attempt) end() {
	a.mu.Lock()
	a.ended = true
	observers, closers := a.observers, a.closers
	a.observers, a.closers = nil, nil
	a.mu.Unlock()
	for _, o := range observers {
		o.Close()
	}
	for _, c := range closers {
		c()
	}
}

// closes has something closed when the attempt is over.
func (a *attempt) closes(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closers = append(a.closers, f)
}

// toolNames are tools as a report shows them.
func toolNames(tools []agent.Tool) []evidence.Tool {
	var out []evidence.Tool
	for _, t := range tools {
		out = append(out, evidence.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema})
	}
	return out
}
