package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/worker"
)

// sandboxFlags are the flags of ossicle sandbox run.
type sandboxFlags struct {
	profile   string
	timeout   time.Duration
	artifacts string
}

func newSandbox(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Run commands in sandboxes",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSandboxRun(e))
	cmd.AddCommand(sandboxCommands(e)...)
	return cmd
}

func newSandboxRun(e *env) *cobra.Command {
	f := &sandboxFlags{}
	cmd := &cobra.Command{
		Use:   "run -- COMMAND [ARG...]",
		Short: "Run one command in a new sandbox on this machine, and end with its exit code",
		Long: `Make a sandbox on this machine, run one command in it, and delete it. The command
has the programs of this machine, an empty workspace in memory and nothing else: no
network, no files of ours, none of our environment, no standard input. Files that it
leaves in /workspace/out are artifacts; --keep-artifacts keeps them.

Output is printed as it comes; what comes faster than it can be read is left out in
the middle, and counted there. The exit code is the command's; 124 if its time was
over, 125 if there was no sandbox or it was lost.

It needs Linux with bubblewrap or Landlock, and runs nothing where there is no
sandbox, unless a profile of the configuration file says so (driver: plain).`,
		Example: `  ossicle sandbox run -- python3 -c 'print(6*7)'
  ossicle sandbox run --timeout 30s --keep-artifacts kept -- sh -c 'mkdir out; date > out/now'`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, e, args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.profile, "profile", worker.Light().Name, "kind of sandbox: light, or one of the configuration file")
	flags.DurationVar(&f.timeout, "timeout", fleet.MaxTime, "time of the command, at most "+fleet.MaxTime.String())
	flags.StringVar(&f.artifacts, "keep-artifacts", "", "directory that keeps artifacts, each under the name of its address")
	return cmd
}

func (f *sandboxFlags) run(cmd *cobra.Command, e *env, args []string) error {
	switch {
	case len(args) == 0 || cmd.ArgsLenAtDash() != 0:
		return &usageError{errors.New("give a command after --")}
	case f.timeout <= 0 || f.timeout > fleet.MaxTime:
		return &usageError{fmt.Errorf("--timeout: give more than 0 and at most %s", fleet.MaxTime)}
	case slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "\x00") }):
		return &usageError{errors.New("the command has a NUL in it")}
	}
	c, err := e.load()
	if err != nil {
		return err
	}
	if _, known := c.Sandbox(f.profile); !known {
		return &usageError{fmt.Errorf("--profile: there is no profile %q; there are %s", f.profile, strings.Join(c.SandboxNames(), ", "))}
	}
	o := &fleet.RunOptions{Logger: e.log, Profile: f.profile, Timeout: f.timeout, Artifacts: f.artifacts}
	if !e.json {
		o.Stdout, o.Stderr = e.Out, e.Err
	}
	res, err := fleet.Run(cmd.Context(), c, args, o)
	if cmd.Context().Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return &sandboxError{err}
	}
	if e.json {
		err = writeJSON(e.Out, sandboxJSON(res))
	} else {
		err = f.printArtifacts(e, res)
	}
	if code := sandboxCode(res); err == nil && code != exitOK {
		return &codeError{code: code, reason: "the command failed", silent: true}
	}
	return err
}

// sandboxError marks a sandbox that could not be had or was lost.
type sandboxError struct{ err error }

func (e *sandboxError) Error() string { return e.err.Error() }
func (e *sandboxError) Unwrap() error { return e.err }

// sandboxCode is the exit code for how a command ended, as shells give it.
func sandboxCode(res fleet.Result) int {
	switch {
	case res.TimedOut:
		return exitTimeout
	case res.Exit != nil:
		return *res.Exit
	}
	for n := syscall.Signal(1); n < 65; n++ {
		if n.String() == res.Signal {
			return 128 + int(n)
		}
	}
	return exitSandbox
}

// printArtifacts tells, beside the output, what was kept.
func (f *sandboxFlags) printArtifacts(e *env, res fleet.Result) error {
	var b strings.Builder
	if res.TimedOut {
		fmt.Fprintf(&b, "ossicle: the command was ended: its time of %s was over\n", f.timeout)
	}
	switch {
	case !res.Session.OutputsFlushed:
		b.WriteString("ossicle: not all artifacts were stored\n")
	case f.artifacts == "" && len(res.Session.Outputs) > 0:
		fmt.Fprintf(&b, "ossicle: %s not kept; --keep-artifacts DIR keeps them\n", counted(len(res.Session.Outputs), "artifact", "was", "were"))
	}
	for _, o := range res.Session.Outputs {
		if f.artifacts != "" {
			fmt.Fprintf(&b, "ossicle: artifact %s  %s  %s\n", printable(o.URI), printable(o.Name), counted(o.Size, "byte"))
		}
	}
	_, err := e.Err.WriteString(b.String())
	return err
}

type sandboxReport struct {
	ExitCode   *int              `json:"exit_code"`
	Signal     string            `json:"signal,omitempty"`
	TimedOut   bool              `json:"timed_out"`
	DurationMS int64             `json:"duration_ms"`
	Stdout     string            `json:"stdout"`
	Stderr     string            `json:"stderr"`
	Omitted    int64             `json:"omitted_bytes"`
	Session    sandboxSession    `json:"session"`
	Artifacts  []sandboxArtifact `json:"artifacts"`
}

type sandboxSession struct {
	ID             string    `json:"id"`
	Profile        string    `json:"profile"`
	Tier           string    `json:"tier"`
	State          string    `json:"state"`
	Failure        string    `json:"failure,omitempty"`
	Detail         string    `json:"detail,omitempty"`
	Release        string    `json:"release,omitempty"`
	OutputsFlushed bool      `json:"outputs_flushed"`
	Created        time.Time `json:"created"`
	Channel        string    `json:"channel"`
}

type sandboxArtifact struct {
	URI      string `json:"uri"`
	Name     string `json:"name"`
	MIMEType string `json:"mime_type,omitempty"`
	Size     int64  `json:"size"`
}

func sandboxJSON(res fleet.Result) sandboxReport {
	rec := res.Session
	r := sandboxReport{
		ExitCode: res.Exit, Signal: res.Signal, TimedOut: res.TimedOut, DurationMS: res.Duration.Milliseconds(),
		Stdout: res.Stdout, Stderr: res.Stderr, Omitted: res.Omitted, Artifacts: []sandboxArtifact{},
		Session: sandboxSession{
			ID: rec.ID, Profile: rec.Profile.Name, Tier: res.Tier, State: string(rec.State), Failure: string(rec.Failure), Detail: rec.Detail,
			Release: string(rec.Release), OutputsFlushed: rec.OutputsFlushed, Created: rec.Created, Channel: rec.Versions.Effective,
		},
	}
	for _, o := range rec.Outputs {
		r.Artifacts = append(r.Artifacts, sandboxArtifact{URI: o.URI, Name: o.Name, MIMEType: o.MIMEType, Size: o.Size})
	}
	return r
}
