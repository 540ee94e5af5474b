package app

import (
	"cmp"
	"context"
	"crypto/rand"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/sandbox"
	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/worker"
)

const (
	// sandboxStart bounds the way of a sandbox on this machine to its first call.
	sandboxStart = 30 * time.Second
	// sandboxMargin is what an answer may take beyond the command's time, and the
	// end of a sandbox beyond the worker's.
	sandboxMargin = 15 * time.Second
	// sandboxOutput is what the worker keeps of each stream, in bytes: a burst that
	// is larger loses its middle. Twice that, with each byte escaped, is a message.
	sandboxOutput = 256 << 10
)

// RunSandbox runs a program with its arguments in a new sandbox on this machine,
// with a gateway of its own, and ends the sandbox. The result is as far as it
// came also with an error. Errors: ErrNoSandbox, worker.ErrOver for a sandbox
// that was lost, and that of ctx, which ends command and sandbox.
func RunSandbox(ctx context.Context, args []string, o *SandboxOptions) (res SandboxResult, err error) {
	r := &sandboxRun{log: slog.New(slog.DiscardHandler)}
	if o != nil {
		r.o = *o
	}
	if r.o.Logger != nil {
		r.log = r.o.Logger
	}
	if r.o.Profile.Name == "" {
		r.o.Profile = worker.Light()
	}
	r.o.Timeout = min(cmp.Or(r.o.Timeout, SandboxTimeout), SandboxTimeout)
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	if err := r.open(ctx); err != nil {
		return SandboxResult{}, err
	}
	res.Tier = string(r.driver.Probe().Tier)
	err = r.start(ctx)
	if err == nil {
		err = r.exec(ctx, args, &res)
	}
	res.Session, err = r.release(ctx, err)
	return res, err
}

// sandboxRun is a gateway with one sandbox.
type sandboxRun struct {
	o   SandboxOptions
	log *slog.Logger

	dir       string
	driver    *sandbox.Local
	host      *worker.Host
	artifacts *gateway.Dir
	tokens    *gateway.Tokens
	gateway   *gateway.Gateway
	server    *http.Server
	serving   sync.WaitGroup
	session   *worker.Session
}

// open makes what a sandbox needs around it.
func (r *sandboxRun) open(ctx context.Context) (err error) {
	if r.dir, err = sandboxDir(); err != nil {
		return fmt.Errorf("make directory of sandbox: %w", err)
	}
	program := r.o.Program
	if program == nil {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find our own program: %w", err)
		}
		program = []string{self, "worker", "--output", strconv.Itoa(sandboxOutput)}
	}
	if program[0], err = reachable(program[0], filepath.Join(r.dir, "worker")); err != nil {
		return fmt.Errorf("give the sandbox its program: %w", err)
	}
	socket := filepath.Join(r.dir, "gw.sock")
	r.driver, err = sandbox.NewLocal(ctx, filepath.Join(r.dir, "boxes"), socket, program, &sandbox.LocalOptions{
		Logger: r.log, Exited: func(_ string, e sandbox.Exit) { r.session.Exited(exitDetail(e)) },
	})
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("make sandbox: %w", context.Cause(ctx))
	case errors.Is(err, sandbox.ErrNoSandbox):
		return fmt.Errorf("%w: %w; install bubblewrap (bwrap), util-linux (prlimit) and bash, and allow user namespaces", ErrNoSandbox, err)
	case err != nil:
		return err
	}
	if r.artifacts, err = gateway.OpenDir(cmp.Or(r.o.Artifacts, filepath.Join(r.dir, "artifacts")), nil); err != nil {
		return err
	}
	key, err := gateway.NewKey()
	if err != nil {
		return err
	}
	if r.tokens, err = gateway.NewTokens("unix://"+socket, key); err != nil {
		return err
	}
	r.host = worker.NewHost(r.tokens, nil, &worker.HostOptions{
		Logger: r.log, Image: version.Name + " " + version.Number(), Audit: quietAudit{r.log}, Sandboxes: r.driver,
	})
	r.gateway = gateway.New(r.host, r.tokens, r.artifacts, &gateway.Options{Logger: r.log})
	return r.serve(ctx, socket)
}

