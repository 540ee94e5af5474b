package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/worker"
)

// sandboxCommands use the sandboxes of ossicle serve --worker-gateway.
func sandboxCommands(e *env) []*cobra.Command {
	all := []*cobra.Command{}
	add := func(make func(*env, *daemonFlags) *cobra.Command) {
		f := &daemonFlags{}
		cmd := make(e, f)
		f.register(cmd.Flags())
		all = append(all, cmd)
	}
	for _, make := range []func(*env, *daemonFlags) *cobra.Command{
		newSandboxStart, newSandboxList, newSandboxShow, newSandboxExec, newSandboxTail, newSandboxRelease, newSandboxKill,
	} {
		add(make)
	}
	return all
}

func sandboxPath(id string, more ...string) string {
	parts := []string{"/v1/sandboxes", url.PathEscape(id)}
	for _, m := range more {
		parts = append(parts, url.PathEscape(m))
	}
	return strings.Join(parts, "/")
}

// onSandbox runs do against the daemon. What it says of a sandbox that cannot be
// had, or is over, is code 125 as with sandbox run.
func (f *daemonFlags) onSandbox(ctx context.Context, e *env, do func(*daemonClient) error) error {
	err := f.with(ctx, e, "", false, do)
	if p, ok := errors.AsType[*app.Problem](err); ok {
		switch p.Status {
		case http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable:
			return &sandboxError{p}
		}
	}
	return err
}

func newSandboxStart(e *env, f *daemonFlags) *cobra.Command {
	req := app.SandboxStart{}
	noWait := false
	cmd := &cobra.Command{
		Use:     "start",
		Short:   "Start a sandbox in ossicle serve, and print its id",
		Example: `  id=$(ossicle sandbox start) && ossicle sandbox exec $id -- make test && ossicle sandbox release $id`,
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			req.Wait = !noWait
			return f.onSandbox(cmd.Context(), e, func(c *daemonClient) error {
				var info app.SandboxInfo
				if err := c.call(cmd.Context(), http.MethodPost, "/v1/sandboxes", req, &info); err != nil {
					return err
				}
				if e.json {
					return writeJSON(e.Out, info)
				}
				_, err := fmt.Fprintln(e.Out, info.ID)
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.ID, "id", "", "id of the sandbox (default: a new one)")
	flags.StringVar(&req.Profile, "profile", worker.Light().Name, "kind of sandbox, of the daemon's configuration file")
	flags.BoolVar(&noWait, "no-wait", false, "do not wait until it can be used")
	return cmd
}

func newSandboxList(e *env, f *daemonFlags) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use: "list", Short: "List the sandboxes of ossicle serve", Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.onSandbox(cmd.Context(), e, func(c *daemonClient) error {
				var answer struct {
					Sandboxes []app.SandboxInfo `json:"sandboxes"`
				}
				if err := c.call(cmd.Context(), http.MethodGet, "/v1/sandboxes?all="+strconv.FormatBool(all), nil, &answer); err != nil {
					return err
				}
				return e.printSandboxes(answer.Sandboxes)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that are over")
	return cmd
}

func (e *env) printSandboxes(list []app.SandboxInfo) error {
	switch {
	case e.json:
		return writeJSON(e.Out, list)
	case len(list) == 0:
		_, err := fmt.Fprintln(e.Out, "no sandboxes")
		return err
	}
	table := newTable(e.Out)
	_, _ = fmt.Fprintln(table, "SANDBOX\tPROFILE\tSTATE\tTIER\tHEARTBEAT\tIDLE\tEXEC\tAGENT")
	for i := range list {
		s := &list[i]
		beat := "-"
		if s.HeartbeatAge != nil {
			beat = clock(*s.HeartbeatAge) + " ago"
		}
		state := string(s.State)
		if s.Failure != "" {
			state += " (" + string(s.Failure) + ")"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s of %s\t%s of %s\t%s\n", s.ID, s.Profile, state, dash(s.Tier), beat,
			clock(s.Idle), clock(s.IdleBudget), clock(s.Exec), clock(s.ExecBudget), dash(s.Agent))
	}
	return table.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}

// clock writes seconds as a person reads them.
func clock(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

func newSandboxShow(e *env, f *daemonFlags) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a sandbox: state, versions, clocks, outputs, and what happened to it", Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.onSandbox(cmd.Context(), e, func(c *daemonClient) error {
				var info app.SandboxInfo
				if err := c.call(cmd.Context(), http.MethodGet, sandboxPath(args[0]), nil, &info); err != nil {
					return err
				}
				return e.printSandbox(&info)
			})
		},
	}
}

