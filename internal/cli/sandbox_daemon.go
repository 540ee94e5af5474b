package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/httpserver"
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
	parts := []string{"/v1/sandboxes", pathSegment(id)}
	for _, m := range more {
		parts = append(parts, pathSegment(m))
	}
	return strings.Join(parts, "/")
}

// onSandbox runs do against the daemon. What it says of a sandbox that cannot be
// had, or is over, is code 125 as with sandbox run.
func (f *daemonFlags) onSandbox(ctx context.Context, e *env, do func(*daemonClient) error) error {
	err := f.with(ctx, e, "", false, do)
	if p, ok := errors.AsType[*httpserver.Problem](err); ok {
		switch p.Status {
		case http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable:
			return &sandboxError{p}
		}
	}
	return err
}

// forSandbox is onSandbox for what cannot go on without a sandbox: also a daemon that
// makes none, or that gives no right to it, is why there is none.
func (f *daemonFlags) forSandbox(ctx context.Context, e *env, do func(*daemonClient) error) error {
	err := f.onSandbox(ctx, e, do)
	if p, ok := errors.AsType[*httpserver.Problem](err); ok && p.Status != http.StatusBadRequest && p.Status != http.StatusRequestEntityTooLarge {
		return &sandboxError{p}
	}
	return err
}

// inSandbox is forSandbox for what ends with the exit code of a command: that nobody
// could say is no code that a command has either.
func (f *daemonFlags) inSandbox(ctx context.Context, e *env, do func(*daemonClient) error) error {
	err := f.forSandbox(ctx, e, do)
	if errors.Is(err, errUnreachable) {
		return &codeError{code: exitSandbox, reason: err.Error()}
	}
	return err
}

func newSandboxStart(e *env, f *daemonFlags) *cobra.Command {
	req := fleet.StartRequest{}
	noWait := false
	cmd := &cobra.Command{
		Use:     "start",
		Short:   "Start a sandbox in ossicle serve, and print its id",
		Example: `  id=$(ossicle sandbox start) && ossicle sandbox exec $id -- make test && ossicle sandbox release $id`,
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			req.Wait = !noWait
			return f.forSandbox(cmd.Context(), e, func(c *daemonClient) error {
				var info fleet.Info
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
					Sandboxes []fleet.Info `json:"sandboxes"`
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

func (e *env) printSandboxes(list []fleet.Info) error {
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
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s of %s\t%s of %s\t%s\n", s.ID, s.Profile, sandboxState(s), dash(s.Tier), beat,
			clock(s.Idle), clock(s.IdleBudget), clock(s.Exec), clock(s.ExecBudget), dash(s.Agent))
	}
	return table.Flush()
}

// sandboxState says how a sandbox is. One that somebody killed has not failed.
func sandboxState(s *fleet.Info) string {
	switch {
	case s.Failure == worker.FailureKilled:
		return "killed"
	case s.Failure != "":
		return printable(fmt.Sprintf("%s (%s)", s.State, s.Failure))
	}
	return string(s.State)
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
				var info fleet.Info
				if err := c.call(cmd.Context(), http.MethodGet, sandboxPath(args[0]), nil, &info); err != nil {
					return err
				}
				return e.printSandbox(&info)
			})
		},
	}
}

func (e *env) printSandbox(s *fleet.Info) error {
	if e.json {
		return writeJSON(e.Out, s)
	}
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", name, printable(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(&b, "%s: %s\n", s.ID, sandboxState(s))
	switch {
	case s.Failure == worker.FailureKilled:
		line("killed", "%s", s.Detail)
	case s.Failure != "":
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
		line("heartbeat", "%s ago, %s under way, workspace %s", clock(*s.HeartbeatAge), counted(s.Calls, "call"), counted(s.Workspace, "byte"))
	}
	line("clocks", "idle %s of %s, exec %s of %s", clock(s.Idle), clock(s.IdleBudget), clock(s.Exec), clock(s.ExecBudget))
	if len(s.Tools) > 0 {
		line("tools", "%s", strings.Join(s.Tools, ", "))
	}
	if s.Release != "" {
		line("release", "%s, reported %t, outputs flushed %t", s.Release, s.Reported, s.OutputsFlushed)
	}
	for _, o := range s.Outputs {
		line("output", "%s  %s  %s", o.URI, o.Name, counted(o.Size, "byte"))
	}
	for _, a := range s.Audit {
		line("audit", "%s %s %s", a.Time.Local().Format(time.DateTime), a.Event, a.Detail)
	}
	_, err := io.WriteString(e.Out, b.String())
	return err
}

func newSandboxRelease(e *env, f *daemonFlags) *cobra.Command {
	req := fleet.ReleaseRequest{Reason: worker.ReasonExplicit}
	keep := ""
	cmd := &cobra.Command{
		Use:   "release ID",
		Short: "End a sandbox in good order: calls first, then its files below out/ are uploaded",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.onSandbox(cmd.Context(), e, func(c *daemonClient) error {
				if err := canKeep(keep); err != nil { // afterwards the sandbox is over
					return &usageError{err}
				}
				var info fleet.Info
				err := c.call(cmd.Context(), http.MethodPost, sandboxPath(args[0], "release"), req, &info)
				if err != nil {
					return err
				}
				for i := 0; keep != "" && err == nil && i < len(info.Outputs); i++ {
					err = c.fetchArtifact(cmd.Context(), info.ID, strings.TrimPrefix(info.Outputs[i].URI, "store://"), keep)
				}
				return errors.Join(e.printReleased(&info), err)
			})
		},
	}
	flags := cmd.Flags()
	choiceVar(flags, &req.Reason, "reason", "explicit or idle wait for calls that are under way, deadline and failed do not",
		worker.ReasonExplicit, worker.ReasonIdle, worker.ReasonDeadline, worker.ReasonFailed)
	flags.StringVar(&keep, "keep-artifacts", "", "directory that gets the artifacts, each under the name of its address")
	return cmd
}

// canKeep makes the directory for artifacts, and finds out whether it takes files.
func canKeep(dir string) error {
	if dir == "" {
		return nil
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var file *os.File
		if file, err = os.CreateTemp(dir, ".try-"); err == nil {
			err = errors.Join(file.Close(), os.Remove(file.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("--keep-artifacts: %w", err)
	}
	return nil
}

func (e *env) printReleased(s *fleet.Info) error {
	if e.json {
		return writeJSON(e.Out, s)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", s.ID, s.State)
	for _, o := range s.Outputs {
		fmt.Fprintf(&b, "%s  %s  %s\n", printable(o.URI), printable(o.Name), counted(o.Size, "byte"))
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
				var info fleet.Info
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