// serve listens on a socket to which the sandbox's user may connect. The token
// is what lets it in.
func (r *sandboxRun) serve(ctx context.Context, socket string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("serve gateway: %w", err)
	}
	mode := os.FileMode(0o600)
	if os.Geteuid() == 0 {
		mode = 0o666
	}
	if err := os.Chmod(socket, mode); err != nil {
		return errors.Join(fmt.Errorf("serve gateway: %w", err), l.Close())
	}
	mux := http.NewServeMux()
	r.gateway.Mount(mux)
	r.server = &http.Server{Handler: mux, ReadHeaderTimeout: sandboxMargin, ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug)}
	r.serving.Go(func() { _ = r.server.Serve(l) })
	return nil
}

// start makes the sandbox and waits until it can be used.
func (r *sandboxRun) start(ctx context.Context) error {
	id := "ses_" + strings.ToLower(rand.Text())
	sb, err := r.gateway.Open(ctx, r.tokens, id, "unix://"+filepath.Join(r.dir, "gw.sock"), r.o.Profile)
	if err != nil {
		return fmt.Errorf("open session: %w", err)
	}
	r.session = sb.Session
	if err := r.driver.Create(ctx, sandbox.Spec{Session: id, Env: sb.Env, Token: sb.Token}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, sandboxStart, fmt.Errorf("the sandbox was not ready within %s", sandboxStart))
	defer cancel()
	return r.session.Running(ctx)
}

