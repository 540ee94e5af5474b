package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/jsonx"
	"github.com/ossicle/ossicle/internal/python"
)

// Bounds of a tryout.
const (
	tryoutNow   = 5        // events made of the resource as it is
	tryoutEvent = 16 << 10 // bytes of an event that is shown
	// A person waits for the answer: servers that hang may not take the time that a
	// start gives them.
	tryoutTools = 2 * time.Second // for the list of their tools
	tryoutRead  = 4 * time.Second // to find the resource and to read it
)

// Tryout is what a filter makes of events, before there is a watch.
type Tryout struct {
	// OK: a watch with this filter would start, as far as the filter is concerned.
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitempty"` // why not, and what to do
	// Lines are what it makes of the samples of a start (W-111), then of the resource
	// as it is now, where that can be read.
	Lines []TryoutLine `json:"lines"`
}

// TryoutLine is one event and what becomes of it.
type TryoutLine struct {
	Event json.RawMessage `json:"event"`
	// Line is nil for an event that is dropped.
	Line  *string `json:"line"`
	Error string  `json:"error,omitempty"` // of the filter
	Now   bool    `json:"now,omitempty"`   // made of the resource as it is, not a sample
}

// Try runs a filter as a start would, without a watch: on the samples, and on the
// resource as it is, as if it had just come to be. Its tools answer null. Without a
// source the lines are the default ones. Errors: ErrClosed, or ctx's; what is wrong
// with the arguments is the Tryout's problem.
func (m *Manager) Try(ctx context.Context, uri, source string) (Tryout, error) {
	out := Tryout{Lines: []TryoutLine{}}
	req := StartRequest{Name: "try", URI: uri, OnEvent: source}
	err := req.check()
	var functions *catalogue
	if err == nil && req.OnEvent != "" {
		if m.engine == nil {
			err = &ArgumentError{"on_event", "there is no Python interpreter", "leave on_event out: events then show their default lines"}
		} else {
			functions = m.promptly(ctx)
			err = m.dryRun(ctx, req, functions)
		}
	}
	if failed := ctx.Err(); failed != nil {
		return out, fmt.Errorf("try filter: %w", failed)
	}
	if out.OK = err == nil; err != nil {
		if errors.Is(err, python.ErrClosed) {
			return out, ErrClosed
		}
		out.Problem = err.Error()
		return out, nil
	}
	stages, end, err := m.tryStages(&req, functions)
	if err != nil {
		return out, err
	}
	defer end()
	for _, e := range sampleEvents() {
		out.Lines = append(out.Lines, m.tryOne(ctx, &req, stages, &e))
	}
	now, err := m.present(ctx, uri)
	if errors.Is(err, errHangs) {
		err = fmt.Errorf("the resource as it is now was not to be had within %s, so only the samples were tried: %w", tryoutRead, err)
	}
	if err != nil {
		out.OK, out.Problem = false, err.Error()
		return out, ctx.Err()
	}
	for i := range now {
		line := m.tryOne(ctx, &req, stages, &now[i])
		line.Now = true
		out.Lines = append(out.Lines, line)
	}
	return out, ctx.Err()
}

// promptly is the catalogue of the servers that answer at once.
func (m *Manager) promptly(ctx context.Context) *catalogue {
	ctx, cancel := context.WithTimeout(ctx, tryoutTools)
	defer cancel()
	return m.catalogue(ctx)
}

// tryStages are the stages up to the line.
func (m *Manager) tryStages(req *StartRequest, functions *catalogue) (stages []stage, end func(), err error) {
	text := defaultLine{&liner{}, m.limits.LineRunes}
	if functions == nil {
		return []stage{unchanged{}, text}, func() {}, nil
	}
	scope, err := m.engine.NewScope(python.ScopeOptions{
		Name: filterFile, Functions: functions.names(),
		Call: func(context.Context, python.Call) (json.RawMessage, error) { return json.RawMessage("null"), nil },
	})
	if err != nil {
		return nil, nil, fmt.Errorf("try filter: make scope: %w", err)
	}
	f := &tried{filter{watch: req.Name, uri: req.URI, source: req.OnEvent, scope: scope, catalogue: functions, limits: &m.limits, fallback: text}}
	return []stage{unchanged{}, f}, scope.Close, nil
}

