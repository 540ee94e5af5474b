package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/worker"
)

// Info is a sandbox as the API shows it. Texts of Detail, Audit and Outputs
// are from the sandbox in part.
type Info struct {
	ID      string       `json:"id"`
	Profile string       `json:"profile"`
	Driver  string       `json:"driver,omitzero"` // empty for a profile that is gone
	Tier    string       `json:"tier,omitzero"`   // empty while nobody here knows
	State   worker.State `json:"state"`
	Owner   string       `json:"owner"` // the host that holds it
	Here    bool         `json:"here"`  // that is this process
	Agent   string       `json:"agent,omitzero"`
	Created time.Time    `json:"created"`

	HostImage   string `json:"host_image,omitzero"`
	WorkerImage string `json:"worker_image,omitzero"`
	// Channel versions of both sides, or the subprotocols if the upgrade was refused;
	// what both use; and the version of MCP that the worker answered.
	HostVersion   string `json:"host_version,omitzero"`
	WorkerVersion string `json:"worker_version,omitzero"`
	Channel       string `json:"channel,omitzero"`
	MCP           string `json:"mcp,omitzero"`

	// Seconds since the last heartbeat; nil before any and after the end.
	HeartbeatAge *float64 `json:"heartbeat_age_seconds,omitempty"`
	Idle         float64  `json:"idle_seconds"` // as the last heartbeat said
	IdleBudget   float64  `json:"idle_budget_seconds"`
	Exec         float64  `json:"exec_seconds"`
	ExecBudget   float64  `json:"exec_budget_seconds"`
	Calls        int      `json:"active_calls"`
	Workspace    int64    `json:"workspace_bytes"`
	Attempt      int64    `json:"attempt"`
	Tools        []string `json:"tools"`

	Failure        worker.Failure  `json:"failure,omitzero"`
	Detail         string          `json:"detail,omitzero"`
	Release        worker.Reason   `json:"release,omitzero"`
	Reported       bool            `json:"reported"`
	OutputsFlushed bool            `json:"outputs_flushed"`
	Outputs        []worker.Output `json:"outputs"`
	Audit          []AuditEntry    `json:"audit,omitempty"`
}

// AuditEntry is something about a sandbox that an operator may want to know.
type AuditEntry struct {
	Time   time.Time        `json:"time"`
	Event  string           `json:"event"`
	Detail string           `json:"detail,omitzero"` // from the sandbox in part
	From   worker.State     `json:"from,omitzero"`
	To     worker.State     `json:"to,omitzero"`
	Close  worker.CloseCode `json:"close,omitzero"`
}

// info describes a record.
func (f *Fleet) info(rec *worker.Record) Info {
	v := rec.Versions
	out := Info{
		ID: rec.ID, Profile: rec.Profile.Name, State: rec.State, Owner: rec.Owner, Here: rec.Owner == f.owner, Created: rec.Created,
		HostImage: v.HostImage, WorkerImage: v.WorkerImage, HostVersion: v.Host, WorkerVersion: v.Worker, Channel: v.Effective, MCP: v.MCP,
		Idle: rec.Beat.Idle.Seconds(), IdleBudget: rec.IdleBudget.Seconds(), Exec: rec.Beat.Exec.Seconds(), ExecBudget: rec.ExecBudget.Seconds(),
		Calls: rec.Beat.ActiveToolCalls, Workspace: rec.Beat.WorkspaceBytes, Attempt: rec.Attempt, Tools: rec.Tools,
		Failure: rec.Failure, Detail: rec.Detail, Release: rec.Release, Reported: rec.Reported, OutputsFlushed: rec.OutputsFlushed, Outputs: rec.Outputs,
	}
	if out.Tools == nil {
		out.Tools = []string{}
	}
	if out.Outputs == nil {
		out.Outputs = []worker.Output{}
	}
	if !rec.LastBeat.IsZero() && !rec.State.Final() {
		age := time.Since(rec.LastBeat).Seconds()
		out.HeartbeatAge = &age
	}
	if p, known := f.config.Sandbox(rec.Profile.Name); known {
		out.Driver = p.Driver
	}
	if d := f.made(rec.Profile.Name); d != nil && out.Here {
		out.Tier = d.Traits().Tier
	}
	f.mu.Lock()
	out.Agent = f.notes[rec.ID]
	f.mu.Unlock()
	return out
}