// execAnswer is what the tool exec says of a command.
type execAnswer struct {
	Job        string `json:"job"`
	Running    bool   `json:"running"`
	ExitCode   *int   `json:"exit_code"`
	Signal     string `json:"signal"`
	DurationMS int64  `json:"duration_ms"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	Omitted    int64  `json:"omitted_bytes"`
	Offset     int64  `json:"offset"`
	Next       int64  `json:"next_offset"`
}

// call calls the tool exec once.
func (r *sandboxRun) call(ctx context.Context, arguments map[string]any, longest time.Duration) (a execAnswer, err error) {
	text, err := json.Marshal(arguments)
	if err != nil {
		return a, fmt.Errorf("write command: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, longest+sandboxMargin, errors.New("the sandbox did not answer in time"))
	defer cancel()
	answer, err := r.session.CallTool(ctx, "exec", jsontext.Value(text), nil)
	if err != nil {
		return a, err
	}
	raw, ok := answer.StructuredContent.(stdjson.RawMessage)
	if !ok || answer.IsError {
		return a, fmt.Errorf("run command in sandbox: %s", said(answer))
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, fmt.Errorf("read the sandbox's answer: %w", err)
	}
	return a, nil
}

// exec runs the command as a job, passes its output on as it comes, and ends it
// when its time is over.
func (r *sandboxRun) exec(ctx context.Context, args []string, res *SandboxResult) error {
	job, err := r.call(ctx, map[string]any{"command": shellCommand(args), "background": true}, 0)
	if err != nil {
		return err
	}
	out, errs := &follower{name: "stdout", to: r.o.Stdout}, &follower{name: "stderr", to: r.o.Stderr}
	for end := time.Now().Add(r.o.Timeout); ; {
		wait := min(time.Until(end), followWait)
		if wait <= 0 && !res.TimedOut {
			if _, err := r.call(ctx, map[string]any{"job": job.Job, "action": "kill"}, 0); err != nil {
				return err
			}
			res.TimedOut, end = true, time.Now().Add(sandboxMargin)
		} else if wait <= 0 {
			return errors.New("run command in sandbox: it was killed when its time was over, and did not end")
		}
		running, more, err := out.step(ctx, r, job.Job, max(wait, 0))
		if err != nil {
			return err
		}
		_, moreErrs, err := errs.step(ctx, r, job.Job, 0)
		if err != nil {
			return err
		}
		if !running && !more && !moreErrs {
			break
		}
	}
	a, err := r.call(ctx, map[string]any{"job": job.Job, "action": "status"}, 0)
	if err != nil {
		return err
	}
	res.Exit, res.Signal, res.Duration = a.ExitCode, a.Signal, time.Duration(a.DurationMS)*time.Millisecond
	res.Stdout, res.Stderr, res.Omitted = a.Stdout, a.Stderr, a.Omitted
	return nil
}

// followWait is how long one call waits for output. It is well below the time
// after which a sandbox that nobody calls is released.
const followWait = 10 * time.Second

// follower passes one stream of a job on.
type follower struct {
	name   string
	to     io.Writer
	offset int64
}

// step passes on what there is, and says whether the job still ran before.
func (f *follower) step(ctx context.Context, r *sandboxRun, job string, wait time.Duration) (running, more bool, err error) {
	a, err := r.call(ctx, map[string]any{
		"job": job, "action": "tail", "stream": f.name, "offset": f.offset, "wait_ms": wait.Milliseconds(),
	}, wait)
	if err != nil {
		return false, false, err
	}
	text := a.Stdout
	if f.name == "stderr" {
		text = a.Stderr
	}
	if lost := a.Offset - f.offset; lost > 0 {
		text = fmt.Sprintf("\n[… %d bytes omitted …]\n", lost) + text
	}
	more, f.offset = a.Next > f.offset, max(a.Next, f.offset)
	return a.Running, more, passOn(f.to, text)
}

func passOn(w io.Writer, text string) error {
	if w == nil {
		return nil
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("pass output on: %w", err)
	}
	return nil
}

// said is the text of an answer, for an error: from the sandbox, so quoted.
func said(answer *mcp.CallToolResult) string {
	for _, c := range answer.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			return fmt.Sprintf("%.300q", text.Text)
		}
	}
	return "it answered nothing"
}

// release ends the sandbox, whatever happened before; also when ctx has ended.
func (r *sandboxRun) release(ctx context.Context, before error) (worker.Record, error) {
	if r.session == nil {
		return worker.Record{}, before
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Profile.Budgets.ReleaseGrace+sandboxMargin)
	defer cancel()
	if before != nil && !r.session.Record().EverRan {
		// Nothing in it is worth a wait: its end is a failure, with what is known of it.
		before = errors.Join(before, r.driver.Delete(ctx, r.session.ID()))
		return r.session.Record(), before
	}
	rec, err := r.session.Release(ctx, worker.ReasonExplicit)
	return rec, errors.Join(before, err)
}

// close takes everything down, last first.
func (r *sandboxRun) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sandboxMargin)
	defer cancel()
	var errs []error
	if r.driver != nil {
		errs = append(errs, r.driver.Close(ctx))
	}
	if r.host != nil {
		r.host.Close()
	}
	if r.server != nil {
		errs = append(errs, r.server.Close())
		r.serving.Wait()
	}
	if r.artifacts != nil {
		errs = append(errs, r.artifacts.Close())
	}
	if r.dir != "" {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	return errors.Join(errs...)
}

// quietAudit logs what there is to audit for whoever wants to see every step: the
// only session is the caller's own, who sees how it ends.
type quietAudit struct{ log *slog.Logger }

func (a quietAudit) Audit(e worker.AuditEntry) {
	a.log.Debug("session audit", logattr.Session(e.Session), logattr.Event(e.Event), logattr.Reason(e.Detail))
}

// exitDetail says how a worker ended; what it wrote is from the sandbox.
func exitDetail(e sandbox.Exit) string {
	detail := e.String()
	if text := strings.TrimSpace(e.Stderr); text != "" {
		detail += fmt.Sprintf(": %.300q", text)
	}
	return detail
}

// shellCommand runs exactly a program with its arguments: no word of it means
// anything to the shell.
func shellCommand(args []string) string {
	var b strings.Builder
	b.WriteString("exec --")
	for _, a := range args {
		b.WriteString(" '" + strings.ReplaceAll(a, "'", `'\''`) + "'")
	}
	return b.String()
}

// sandboxDir makes a directory that the user of sandboxes can pass through: when
// we are root that is another, and a TMPDIR of our own is no place for it.
func sandboxDir() (string, error) {
	parent := os.TempDir()
	if os.Geteuid() == 0 && !passable(parent) {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "ossicle-sandbox-") // a socket's path must be short
	if err != nil || os.Geteuid() != 0 {
		return dir, err
	}
	return dir, os.Chmod(dir, 0o711)
}

// passable reports whether everybody can pass through a directory and all above.
func passable(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		return true
	}
}

// reachable is the program where the user of sandboxes can run it: itself, or a
// copy.
func reachable(program, copied string) (string, error) {
	info, err := os.Stat(program)
	if err != nil || os.Geteuid() != 0 || (passable(filepath.Dir(program)) && info.Mode()&0o005 == 0o005) {
		return program, err
	}
	in, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(copied, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, in)
	return copied, errors.Join(err, out.Chmod(0o755), out.Close())
}