func (e *env) printSandbox(s *app.SandboxInfo) error {
	if e.json {
		return writeJSON(e.Out, s)
	}
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", name, printable(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(&b, "%s: %s\n", s.ID, s.State)
	if s.Failure != "" {
		line("failed", "%s: %s", s.Failure, s.Detail)
	}
	line("profile", "%s, %s", s.Profile, strings.Join(slices.DeleteFunc([]string{s.Driver, s.Tier}, func(t string) bool { return t == "" }), ", "))
	if s.Agent != "" {
		line("agent", "%s", s.Agent)
	}
	where := "another host"
	if s.Here {
		where = "this one"
	}
	line("host", "%s (%s), %s", s.Owner, where, dash(s.HostImage))
	line("worker", "%s, attempt %d", dash(s.WorkerImage), s.Attempt)
	line("channel", "%s: host %s, worker %s, MCP %s", dash(s.Channel), dash(s.HostVersion), dash(s.WorkerVersion), dash(s.MCP))
	if s.HeartbeatAge != nil {
		line("heartbeat", "%s ago, %d calls under way, workspace %d bytes", clock(*s.HeartbeatAge), s.Calls, s.Workspace)
	}
	line("clocks", "idle %s of %s, exec %s of %s", clock(s.Idle), clock(s.IdleBudget), clock(s.Exec), clock(s.ExecBudget))
	if len(s.Tools) > 0 {
		line("tools", "%s", strings.Join(s.Tools, ", "))
	}
	if s.Release != "" {
		line("release", "%s, reported %t, outputs flushed %t", s.Release, s.Reported, s.OutputsFlushed)
	}
	for _, o := range s.Outputs {
		line("output", "%s  %s  %d bytes", o.URI, o.Name, o.Size)
	}
	for _, a := range s.Audit {
		line("audit", "%s %s %s", a.Time.Local().Format(time.DateTime), a.Event, a.Detail)
	}
	_, err := io.WriteString(e.Out, b.String())
	return err
}

// sandboxExecFlags are the flags of ossicle sandbox exec.
type sandboxExecFlags struct {
	timeout time.Duration
	cwd     string
	env     []string
	detach  bool
}

