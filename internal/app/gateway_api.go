package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/worker"
)

// sandboxAPI is the JSON API of sandboxes; docs/reference/api.md is its page.
type sandboxAPI struct {
	gateway *WorkerGateway // nil: this process has none

	gone context.Context //nolint:containedctx // ends with the API, and what its requests began
	end  context.CancelFunc
}

func newSandboxAPI(g *WorkerGateway) *sandboxAPI {
	a := &sandboxAPI{gateway: g}
	a.gone, a.end = context.WithCancel(context.Background())
	return a
}

const sandboxesPath = "/v1/sandboxes"

func (a *sandboxAPI) routes() []httpserver.Route {
	api := jsonAPI()
	if a.gateway == nil {
		none := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			api.Fail(w, httpserver.Errorf(http.StatusNotFound, "this process has no gateway for sandboxes; start it with 'ossicle serve --worker-gateway'"))
		})
		return []httpserver.Route{{Pattern: sandboxesPath, Handler: none}, {Pattern: sandboxesPath + "/", Handler: none}}
	}
	raw := func(pattern string, do func(http.ResponseWriter, *http.Request) error) httpserver.Route {
		return api.Raw(pattern, mayUseSandboxes, func(w http.ResponseWriter, r *http.Request) error {
			return sandboxProblem(r.PathValue("id"), do(w, r))
		})
	}
	route := func(pattern string, do func(*http.Request) (any, error), query ...string) httpserver.Route {
		return api.JSON(pattern, mayUseSandboxes, func(r *http.Request) (any, error) {
			v, err := do(r)
			return v, sandboxProblem(r.PathValue("id"), err)
		}, query...)
	}
	return append([]httpserver.Route{
		route("GET "+sandboxesPath, a.list, "all"),
		route("POST "+sandboxesPath, a.start),
		route("GET "+sandboxesPath+"/{id}", a.show),
		raw("POST "+sandboxesPath+"/{id}/exec", a.exec),
		route("GET "+sandboxesPath+"/{id}/tail", a.tail, "job", "stream", "offset", "wait_ms"),
		route("POST "+sandboxesPath+"/{id}/release", a.release),
		route("POST "+sandboxesPath+"/{id}/kill", a.kill),
		raw("GET "+sandboxesPath+"/{id}/artifacts/{artifact}", a.artifact),
	}, a.gateway.routes()...)
}

// mayUseSandboxes checks that whoever asks may run commands here: that takes the
// right to all sessions, as starting an agent does.
func mayUseSandboxes(r *http.Request) error {
	p, known := httpserver.PrincipalOf(r.Context())
	if !known || slices.Contains(p.Rights.Sessions, "*") {
		return nil
	}
	return httpserver.Errorf(http.StatusForbidden, "the token of %q gives no right to sandboxes: that takes the right to all sessions", p.Name)
}

func (a *sandboxAPI) list(r *http.Request) (any, error) {
	all, err := httpserver.QueryBool(r, "all")
	if err != nil {
		return nil, err
	}
	list, err := a.gateway.List(r.Context(), all)
	return struct {
		Sandboxes []SandboxInfo `json:"sandboxes"`
	}{list}, err
}

// SandboxStart asks for a sandbox.
type SandboxStart struct {
	ID      string `json:"id,omitzero"`
	Profile string `json:"profile,omitzero"` // light if empty
	Wait    bool   `json:"wait,omitzero"`    // until it can be used
}

func (a *sandboxAPI) start(r *http.Request) (any, error) {
	var req SandboxStart
	if err := httpserver.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	s, err := a.gateway.Start(context.WithoutCancel(r.Context()), req.ID, cmp.Or(req.Profile, worker.Light().Name), "")
	if err != nil {
		return nil, err
	}
	if req.Wait {
		ctx, cancel := a.within(r.Context(), s.Record().Profile.Outer()+sandboxMargin)
		defer cancel()
		if err := s.Running(ctx); err != nil {
			return nil, err
		}
	}
	rec := s.Record()
	return a.gateway.info(&rec), nil
}

// within bounds a wait of a request, which ends with the API too.
func (a *sandboxAPI) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, d, errors.New("it took too long"))
	stop := context.AfterFunc(a.gone, cancel)
	return ctx, func() { stop(); cancel() }
}

func (a *sandboxAPI) show(r *http.Request) (any, error) {
	return a.gateway.Show(r.Context(), r.PathValue("id"))
}

// MaxSandboxWait is how long a command may wait until it can begin.
const MaxSandboxWait = time.Minute

// SandboxExec is a command for a sandbox.
type SandboxExec struct {
	Command string            `json:"command,omitzero"` // for the shell
	Args    []string          `json:"args,omitzero"`    // or a program with its arguments
	Cwd     string            `json:"cwd,omitzero"`     // empty: the workspace, or where a command of an agent left off
	Env     map[string]string `json:"env,omitzero"`
	Stdin   string            `json:"stdin,omitzero"`
	// TimeoutMS bounds the command; 0 is the most, SandboxTimeout.
	TimeoutMS int64 `json:"timeout_ms,omitzero"`
	Detach    bool  `json:"detach,omitzero"` // leave it as a job, without a time limit
	// WaitMS bounds the wait for a place where as many commands run as may, at most
	// MaxSandboxWait; 0 does not wait.
	WaitMS int64 `json:"wait_ms,omitzero"`
}

