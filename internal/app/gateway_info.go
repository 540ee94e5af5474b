package app

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

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/worker"
)

// SandboxInfo is a sandbox as the API shows it. Texts of Detail, Audit and Outputs
// are from the sandbox in part.
type SandboxInfo struct {
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
	Audit          []SandboxAudit  `json:"audit,omitempty"`
}

// SandboxAudit is something about a sandbox that an operator may want to know.
type SandboxAudit struct {
	Time   time.Time        `json:"time"`
	Event  string           `json:"event"`
	Detail string           `json:"detail,omitzero"` // from the sandbox in part
	From   worker.State     `json:"from,omitzero"`
	To     worker.State     `json:"to,omitzero"`
	Close  worker.CloseCode `json:"close,omitzero"`
}

// info describes a record.
func (g *WorkerGateway) info(rec *worker.Record) SandboxInfo {
	v := rec.Versions
	out := SandboxInfo{
		ID: rec.ID, Profile: rec.Profile.Name, State: rec.State, Owner: rec.Owner, Here: rec.Owner == g.owner, Created: rec.Created,
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
	if p, known := g.config.Sandbox(rec.Profile.Name); known {
		out.Driver = p.Driver
	}
	if d := g.made(rec.Profile.Name); d != nil && out.Here {
		out.Tier = d.tier
	}
	g.mu.Lock()
	out.Agent = g.notes[rec.ID]
	g.mu.Unlock()
	return out
}

// List describes the sandboxes of the store, oldest first; those that are over
// only if all is true.
func (g *WorkerGateway) List(ctx context.Context, all bool) ([]SandboxInfo, error) {
	recs, err := g.store.List(ctx, worker.Filter{Live: !all})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(recs, func(a, b worker.Record) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	out := make([]SandboxInfo, 0, len(recs))
	for i := range recs {
		if s, err := g.host.Session(recs[i].ID); err == nil { // newer than the store
			recs[i] = s.Record()
		}
		out = append(out, g.info(&recs[i]))
	}
	return out, nil
}

// record finds a sandbox, held here or not.
func (g *WorkerGateway) record(ctx context.Context, id string) (worker.Record, error) {
	if s, err := g.host.Session(id); err == nil {
		return s.Record(), nil
	}
	return g.store.Load(ctx, id)
}

// maxAuditShown bounds the entries that are shown of a sandbox.
const maxAuditShown = 500

// Show describes a sandbox, with its audit. Errors: worker.ErrUnknownSession.
func (g *WorkerGateway) Show(ctx context.Context, id string) (SandboxInfo, error) {
	rec, err := g.record(ctx, id)
	if err != nil {
		return SandboxInfo{}, err
	}
	out := g.info(&rec)
	entries, err := g.audit.Read(ctx, id, 0, maxAuditShown)
	for _, e := range entries {
		out.Audit = append(out.Audit, SandboxAudit{e.Time, e.Event, e.Detail, e.From, e.To, e.Close})
	}
	return out, err
}

// Session finds a sandbox that this process holds. Errors: worker.ErrUnknownSession,
// worker.ErrOver, or one that says who holds it.
func (g *WorkerGateway) Session(ctx context.Context, id string) (*worker.Session, error) {
	if s, err := g.host.Session(id); err == nil {
		return s, nil
	}
	rec, err := g.store.Load(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case rec.State.Final():
		return nil, overError(&rec)
	}
	return nil, &elsewhereError{id, rec.Owner}
}

// boxCaller is a sandbox whose tools can be called, wherever it is.
type boxCaller interface {
	CallTool(ctx context.Context, name string, arguments jsontext.Value, o *worker.CallOptions) (*mcp.CallToolResult, error)
}

// peerBox is a sandbox that this daemon or another holds. A call follows it when it
// moves.
type peerBox struct {
	calls *gateway.Calls
	id    string
}

// CallTool implements boxCaller.
func (b peerBox) CallTool(ctx context.Context, name string, arguments jsontext.Value, o *worker.CallOptions) (*mcp.CallToolResult, error) {
	return b.calls.CallTool(ctx, b.id, name, arguments, o)
}

// caller finds a sandbox, here or at another daemon that can be reached.
func (g *WorkerGateway) caller(ctx context.Context, id string) (boxCaller, error) {
	s, err := g.Session(ctx, id)
	if elsewhere := (*elsewhereError)(nil); errors.As(err, &elsewhere) && g.calls != nil {
		return peerBox{g.calls, id}, nil
	}
	if err != nil {
		return nil, err
	}
	if g.calls != nil {
		return peerBox{g.calls, id}, nil
	}
	return s, nil
}

// release ends a sandbox in good order, here or there.
func (g *WorkerGateway) release(ctx context.Context, id string, reason worker.Reason) (worker.Record, error) {
	s, err := g.Session(ctx, id)
	if elsewhere := (*elsewhereError)(nil); errors.As(err, &elsewhere) && g.calls != nil {
		return g.calls.Release(ctx, id, reason)
	}
	if err != nil {
		return worker.Record{}, err
	}
	return s.Release(ctx, reason)
}

// elsewhereError says which host holds a sandbox.
type elsewhereError struct{ id, owner string }

func (e *elsewhereError) Error() string {
	return fmt.Sprintf("the sandbox %q is held by the host %s; ask there", e.id, e.owner)
}

// overError says how a sandbox ended.
func overError(rec *worker.Record) error {
	if rec.State == worker.StateReleased {
		return httpserver.Errorf(http.StatusConflict, "the sandbox %q is over: released (%s)", rec.ID, rec.Release)
	}
	return httpserver.Errorf(http.StatusConflict, "the sandbox %q is over: %s: %s", rec.ID, rec.Failure, rec.Detail)
}

// States counts the sandboxes that this process holds, by state.
func (g *WorkerGateway) States() map[string]int {
	out := map[string]int{}
	for _, s := range g.host.Sessions() {
		out[string(s.Record().State)]++
	}
	return out
}

// Probe says what keeps the sandboxes of a profile, which is found out if nobody
// knows yet.
func (g *WorkerGateway) Probe(ctx context.Context, profile string) (tier, reason string, err error) {
	p, known := g.config.Sandbox(profile)
	if !known {
		return "", "", &SandboxProfileError{profile, g.config.SandboxNames()}
	}
	if p.Driver == config.DriverKubernetes {
		return config.DriverKubernetes, "", nil
	}
	d, err := g.driver(ctx, &p)
	if err != nil {
		return "", "", err
	}
	return d.tier, d.reason, nil
}

// sandboxProblem maps the errors of a sandbox to the status that the API answers.
func sandboxProblem(id string, err error) error {
	var api *httpserver.StatusError
	status := http.StatusUnprocessableEntity
	switch {
	case err == nil, errors.As(err, &api):
		return err
	case errors.As(err, new(*InvalidSandboxError)), errors.As(err, new(*SandboxProfileError)):
		status = http.StatusBadRequest
	case errors.As(err, new(*http.MaxBytesError)):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, worker.ErrUnknownSession): // which is what the channel calls it
		return httpserver.Errorf(http.StatusNotFound, "find sandbox %.80q: there is none; 'ossicle sandbox list --all' lists them", id)
	case errors.As(err, new(*SandboxExistsError)), errors.As(err, new(*elsewhereError)), errors.Is(err, worker.ErrOver), errors.Is(err, worker.ErrReleasing):
		status = http.StatusConflict
	case errors.Is(err, ErrTooManySandboxes), errors.Is(err, worker.ErrBusy):
		status = http.StatusTooManyRequests
	case errors.Is(err, errGatewayClosed), errors.Is(err, worker.ErrDraining):
		status = http.StatusServiceUnavailable
	}
	return &httpserver.StatusError{Status: status, Err: err}
}
