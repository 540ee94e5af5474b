package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// execArgs are the arguments of the tool exec.
type execArgs struct {
	Command    string            `json:"command,omitempty" jsonschema:"the shell command to run"`
	Cwd        string            `json:"cwd,omitempty" jsonschema:"working directory; default is where the last command left off"`
	Env        map[string]string `json:"env,omitempty" jsonschema:"variables for this command"`
	Stdin      string            `json:"stdin,omitempty" jsonschema:"standard input; default is empty"`
	TimeoutMS  int64             `json:"timeout_ms,omitempty" jsonschema:"time limit in milliseconds; default 120000, at most 600000"`
	Background bool              `json:"background,omitempty" jsonschema:"return at once; the command goes on as a job"`
	Restart    bool              `json:"restart,omitempty" jsonschema:"end all commands and forget working directory and variables"`
	Job        string            `json:"job,omitempty" jsonschema:"id of a job to look at or to kill; with no command and no job, jobs are listed if action is list"`
	Action     string            `json:"action,omitempty" jsonschema:"for jobs: status, tail, kill or list"`
	Offset     int64             `json:"offset,omitempty" jsonschema:"for tail: byte of the output to begin at"`
	Stream     string            `json:"stream,omitempty" jsonschema:"for tail: stdout or stderr alone; default is both as they came"`
	WaitMS     int64             `json:"wait_ms,omitempty" jsonschema:"how long to wait, in milliseconds: for tail for new output, for background until fewer jobs run than may"`
}

// execResult is the structured result of exec.
type execResult struct {
	Job        string `json:"job,omitempty"`
	Running    bool   `json:"running,omitempty"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	Signal     string `json:"signal,omitempty"`
	TimedOut   bool   `json:"timed_out,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Cwd        string `json:"cwd,omitempty"`
	Stdout     string `json:"stdout,omitempty"`
	Stderr     string `json:"stderr,omitempty"`
	Omitted    int64  `json:"omitted_bytes,omitempty"`
	Held       bool   `json:"output_held,omitempty"`
	Offset     int64  `json:"offset,omitempty"`
	Next       int64  `json:"next_offset,omitempty"`
}

const execDescription = `Run a shell command in the workspace.
The working directory and exported variables carry over to the next command; shell functions do not. Output is cut in the middle when it is long.
A command that runs out of time is killed with its whole tree. Use background for servers and long jobs, then action tail or kill with the job's id.`

// AddExec adds the tool exec to a server.
func AddExec(server *mcp.Server, s *Shell) {
	mcp.AddTool(server, &mcp.Tool{Name: "exec", Title: "Run a command", Description: execDescription},
		func(ctx context.Context, req *mcp.CallToolRequest, a execArgs) (*mcp.CallToolResult, execResult, error) {
			text, res, failed, err := s.exec(ctx, a, progressOf(ctx, req))
			if err != nil {
				return nil, execResult{}, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: failed}, res, nil
		})
}

// progressOf reports output to a caller that wants it.
func progressOf(ctx context.Context, req *mcp.CallToolRequest) func(int64, string) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	return func(total int64, newest string) {
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(total), Message: newest})
	}
}

func (s *Shell) exec(ctx context.Context, a execArgs, progress func(int64, string)) (text string, res execResult, failed bool, err error) {
	c := Command{Text: a.Command, Cwd: a.Cwd, Env: a.Env, Stdin: a.Stdin, Timeout: time.Duration(a.TimeoutMS) * time.Millisecond}
	switch {
	case a.TimeoutMS < 0 || a.TimeoutMS > MaxTimeout.Milliseconds():
		return "", res, false, fmt.Errorf("timeout_ms must be between 0 and %d", MaxTimeout.Milliseconds())
	case a.Restart:
		return "Restarted: no command runs, the working directory is the workspace.\n", res, false, s.Restart(ctx)
	case a.Job != "" || a.Action == "list":
		return s.execJob(ctx, a)
	case a.Command == "":
		return "", res, false, errors.New("give a command, or a job with an action, or restart")
	case a.Background:
		c.Wait = time.Duration(a.WaitMS) * time.Millisecond
		j, err := s.Background(ctx, c)
		if err != nil {
			return "", res, false, err
		}
		return fmt.Sprintf("Started as %s.\n", j.ID), execResult{Job: j.ID, Running: true}, false, nil
	}
	o, err := s.Run(ctx, c, progress)
	if err != nil {
		return "", res, false, err
	}
	return o.text(), o.structured(), !o.good(), nil
}

func (s *Shell) execJob(ctx context.Context, a execArgs) (text string, res execResult, failed bool, err error) {
	switch a.Action {
	case "list":
		jobs, err := s.Jobs(ctx)
		if err != nil {
			return "", res, false, err
		}
		lines := []string{fmt.Sprintf("%d jobs", len(jobs))}
		for _, j := range jobs {
			lines = append(lines, j.brief())
		}
		return strings.Join(lines, "\n") + "\n", res, false, nil
	case "kill":
		j, err := s.Kill(ctx, a.Job)
		if err != nil {
			return "", res, false, err
		}
		return j.brief() + "\n", j.structured(), false, nil
	case "", "status":
		j, err := s.find(ctx, a.Job)
		if err != nil {
			return "", res, false, err
		}
		return j.job().brief() + "\n", j.job().structured(), false, nil
	case "tail":
		p, err := s.tail(ctx, a.Job, a.Stream, a.Offset, time.Duration(a.WaitMS)*time.Millisecond)
		if err != nil {
			return "", res, false, err
		}
		res = p.job.structured()
		res.Stdout, res.Stderr = "", ""
		switch a.Stream {
		case "stdout":
			res.Stdout = p.text
		case "stderr":
			res.Stderr = p.text
		}
		res.Offset, res.Next = p.from, p.next
		return fmt.Sprintf("%s[%s; output from byte %d]\n", ended(p.text), p.job.status(), p.from), res, false, nil
	}
	return "", res, false, fmt.Errorf("the action %.40q is not one of status, tail, kill, list", a.Action)
}

// good reports whether a command did what it was asked.
func (o Outcome) good() bool { return o.Exit != nil && *o.Exit == 0 && !o.TimedOut && !o.Canceled }

func ended(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

// text is what a model reads: the output, then how it ended.
func (o Outcome) text() string {
	return fmt.Sprintf("%s[%s; in %s]\n", ended(o.Output), o.status(), o.Cwd)
}

func (o Outcome) structured() execResult {
	return execResult{
		ExitCode: o.Exit, Signal: o.Signal, TimedOut: o.TimedOut, DurationMS: o.Duration.Milliseconds(),
		Cwd: o.Cwd, Stdout: o.Stdout, Stderr: o.Stderr, Omitted: o.Omitted, Held: o.Held,
	}
}

func (j Job) structured() execResult {
	r := j.Outcome.structured()
	r.Job, r.Running = j.ID, j.Running
	return r
}