// SandboxLine is a line of the answer to exec: the job's name, then output as it
// comes, then the end or an error.
type SandboxLine struct {
	Job    string      `json:"job,omitzero"`
	Stream string      `json:"stream,omitzero"` // stdout or stderr
	Text   string      `json:"text,omitzero"`
	End    *SandboxEnd `json:"end,omitzero"`
	Error  string      `json:"error,omitzero"`
}

// SandboxEnd is how a command ended, or how a job stands.
type SandboxEnd struct {
	Running    bool   `json:"running,omitzero"`
	ExitCode   *int   `json:"exit_code"` // nil: a signal ended it, or it runs
	Signal     string `json:"signal,omitzero"`
	TimedOut   bool   `json:"timed_out"`
	DurationMS int64  `json:"duration_ms"`
	Omitted    int64  `json:"omitted_bytes"`
}

func (e *SandboxExec) arguments() (map[string]any, error) {
	switch {
	case (e.Command == "") == (len(e.Args) == 0):
		return nil, httpserver.Errorf(http.StatusBadRequest, "give command or args, and not both")
	case slices.ContainsFunc(e.Args, func(s string) bool { return strings.Contains(s, "\x00") }):
		return nil, httpserver.Errorf(http.StatusBadRequest, "args: there is a NUL in one")
	case e.TimeoutMS < 0 || e.TimeoutMS > SandboxTimeout.Milliseconds():
		return nil, httpserver.Errorf(http.StatusBadRequest, "timeout_ms %d: use 1 to %d", e.TimeoutMS, SandboxTimeout.Milliseconds())
	case e.WaitMS < 0 || e.WaitMS > MaxSandboxWait.Milliseconds():
		return nil, httpserver.Errorf(http.StatusBadRequest, "wait_ms %d: use 0 to %d", e.WaitMS, MaxSandboxWait.Milliseconds())
	case e.Detach && e.TimeoutMS != 0:
		return nil, httpserver.Errorf(http.StatusBadRequest, "timeout_ms: a detached command has no time limit but the sandbox's")
	}
	args := map[string]any{"command": e.Command}
	if len(e.Args) > 0 {
		args["command"] = shellCommand(e.Args)
	}
	for name, v := range map[string]string{"cwd": e.Cwd, "stdin": e.Stdin} {
		if v != "" {
			args[name] = v
		}
	}
	if len(e.Env) > 0 {
		args["env"] = e.Env
	}
	if e.WaitMS > 0 {
		args["wait_ms"] = e.WaitMS
	}
	return args, nil
}

// errCommandEnded is what becomes of a command when this process ends.
var errCommandEnded = httpserver.Errorf(http.StatusServiceUnavailable, "run command in sandbox: the process that serves ends, and the command with it")

// exec runs a command and streams what it writes. It is killed when the client
// goes away, unless it is detached.
func (a *sandboxAPI) exec(w http.ResponseWriter, r *http.Request) error {
	var req SandboxExec
	if err := httpserver.ReadJSON(r, &req); err != nil {
		return err
	}
	args, err := req.arguments()
	if err != nil {
		return err
	}
	s, err := a.gateway.caller(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.gone, cancel)()
	out := &lineWriter{w: w}
	if req.Detach {
		args["background"] = true
		job, err := callExec(ctx, s, args, time.Duration(req.WaitMS)*time.Millisecond)
		if err != nil {
			return err
		}
		return out.write(SandboxLine{Job: job.Job})
	}
	timeout := cmp.Or(time.Duration(req.TimeoutMS)*time.Millisecond, SandboxTimeout)
	job := &sandboxJob{session: s, timeout: timeout, wait: time.Duration(req.WaitMS) * time.Millisecond, begun: func(id string) error { return out.write(SandboxLine{Job: id}) }, pass: func(stream, text string) error {
		return out.write(SandboxLine{Stream: stream, Text: text})
	}}
	id, end, timedOut, err := job.run(ctx, args)
	if err != nil && id != "" && ctx.Err() != nil {
		killJob(s, id)
	}
	if err != nil && a.gone.Err() != nil {
		err = errCommandEnded
	}
	switch {
	case err != nil && !out.begun():
		return err
	case err != nil:
		_ = out.write(SandboxLine{Error: err.Error()})
	default:
		_ = out.write(SandboxLine{End: endOf(&end, timedOut)})
	}
	return nil
}

func endOf(a *execAnswer, timedOut bool) *SandboxEnd {
	return &SandboxEnd{Running: a.Running, ExitCode: a.ExitCode, Signal: a.Signal, TimedOut: timedOut, DurationMS: a.DurationMS, Omitted: a.Omitted}
}

// killJob ends a command that nobody waits for.
func killJob(s boxCaller, id string) {
	_, _ = callExec(context.Background(), s, map[string]any{"job": id, "action": "kill"}, 0) // its time is bounded
}

