package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/fleet"
)

// sandboxExecFlags are the flags of ossicle sandbox exec.
type sandboxExecFlags struct {
	timeout time.Duration
	wait    time.Duration
	cwd     string
	env     []string
	stdin   bool
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
name is printed; see 'ossicle sandbox tail'.

The command's standard input is empty. With --stdin it is ours, which is read to its end
before the command begins: text of at most 2 MiB.`,
		Example: `  ossicle sandbox exec $id -- make test
  ossicle sandbox exec $id --stdin -- sh -c 'cat > input.csv' <input.csv
  tar c src | base64 | ossicle sandbox exec $id -i -- sh -c 'base64 -d | tar x'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return &usageError{errors.New("give the id of a sandbox, and a command after --")}
			}
			req, err := x.request(cmd, args[1:])
			if err != nil {
				return &usageError{err}
			}
			return f.inSandbox(cmd.Context(), e, func(c *daemonClient) error {
				if x.stdin {
					if req.Stdin, err = commandInput(cmd.Context(), e.In); err != nil {
						return err
					}
				}
				return e.execIn(cmd.Context(), c, args[0], req)
			})
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&x.timeout, "timeout", fleet.MaxTime, "time of the command, at most "+fleet.MaxTime.String())
	flags.DurationVar(&x.wait, "wait", fleet.MaxWait, "wait this long for its turn where as many commands run as may (16), at most "+fleet.MaxWait.String())
	flags.StringVar(&x.cwd, "cwd", "", "working directory (default: the workspace)")
	flags.StringArrayVar(&x.env, "env", nil, "variable of the command, KEY=VALUE (repeatable)")
	flags.BoolVarP(&x.stdin, "stdin", "i", false, "give the command our standard input, once that has ended")
	flags.BoolVar(&x.detach, "detach", false, "leave the command as a job and print its name")
	return cmd
}

func (x *sandboxExecFlags) request(cmd *cobra.Command, args []string) (*fleet.ExecRequest, error) {
	if x.timeout <= 0 || x.timeout > fleet.MaxTime {
		return nil, fmt.Errorf("--timeout: give more than 0 and at most %s", fleet.MaxTime)
	}
	if x.wait < 0 || x.wait > fleet.MaxWait {
		return nil, fmt.Errorf("--wait: give 0 to %s", fleet.MaxWait)
	}
	req := &fleet.ExecRequest{Args: args, Cwd: x.cwd, Detach: x.detach, WaitMS: x.wait.Milliseconds()}
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
	fleet.End

	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

// execIn passes on what the daemon streams. With --json it is kept, within what
// the daemon sends in the time of a command.
func (e *env) execIn(ctx context.Context, c *daemonClient, id string, req *fleet.ExecRequest) error {
	body, err := c.send(ctx, http.MethodPost, sandboxPath(id, "exec"), req)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	report := sandboxExecReport{}
	var out, errs boundedText
	for dec := json.NewDecoder(body); ; {
		var line fleet.Line
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
			report.End, report.Stdout, report.Stderr = *line.End, out.String(), errs.String()
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
	return endedWith(&r.End)
}

// endedWith is the exit code of a command, as an error that has been told.
func endedWith(end *fleet.End) error {
	code := sandboxCode(fleet.Result{Exit: end.ExitCode, Signal: end.Signal, TimedOut: end.TimedOut})
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
			return f.inSandbox(cmd.Context(), e, func(c *daemonClient) error {
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
	step := func(stream string, wait time.Duration) (t fleet.Tail, more bool, err error) {
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
			return endedWith(&t.End)
		default:
			return nil
		}
	}
}