// tried is a filter that tells the error of each run and goes on.
type tried struct{ filter }

func (f *tried) apply(ctx context.Context, t *ticket) bool {
	result, err := f.scope.Run(ctx, f.source, map[string]json.RawMessage{"event": t.event.Object(f.watch, f.uri)},
		python.Limits{Time: f.limits.FilterTime, Calls: f.limits.FilterCalls})
	if err != nil {
		t.remarks = append(t.remarks, bound(f.catalogue.errorText(err), maxFilterErrors*4))
		return false
	}
	t.line = bound(resultLine(result), f.limits.LineRunes)
	return t.line != ""
}

func (m *Manager) tryOne(ctx context.Context, req *StartRequest, stages []stage, e *Event) TryoutLine {
	t := &ticket{event: e}
	line := TryoutLine{Event: e.Object(req.Name, req.URI)}
	if len(line.Event) > tryoutEvent {
		short := Event{Type: e.Type, Key: e.Key, state: e.state, Changed: e.Changed}
		line.Event = short.Object(req.Name, req.URI)
	}
	kept := true
	for _, s := range stages {
		if kept = s.apply(ctx, t); !kept {
			break
		}
	}
	for _, remark := range t.remarks {
		line.Error = remark
	}
	if kept {
		line.Line = &t.line
	}
	return line
}

// present is the resource as it is, as events: as if a state had been empty before,
// and the newest of an event log. What cannot be read, or watched, is an error.
func (m *Manager) present(ctx context.Context, uri string) ([]Event, error) {
	within, cancel := context.WithTimeout(ctx, tryoutRead)
	defer cancel()
	to, err := m.route(within, uri)
	if err == nil {
		err = m.watchable(within, to, uri)
	}
	var body Body
	if err == nil {
		if body, err = to.server.Read(within, uri, nil); err != nil {
			err = fmt.Errorf("read %q: %w", uri, err)
		}
	}
	switch {
	case err == nil:
	case ctx.Err() == nil && within.Err() != nil:
		return nil, hangs(to, err)
	default:
		return nil, err
	}
	r := newReading(body, nil, false)
	var events []Event
	switch {
	case r.state != nil:
		events = Diff(nothingOf(r.state), r.state)
	case r.log != nil:
		newest := r.log.events[max(0, len(r.log.events)-tryoutNow):]
		for _, entry := range newest {
			events = append(events, newLogEvent(entry))
		}
	}
	if r.fault != "" {
		events = append(events, ownEvent(TypeError, jsonx.Member{Name: "message", Value: jsonx.StringOf(r.fault)}))
	}
	return events[:min(len(events), tryoutNow)], nil
}

// errHangs says that a server took longer than a person waits.
var errHangs = errors.New("it does not answer; try again, or look at the server")

// hangs names the server that did not answer, or those of which one may have the
// resource.
func hangs(to target, err error) error {
	if to.server != nil {
		return fmt.Errorf("server %q: %w", to.server.Name(), errHangs)
	}
	if route, ok := errors.AsType[*RouteError](err); ok && len(route.silent) > 0 {
		return fmt.Errorf("server %s: %w", strings.Join(route.silent, ", "), errHangs)
	}
	return errHangs
}

// nothingOf is a state of the form of another with nothing in it.
func nothingOf(s *State) *State {
	switch s.form {
	case formList:
		return ParseState([]byte("[]"), nil)
	case formObject:
		return ParseState([]byte("{}"), nil)
	case formText:
	}
	return ParseState(nil, nil)
}
