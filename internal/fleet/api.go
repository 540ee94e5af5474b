package fleet

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

// API is the JSON API of sandboxes; docs/reference/api.md is its page.
type API struct {
	fleet *Fleet // nil: this process has none
	base  *httpserver.API

	gone context.Context //nolint:containedctx // ends with the API, and what its requests began
	end  context.CancelFunc
}

// NewAPI returns the API of a fleet; that of a nil one says what to start. base makes
// its routes, and bounds their requests. The caller ends it.
func NewAPI(f *Fleet, base *httpserver.API) *API {
	a := &API{fleet: f, base: base}
	a.gone, a.end = context.WithCancel(context.Background())
	return a
}

// End ends what requests wait for, and the commands that they began.
func (a *API) End() { a.end() }

const apiPath = "/v1/sandboxes"

// Routes are those of the API, and of the gateway: workers come in beside it.
func (a *API) Routes() []httpserver.Route {
	api := a.base
	if a.fleet == nil {
		none := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			api.Fail(w, httpserver.Errorf(http.StatusNotFound, "this process has no gateway for sandboxes; start it with 'ossicle serve --worker-gateway'"))
		})
		return []httpserver.Route{{Pattern: apiPath, Handler: none}, {Pattern: apiPath + "/", Handler: none}}
	}
	inputs := *api // of commands, which are sent on as one message
	inputs.MaxBody = max(api.MaxBody, worker.MaxMessage)
	raw := func(pattern string, do func(http.ResponseWriter, *http.Request) error) httpserver.Route {
		return inputs.Raw(pattern, mayUse, func(w http.ResponseWriter, r *http.Request) error {
			return problem(r.PathValue("id"), do(w, r))
		})
	}
	route := func(pattern string, do func(*http.Request) (any, error), query ...string) httpserver.Route {
		return api.JSON(pattern, mayUse, func(r *http.Request) (any, error) {
			v, err := do(r)
			return v, problem(r.PathValue("id"), err)
		}, query...)
	}
	return append([]httpserver.Route{
		route("GET "+apiPath, a.list, "all"),
		route("POST "+apiPath, a.start),
		route("GET "+apiPath+"/{id}", a.show),
		raw("POST "+apiPath+"/{id}/exec", a.exec),
		route("GET "+apiPath+"/{id}/tail", a.tail, "job", "stream", "offset", "wait_ms"),
		route("POST "+apiPath+"/{id}/release", a.release),
		route("POST "+apiPath+"/{id}/kill", a.kill),
		raw("GET "+apiPath+"/{id}/artifacts/{artifact}", a.artifact),
	}, a.fleet.routes()...)
}

// mayUse checks that whoever asks may run commands here: that takes the
// right to all sessions, as starting an agent does.
func mayUse(r *http.Request) error {
	p, known := httpserver.PrincipalOf(r.Context())
	if !known || slices.Contains(p.Rights.Sessions, "*") {
		return nil
	}
	return httpserver.Errorf(http.StatusForbidden, "the token of %q gives no right to sandboxes: that takes the right to all sessions", p.Name)
}

func (a *API) list(r *http.Request) (any, error) {
	all, err := httpserver.QueryBool(r, "all")
	if err != nil {
		return nil, err
	}
	list, err := a.fleet.List(r.Context(), all)
	return struct {
		Sandboxes []Info `json:"sandboxes"`
	}{list}, err
}

// StartRequest asks for a sandbox.
type StartRequest struct {
	ID      string `json:"id,omitzero"`
	Profile string `json:"profile,omitzero"` // light if empty
	Wait    bool   `json:"wait,omitzero"`    // until it can be used
}

func (a *API) start(r *http.Request) (any, error) {
	var req StartRequest
	if err := httpserver.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	s, err := a.fleet.Start(context.WithoutCancel(r.Context()), req.ID, cmp.Or(req.Profile, worker.Light().Name), "")
	if err != nil {
		return nil, err
	}
	if req.Wait {
		ctx, cancel := a.within(r.Context(), s.Record().Profile.Outer()+margin)
		defer cancel()
		if err := s.Running(ctx); err != nil {
			return nil, err
		}
	}
	rec := s.Record()
	return a.fleet.info(&rec), nil
}

// within bounds a wait of a request, which ends with the API too.
func (a *API) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, d, errors.New("it took too long"))
	stop := context.AfterFunc(a.gone, cancel)
	return ctx, func() { stop(); cancel() }
}

