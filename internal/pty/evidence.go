package pty

import (
	"crypto/rand"
	"os"
	"strings"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/attach"
)

// plan plans for the servers and writes the plan's files, and says what became of
// each server: filtered, failed, or delivered. The program is started in any
// case: a person may well want it without them.
func (e *Engine) plan(servers []agent.MCPServer, system, dir string, env []string) Plan {
	strategy := StrategyOf(e.o.Kind)
	if strategy == nil {
		p := Plan{Decided: without(servers)}
		e.decided(p)
		return p
	}
	p, err := strategy.Plan(Request{Servers: servers, System: system, Dir: dir, Env: env, ReadFile: readBounded, ReadDir: readNames})
	if err == nil {
		err = p.materialize(dir)
	}
	if err != nil {
		e.log.Warn("agent gets no mcp servers", errAttr(err))
		p = Plan{Decided: unwritten(p.Decided)}
	}
	e.decided(p)
	return p
}

// unwritten takes back the decisions to deliver.
func unwritten(decided []agent.Injected) []agent.Injected {
	for i := range decided {
		if decided[i].Transport != "" {
			decided[i].Transport, decided[i].Reason, decided[i].Assumed = "", string(attach.ReasonMaterializeFailed), false
		}
	}
	return decided
}

func (e *Engine) decided(p Plan) {
	for _, d := range p.Decided {
		ev := attach.Evidence{Server: d.Server, Kind: attach.ServerDelivered}
		ev.Transport, ev.Reason = attach.Transport(d.Transport), attach.Reason(d.Reason)
		if d.Assumed {
			ev.Capability = attach.Assumed
		}
		switch {
		case ev.Reason == attach.ReasonMaterializeFailed:
			ev.Kind = attach.ServerError
		case d.Transport == "":
			ev.Kind = attach.ServerFiltered
		}
		e.tell(ev)
	}
}

// accepted says that the program has started with the configuration of the servers:
// all that a program in a terminal says.
func (e *Engine) accepted(p Plan) {
	e.tell(attach.Evidence{Kind: attach.SessionAccepted})
	for _, d := range p.Decided {
		if d.Transport != "" {
			e.tell(attach.Evidence{Server: d.Server, Kind: attach.SessionAccepted, Detail: attach.Detail{Transport: attach.Transport(d.Transport)}})
		}
	}
}

// failed says that the program did not start, which is the fault of no server.
func (e *Engine) failed(reason attach.Reason, err error) {
	e.tell(attach.Evidence{Kind: attach.SessionError, Detail: attach.Detail{Reason: reason, Summary: attach.NewSanitizer().Summary(err.Error())}})
}

func (e *Engine) tell(ev attach.Evidence) {
	ev.OccurredAt = time.Now()
	e.saw(ev)
}

// maxSettings bounds a file of somebody else's configuration, in bytes.
const maxSettings = 4 << 20

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSettings {
		return nil, os.ErrInvalid
	}
	return os.ReadFile(path)
}

func readNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func randomName() string { return strings.ToLower(rand.Text()) }