// lineWriter writes JSON, an object a line, each at once.
type lineWriter struct {
	w http.ResponseWriter

	mu    sync.Mutex
	wrote bool
}

func (l *lineWriter) begun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wrote
}

func (l *lineWriter) write(line SandboxLine) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.wrote {
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.Header().Set("Cache-Control", "no-store")
		l.wrote = true
	}
	enc := json.NewEncoder(l.w)
	enc.SetEscapeHTML(false)
	err := enc.Encode(line)
	if err == nil {
		err = http.NewResponseController(l.w).Flush()
	}
	if err != nil {
		return fmt.Errorf("pass output on: %w", err)
	}
	return nil
}

// SandboxTail is a part of what a job wrote.
type SandboxTail struct {
	SandboxEnd

	Job    string `json:"job"`
	Stream string `json:"stream"`
	Text   string `json:"text"`
	Offset int64  `json:"offset"` // where the text begins: later than asked if the rest is gone
	Next   int64  `json:"next_offset"`
}

// tail reads one stream of a job, and waits a little for more.
func (a *sandboxAPI) tail(r *http.Request) (any, error) {
	q := r.URL.Query()
	stream := cmp.Or(q.Get("stream"), "stdout")
	offset, err1 := number(q.Get("offset"))
	wait, err2 := number(q.Get("wait_ms"))
	switch {
	case err1 != nil || err2 != nil || wait > followWait.Milliseconds():
		return nil, httpserver.Errorf(http.StatusBadRequest, "offset and wait_ms: use numbers, and at most %d for the wait", followWait.Milliseconds())
	case stream != "stdout" && stream != "stderr":
		return nil, httpserver.Errorf(http.StatusBadRequest, "stream %.80q: use stdout or stderr", stream)
	case q.Get("job") == "":
		return nil, httpserver.Errorf(http.StatusBadRequest, "name a job: exec says it")
	}
	s, err := a.gateway.caller(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := a.within(r.Context(), followWait+2*sandboxMargin)
	defer cancel()
	ans, err := callExec(ctx, s, map[string]any{"job": q.Get("job"), "action": "tail", "stream": stream, "offset": offset, "wait_ms": wait}, followWait)
	if err != nil {
		return nil, err
	}
	return SandboxTail{
		SandboxEnd: *endOf(&ans, false), Job: q.Get("job"), Stream: stream, Text: ans.Stdout + ans.Stderr, Offset: ans.Offset, Next: ans.Next,
	}, nil
}

// number reads a query's number; empty is 0.
func number(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && n < 0 {
		err = strconv.ErrRange
	}
	return n, err
}

// SandboxRelease asks for the end of a sandbox.
type SandboxRelease struct {
	Reason worker.Reason `json:"reason,omitzero"` // explicit if empty
}

func (a *sandboxAPI) release(r *http.Request) (any, error) {
	var req SandboxRelease
	if err := httpserver.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	req.Reason = cmp.Or(req.Reason, worker.ReasonExplicit)
	if !req.Reason.Valid() {
		return nil, httpserver.Errorf(http.StatusBadRequest, "reason %.80q: use explicit, idle, deadline or failed", req.Reason)
	}
	ctx, cancel := a.within(r.Context(), SandboxTimeout+sandboxMargin) // calls may take as long
	defer cancel()
	rec, err := a.gateway.release(ctx, r.PathValue("id"), req.Reason)
	if err != nil {
		return nil, err
	}
	return a.gateway.info(&rec), nil
}

func (a *sandboxAPI) kill(r *http.Request) (any, error) {
	var req struct {
		Why string `json:"why"`
	}
	if err := httpserver.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	s, err := a.gateway.Session(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := a.within(r.Context(), sandboxMargin)
	defer cancel()
	if err := a.gateway.Kill(ctx, s, cmp.Or(strings.TrimSpace(req.Why), "asked for")); err != nil {
		return nil, err
	}
	rec := s.Record()
	return a.gateway.info(&rec), nil
}

// artifact sends what a sandbox has uploaded and reported. It is data of the
// sandbox: no browser is to take it for a page.
func (a *sandboxAPI) artifact(w http.ResponseWriter, r *http.Request) error {
	rec, err := a.gateway.record(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	uri := "store://" + r.PathValue("artifact")
	i := slices.IndexFunc(rec.Outputs, func(o worker.Output) bool { return o.URI == uri })
	if i < 0 {
		return httpserver.Errorf(http.StatusNotFound, "the sandbox %q has reported no artifact of this name", rec.ID)
	}
	content, size, err := a.gateway.artifacts.Open(uri)
	if errors.Is(err, gateway.ErrNoArtifact) {
		other := ""
		if a.gateway.o.Shared {
			other = ", or it is in the directory of another daemon"
		}
		return httpserver.Errorf(http.StatusGone, "the artifact %s was reported and is gone: artifacts are kept %s, and the oldest go first%s", r.PathValue("artifact"), a.gateway.artifacts.Bounds(), other)
	}
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	_, _ = io.Copy(w, content) // the client went away
	return nil
}