func (a *API) show(r *http.Request) (any, error) {
	return a.fleet.Show(r.Context(), r.PathValue("id"))
}

const (
	// MaxWait is how long a command may wait until it can begin.
	MaxWait = time.Minute
	// MaxStdin bounds the standard input of a command, in bytes. It goes into one message
	// of the channel, where a byte that JSON escapes takes two or six.
	MaxStdin = 2 << 20
)

// ExecRequest is a command for a sandbox.
type ExecRequest struct {
	Command string            `json:"command,omitzero"` // for the shell
	Args    []string          `json:"args,omitzero"`    // or a program with its arguments
	Cwd     string            `json:"cwd,omitzero"`     // empty: the workspace, or where a command of an agent left off
	Env     map[string]string `json:"env,omitzero"`
	Stdin   string            `json:"stdin,omitzero"` // at most MaxStdin
	// TimeoutMS bounds the command; 0 is the most, MaxTime.
	TimeoutMS int64 `json:"timeout_ms,omitzero"`
	Detach    bool  `json:"detach,omitzero"` // leave it as a job, without a time limit
	// WaitMS bounds the wait for a place where as many commands run as may, at most
	// MaxWait; 0 does not wait.
	WaitMS int64 `json:"wait_ms,omitzero"`
}

// Line is a line of the answer to exec: the job's name, then output as it
// comes, then the end or an error.
type Line struct {
	Job    string `json:"job,omitzero"`
	Stream string `json:"stream,omitzero"` // stdout or stderr
	Text   string `json:"text,omitzero"`
	End    *End   `json:"end,omitzero"`
	Error  string `json:"error,omitzero"`
}

// End is how a command ended, or how a job stands.
type End struct {
	Running    bool   `json:"running,omitzero"`
	ExitCode   *int   `json:"exit_code"` // nil: a signal ended it, or it runs
	Signal     string `json:"signal,omitzero"`
	TimedOut   bool   `json:"timed_out"`
	DurationMS int64  `json:"duration_ms"`
	Omitted    int64  `json:"omitted_bytes"`
}