// List describes the sandboxes of the store, oldest first; those that are over
// only if all is true.
func (f *Fleet) List(ctx context.Context, all bool) ([]Info, error) {
	recs, err := f.store.List(ctx, worker.Filter{Live: !all})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(recs, func(a, b worker.Record) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	out := make([]Info, 0, len(recs))
	for i := range recs {
		if s, err := f.host.Session(recs[i].ID); err == nil { // newer than the store
			recs[i] = s.Record()
		}
		out = append(out, f.info(&recs[i]))
	}
	return out, nil
}

// record finds a sandbox, held here or not.
func (f *Fleet) record(ctx context.Context, id string) (worker.Record, error) {
	if s, err := f.host.Session(id); err == nil {
		return s.Record(), nil
	}
	return f.store.Load(ctx, id)
}

// Find describes a sandbox. Errors: worker.ErrUnknownSession.
func (f *Fleet) Find(ctx context.Context, id string) (Info, error) {
	rec, err := f.record(ctx, id)
	if err != nil {
		return Info{}, err
	}
	return f.info(&rec), nil
}

// maxAuditShown bounds the entries that are shown of a sandbox.
const maxAuditShown = 500

// Show is Find with the audit. Errors: worker.ErrUnknownSession.
func (f *Fleet) Show(ctx context.Context, id string) (Info, error) {
	out, err := f.Find(ctx, id)
	if err != nil {
		return out, err
	}
	entries, err := f.audit.Read(ctx, id, 0, maxAuditShown)
	for _, e := range entries {
		out.Audit = append(out.Audit, AuditEntry{e.Time, e.Event, e.Detail, e.From, e.To, e.Close})
	}
	return out, err
}

// Session finds a sandbox that this process holds. Errors: worker.ErrUnknownSession,
// ElsewhereError, and for one that is over a httpserver.StatusError that says how.
func (f *Fleet) Session(ctx context.Context, id string) (*worker.Session, error) {
	if s, err := f.host.Session(id); err == nil {
		return s, nil
	}
	rec, err := f.store.Load(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case rec.State.Final():
		return nil, overError(&rec)
	}
	return nil, &ElsewhereError{id, rec.Owner}
}

// caller is a sandbox whose tools can be called, wherever it is.
type caller interface {
	CallTool(ctx context.Context, name string, arguments jsontext.Value, o *worker.CallOptions) (*mcp.CallToolResult, error)
}

// peer is a sandbox that this daemon or another holds. A call follows it when it
// moves.
type peer struct {
	calls *gateway.Calls
	id    string
}

// CallTool implements caller.
func (b peer) CallTool(ctx context.Context, name string, arguments jsontext.Value, o *worker.CallOptions) (*mcp.CallToolResult, error) {
	return b.calls.CallTool(ctx, b.id, name, arguments, o)
}

// caller finds a sandbox, here or at another daemon that can be reached.
func (f *Fleet) caller(ctx context.Context, id string) (caller, error) {
	s, err := f.Session(ctx, id)
	if elsewhere := (*ElsewhereError)(nil); errors.As(err, &elsewhere) && f.calls != nil {
		return peer{f.calls, id}, nil
	}
	if err != nil {
		return nil, err
	}
	if f.calls != nil {
		return peer{f.calls, id}, nil
	}
	return s, nil
}

// release ends a sandbox in good order, here or there.
func (f *Fleet) release(ctx context.Context, id string, reason worker.Reason) (worker.Record, error) {
	s, err := f.Session(ctx, id)
	if elsewhere := (*ElsewhereError)(nil); errors.As(err, &elsewhere) && f.calls != nil {
		return f.calls.Release(ctx, id, reason)
	}
	if err != nil {
		return worker.Record{}, err
	}
	return s.Release(ctx, reason)
}

// ElsewhereError says which host holds a sandbox.
type ElsewhereError struct{ ID, Owner string }

func (e *ElsewhereError) Error() string {
	return fmt.Sprintf("the sandbox %q is held by the host %s; ask there", e.ID, e.Owner)
}

// overError says how a sandbox ended.
func overError(rec *worker.Record) error {
	if rec.State == worker.StateReleased {
		return httpserver.Errorf(http.StatusConflict, "the sandbox %q is over: released (%s)", rec.ID, rec.Release)
	}
	return httpserver.Errorf(http.StatusConflict, "the sandbox %q is over: %s: %s", rec.ID, rec.Failure, rec.Detail)
}

// States counts the sandboxes that this process holds, by state.
func (f *Fleet) States() map[string]int {
	out := map[string]int{}
	for _, s := range f.host.Sessions() {
		out[string(s.Record().State)]++
	}
	return out
}