func newSandboxExec(e *env, f *daemonFlags) *cobra.Command {
	x := &sandboxExecFlags{}
	cmd := &cobra.Command{
		Use:   "exec ID -- COMMAND [ARG...]",
		Short: "Run a command in a sandbox of ossicle serve, and end with its exit code",
		Long: `Run a command in a sandbox that runs, print its output as it comes, and end with its
exit code. Each command is a process of its own: what it does to its directory and its
variables does not carry over to the next. A signal ends it. --detach leaves it as a job, whose
name is printed; see 'ossicle sandbox tail'.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return &usageError{errors.New("give the id of a sandbox, and a command after --")}
			}
			req, err := x.request(cmd, args[1:])
			if err != nil {
				return &usageError{err}
			}
			return f.onSandbox(cmd.Context(), e, func(c *daemonClient) error { return e.execIn(cmd.Context(), c, args[0], req) })
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&x.timeout, "timeout", app.SandboxTimeout, "time of the command, at most "+app.SandboxTimeout.String())
	flags.StringVar(&x.cwd, "cwd", "", "working directory (default: the workspace)")
	flags.StringArrayVar(&x.env, "env", nil, "variable of the command, KEY=VALUE (repeatable)")
	flags.BoolVar(&x.detach, "detach", false, "leave the command as a job and print its name")
	return cmd
}

func (x *sandboxExecFlags) request(cmd *cobra.Command, args []string) (*app.SandboxExec, error) {
	if x.timeout <= 0 || x.timeout > app.SandboxTimeout {
		return nil, fmt.Errorf("--timeout: give more than 0 and at most %s", app.SandboxTimeout)
	}
	req := &app.SandboxExec{Args: args, Cwd: x.cwd, Detach: x.detach}
	switch {
	case !x.detach:
		req.TimeoutMS = max(1, x.timeout.Milliseconds())
	case cmd.Flags().Changed("timeout"):
		return nil, errors.New("--timeout: a detached command has no time limit but the sandbox's")
	}
	for _, pair := range x.env {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--env %q: the form is KEY=VALUE", pair)
		}
		if req.Env == nil {
			req.Env = map[string]string{}
		}
		req.Env[name] = value
	}
	return req, nil
}

// sandboxExecReport is the answer to exec as one object.
type sandboxExecReport struct {
	Job string `json:"job"`
	app.SandboxEnd

	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

// execIn passes on what the daemon streams. With --json it is kept, within what
// the daemon sends in the time of a command.
func (e *env) execIn(ctx context.Context, c *daemonClient, id string, req *app.SandboxExec) error {
	body, err := c.send(ctx, http.MethodPost, sandboxPath(id, "exec"), req)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	report := sandboxExecReport{}
	var out, errs boundedText
	for dec := json.NewDecoder(body); ; {
		var line app.SandboxLine
		if err := dec.Decode(&line); err != nil {
			switch {
			case ctx.Err() != nil:
				return errInterrupted
			case req.Detach && report.Job != "":
				return e.printJob(report.Job)
			}
			return &sandboxError{fmt.Errorf("the answer broke off: %w", err)}
		}
		switch {
		case line.Job != "":
			report.Job = line.Job
		case line.Error != "":
			return &sandboxError{errors.New(line.Error)}
		case line.End != nil:
			report.SandboxEnd, report.Stdout, report.Stderr = *line.End, out.String(), errs.String()
			return e.endExec(&report)
		case e.json && line.Stream == "stderr":
			errs.add(line.Text)
		case e.json:
			out.add(line.Text)
		default:
			if err := e.passOn(line.Stream, line.Text); err != nil {
				return err
			}
		}
	}
}

func (e *env) passOn(stream, text string) error {
	to := e.Out
	if stream == "stderr" {
		to = e.Err
	}
	_, err := to.WriteString(text)
	return err
}

func (e *env) printJob(job string) error {
	if e.json {
		return writeJSON(e.Out, struct {
			Job string `json:"job"`
		}{job})
	}
	_, err := fmt.Fprintln(e.Out, job)
	return err
}

func (e *env) endExec(r *sandboxExecReport) error {
	if e.json {
		if err := writeJSON(e.Out, r); err != nil {
			return err
		}
	} else if r.TimedOut {
		if _, err := fmt.Fprintln(e.Err, "ossicle: the command was ended: its time was over"); err != nil {
			return err
		}
	}
	return endedWith(&r.SandboxEnd)
}

// endedWith is the exit code of a command, as an error that has been told.
func endedWith(end *app.SandboxEnd) error {
	code := sandboxCode(app.SandboxResult{Exit: end.ExitCode, Signal: end.Signal, TimedOut: end.TimedOut})
	if code == exitOK {
		return nil
	}
	return &codeError{code: code, reason: "the command failed", silent: true}
}

// keptText bounds what --json keeps of a stream, in bytes: the first half and the
// last.
const keptText = 256 << 10

// boundedText is the beginning and the end of a stream.
type boundedText struct {
	head, tail []byte
	lost       int64
}

func (b *boundedText) add(text string) {
	room := min(keptText/2-len(b.head), len(text))
	b.head = append(b.head, text[:room]...)
	b.tail = append(b.tail, text[room:]...)
	if over := len(b.tail) - keptText/2; over > 0 {
		b.tail, b.lost = append(b.tail[:0], b.tail[over:]...), b.lost+int64(over)
	}
}

// String returns what is kept.
func (b *boundedText) String() string {
	if b.lost == 0 {
		return string(b.head) + string(b.tail)
	}
	return strings.ToValidUTF8(fmt.Sprintf("%s\n[… %d bytes omitted …]\n%s", b.head, b.lost, b.tail), "�")
}

func newSandboxTail(e *env, f *daemonFlags) *cobra.Command {
	follow := false
	cmd := &cobra.Command{
		Use:   "tail ID JOB",
		Short: "Print what a job of a sandbox wrote; with --follow until it ends, and end with its exit code",
		Args:  usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.onSandbox(cmd.Context(), e, func(c *daemonClient) error {
				return e.tailJob(cmd.Context(), c, args[0], args[1], follow)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job ends")
	return cmd
}

// tailWait is how long the daemon waits for more.
const tailWait = 5 * time.Second

func (e *env) tailJob(ctx context.Context, c *daemonClient, id, job string, follow bool) error {
	offsets := map[string]int64{}
	step := func(stream string, wait time.Duration) (t app.SandboxTail, more bool, err error) {
		q := url.Values{"job": {job}, "stream": {stream}, "offset": {strconv.FormatInt(offsets[stream], 10)}, "wait_ms": {strconv.FormatInt(wait.Milliseconds(), 10)}}
		if err := c.call(ctx, http.MethodGet, sandboxPath(id, "tail")+"?"+q.Encode(), nil, &t); err != nil {
			return t, false, err
		}
		text := t.Text
		if lost := t.Offset - offsets[stream]; lost > 0 {
			text = fmt.Sprintf("\n[… %d bytes omitted …]\n", lost) + text
		}
		more, offsets[stream] = t.Next > offsets[stream], max(t.Next, offsets[stream])
		if e.json {
			return t, more, writeJSON(e.Out, t)
		}
		return t, more, e.passOn(stream, text)
	}
	for {
		wait := time.Duration(0)
		if follow {
			wait = tailWait
		}
		t, more, err := step("stdout", wait)
		if err != nil {
			return err
		}
		_, moreErrs, err := step("stderr", 0)
		switch {
		case err != nil:
			return err
		case more || moreErrs || follow && t.Running:
		case follow:
			return endedWith(&t.SandboxEnd)
		default:
			return nil
		}
	}
}

func newSandboxRelease(e *env, f *daemonFlags) *cobra.Command {
	req := app.SandboxRelease{}
	keep := ""
	cmd := &cobra.Command{
		Use:   "release ID",
		Short: "End a sandbox in good order: calls first, then its files below out/ are uploaded",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.onSandbox(cmd.Context(), e, func(c *daemonClient) error {
				var info app.SandboxInfo
				if err := c.call(cmd.Context(), http.MethodPost, sandboxPath(args[0], "release"), req, &info); err != nil {
					return err
				}
				if keep != "" {
					for _, o := range info.Outputs {
						if err := c.fetchArtifact(cmd.Context(), info.ID, strings.TrimPrefix(o.URI, "store://"), keep); err != nil {
							return err
						}
					}
				}
				return e.printReleased(&info)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar((*string)(&req.Reason), "reason", string(worker.ReasonExplicit), "explicit or idle wait for calls that are under way, deadline and failed do not")
	flags.StringVar(&keep, "keep-artifacts", "", "directory that gets the artifacts, each under the name of its address")
	return cmd
}

func (e *env) printReleased(s *app.SandboxInfo) error {
	if e.json {
		return writeJSON(e.Out, s)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", s.ID, s.State)
	for _, o := range s.Outputs {
		fmt.Fprintf(&b, "%s  %s  %d bytes\n", printable(o.URI), printable(o.Name), o.Size)
	}
	if !s.OutputsFlushed {
		b.WriteString("not all outputs were stored\n")
	}
	_, err := io.WriteString(e.Out, b.String())
	return err
}

// fetchArtifact writes an artifact below a directory. Its name is that of its
// address, which the daemon checks; here it is checked once more.
func (c *daemonClient) fetchArtifact(ctx context.Context, id, name, dir string) (err error) {
	if rest, ok := strings.CutPrefix(name, "art_"); !ok || strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return fmt.Errorf("keep artifact: %.80q is no address", name)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("keep artifact: %w", err)
	}
	body, err := c.send(ctx, http.MethodGet, sandboxPath(id, "artifacts", name), nil)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("keep artifact: %w", err)
	}
	_, err = io.Copy(file, body)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("keep artifact: %w", err)
	}
	return nil
}

func newSandboxKill(e *env, f *daemonFlags) *cobra.Command {
	why := ""
	cmd := &cobra.Command{
		Use: "kill ID", Short: "End a sandbox at once; nothing of it is kept", Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.onSandbox(cmd.Context(), e, func(c *daemonClient) error {
				var info app.SandboxInfo
				if err := c.call(cmd.Context(), http.MethodPost, sandboxPath(args[0], "kill"), map[string]string{"why": why}, &info); err != nil {
					return err
				}
				if e.json {
					return writeJSON(e.Out, info)
				}
				_, err := fmt.Fprintf(e.Out, "%s killed\n", info.ID)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&why, "why", "", "reason, for the record")
	return cmd
}