func (e *ExecRequest) arguments() (map[string]any, error) {
	switch {
	case (e.Command == "") == (len(e.Args) == 0):
		return nil, httpserver.Errorf(http.StatusBadRequest, "give command or args, and not both")
	case slices.ContainsFunc(e.Args, func(s string) bool { return strings.Contains(s, "\x00") }):
		return nil, httpserver.Errorf(http.StatusBadRequest, "args: there is a NUL in one")
	case e.TimeoutMS < 0 || e.TimeoutMS > MaxTime.Milliseconds():
		return nil, httpserver.Errorf(http.StatusBadRequest, "timeout_ms %d: use 1 to %d", e.TimeoutMS, MaxTime.Milliseconds())
	case e.WaitMS < 0 || e.WaitMS > MaxWait.Milliseconds():
		return nil, httpserver.Errorf(http.StatusBadRequest, "wait_ms %d: use 0 to %d", e.WaitMS, MaxWait.Milliseconds())
	case len(e.Stdin) > MaxStdin:
		return nil, httpserver.Errorf(http.StatusRequestEntityTooLarge, "stdin has %d bytes, and %d are the most: send it in pieces", len(e.Stdin), MaxStdin)
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
func (a *API) exec(w http.ResponseWriter, r *http.Request) error {
	var req ExecRequest
	if err := httpserver.ReadJSON(r, &req); err != nil {
		return err
	}
	args, err := req.arguments()
	if err != nil {
		return err
	}
	s, err := a.fleet.caller(r.Context(), r.PathValue("id"))
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
		return out.write(Line{Job: job.Job})
	}
	timeout := cmp.Or(time.Duration(req.TimeoutMS)*time.Millisecond, MaxTime)
	job := &followedJob{session: s, timeout: timeout, wait: time.Duration(req.WaitMS) * time.Millisecond, begun: func(id string) error { return out.write(Line{Job: id}) }, pass: func(stream, text string) error {
		return out.write(Line{Stream: stream, Text: text})
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
		_ = out.write(Line{Error: err.Error()})
	default:
		_ = out.write(Line{End: endOf(&end, timedOut)})
	}
	return nil
}

func endOf(a *execAnswer, timedOut bool) *End {
	return &End{Running: a.Running, ExitCode: a.ExitCode, Signal: a.Signal, TimedOut: timedOut, DurationMS: a.DurationMS, Omitted: a.Omitted}
}

// killJob ends a command that nobody waits for.
func killJob(s caller, id string) {
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

func (l *lineWriter) write(line Line) error {
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

// Tail is a part of what a job wrote.
type Tail struct {
	End

	Job    string `json:"job"`
	Stream string `json:"stream"`
	Text   string `json:"text"`
	Offset int64  `json:"offset"` // where the text begins: later than asked if the rest is gone
	Next   int64  `json:"next_offset"`
}

// tail reads one stream of a job, and waits a little for more.
func (a *API) tail(r *http.Request) (any, error) {
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
	s, err := a.fleet.caller(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := a.within(r.Context(), followWait+2*margin)
	defer cancel()
	ans, err := callExec(ctx, s, map[string]any{"job": q.Get("job"), "action": "tail", "stream": stream, "offset": offset, "wait_ms": wait}, followWait)
	if err != nil {
		return nil, err
	}
	return Tail{
		End: *endOf(&ans, false), Job: q.Get("job"), Stream: stream, Text: ans.Stdout + ans.Stderr, Offset: ans.Offset, Next: ans.Next,
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

// ReleaseRequest asks for the end of a sandbox.
type ReleaseRequest struct {
	Reason worker.Reason `json:"reason,omitzero"` // explicit if empty
}

func (a *API) release(r *http.Request) (any, error) {
	var req ReleaseRequest
	if err := httpserver.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	req.Reason = cmp.Or(req.Reason, worker.ReasonExplicit)
	if !req.Reason.Valid() {
		return nil, httpserver.Errorf(http.StatusBadRequest, "reason %.80q: use explicit, idle, deadline or failed", req.Reason)
	}
	ctx, cancel := a.within(r.Context(), MaxTime+margin) // calls may take as long
	defer cancel()
	rec, err := a.fleet.release(ctx, r.PathValue("id"), req.Reason)
	if err != nil {
		return nil, err
	}
	return a.fleet.info(&rec), nil
}

func (a *API) kill(r *http.Request) (any, error) {
	var req struct {
		Why string `json:"why"`
	}
	if err := httpserver.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	s, err := a.fleet.Session(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := a.within(r.Context(), margin)
	defer cancel()
	if err := a.fleet.Kill(ctx, s, cmp.Or(strings.TrimSpace(req.Why), "asked for")); err != nil {
		return nil, err
	}
	rec := s.Record()
	return a.fleet.info(&rec), nil
}

// artifact sends what a sandbox has uploaded and reported. It is data of the
// sandbox: no browser is to take it for a page.
func (a *API) artifact(w http.ResponseWriter, r *http.Request) error {
	rec, err := a.fleet.record(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	uri := "store://" + r.PathValue("artifact")
	i := slices.IndexFunc(rec.Outputs, func(o worker.Output) bool { return o.URI == uri })
	if i < 0 {
		return httpserver.Errorf(http.StatusNotFound, "the sandbox %q has reported no artifact of this name", rec.ID)
	}
	content, size, err := a.fleet.artifacts.Open(uri)
	if errors.Is(err, gateway.ErrNoArtifact) {
		other := ""
		if a.fleet.shared {
			other = ", or it is in the directory of another daemon"
		}
		return httpserver.Errorf(http.StatusGone, "the artifact %s was reported and is gone: artifacts are kept %s, and the oldest go first%s", r.PathValue("artifact"), a.fleet.artifacts.Bounds(), other)
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

// problem maps the errors of a sandbox to the status that the API answers.
func problem(id string, err error) error {
	var api *httpserver.StatusError
	status := http.StatusUnprocessableEntity
	switch {
	case err == nil, errors.As(err, &api):
		return err
	case errors.As(err, new(*InvalidError)), errors.As(err, new(*ProfileError)):
		status = http.StatusBadRequest
	case errors.As(err, new(*http.MaxBytesError)):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, worker.ErrUnknownSession): // which is what the channel calls it
		return httpserver.Errorf(http.StatusNotFound, "find sandbox %.80q: there is none; 'ossicle sandbox list --all' lists them", id)
	case errors.As(err, new(*ExistsError)), errors.As(err, new(*ElsewhereError)), errors.Is(err, worker.ErrOver), errors.Is(err, worker.ErrReleasing):
		status = http.StatusConflict
	case errors.Is(err, ErrTooMany), errors.Is(err, worker.ErrBusy):
		status = http.StatusTooManyRequests
	case errors.Is(err, ErrClosed), errors.Is(err, worker.ErrDraining):
		status = http.StatusServiceUnavailable
	}
	return &httpserver.StatusError{Status: status, Err: err}
}
