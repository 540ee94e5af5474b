package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
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
		program = []string{self, "worker"}
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
	mux.Handle("GET /{$}", r.host) // a worker on a socket dials its root
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
	ExitCode   *int   `json:"exit_code"`
	Signal     string `json:"signal"`
	TimedOut   bool   `json:"timed_out"`
	DurationMS int64  `json:"duration_ms"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	Omitted    int64  `json:"omitted_bytes"`
}

// exec runs the command and passes its output on.
func (r *sandboxRun) exec(ctx context.Context, args []string, res *SandboxResult) error {
	arguments, err := json.Marshal(map[string]any{"command": shellCommand(args), "timeout_ms": max(1, r.o.Timeout.Milliseconds())})
	if err != nil {
		return fmt.Errorf("write command: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.o.Timeout+sandboxMargin, errors.New("the sandbox did not answer in time"))
	defer cancel()
	answer, err := r.session.CallTool(ctx, "exec", jsontext.Value(arguments), nil)
	if err != nil {
		return err
	}
	var a execAnswer
	raw, _ := answer.StructuredContent.(interface{ MarshalJSON() ([]byte, error) })
	if raw != nil {
		text, err := raw.MarshalJSON()
		if err == nil {
			err = json.Unmarshal(text, &a)
		}
		if err != nil {
			return fmt.Errorf("read the sandbox's answer: %w", err)
		}
	}
	if a.ExitCode == nil && a.Signal == "" && !a.TimedOut {
		return fmt.Errorf("run command in sandbox: %s", said(answer))
	}
	res.Exit, res.Signal, res.TimedOut, res.Duration = a.ExitCode, a.Signal, a.TimedOut, time.Duration(a.DurationMS)*time.Millisecond
	res.Stdout, res.Stderr, res.Omitted = a.Stdout, a.Stderr, a.Omitted
	return errors.Join(passOn(r.o.Stdout, a.Stdout), passOn(r.o.Stderr, a.Stderr))
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
