package fleet

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// margin is what an answer may take beyond the command's time, and the
	// end of a sandbox beyond the worker's.
	margin = 15 * time.Second
	// followWait is how long one call waits for output. It is well below the time
	// after which a sandbox that nobody calls is released.
	followWait = 10 * time.Second
)

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

// ExecError is what the tool exec of a sandbox refused.
type ExecError struct{ Reason string } // from the sandbox, quoted

func (e *ExecError) Error() string { return "run command in sandbox: " + e.Reason }

// callExec calls the tool exec once.
func callExec(ctx context.Context, s caller, arguments map[string]any, longest time.Duration) (a execAnswer, err error) {
	text, err := json.Marshal(arguments)
	if err != nil {
		return a, fmt.Errorf("write command: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, longest+margin, errors.New("the sandbox did not answer in time"))
	defer cancel()
	answer, err := s.CallTool(ctx, "exec", jsontext.Value(text), nil)
	if err != nil {
		return a, err
	}
	raw, ok := answer.StructuredContent.(stdjson.RawMessage)
	if !ok || answer.IsError {
		return a, &ExecError{said(answer)}
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, fmt.Errorf("read the sandbox's answer: %w", err)
	}
	return a, nil
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

// followedJob is a command in a sandbox that somebody follows.
type followedJob struct {
	session caller
	timeout time.Duration
	wait    time.Duration // that the command asks for until it can begin
	// begun is told the job's name; nil is nobody.
	begun func(id string) error
	// pass gets what comes, of "stdout" and of "stderr".
	pass func(stream, text string) error
}

// run runs a command as a job, passes its output on as it comes, and ends it when
// its time is over. With an error, ctx's too, the job may still run; id is then
// its name.
func (j *followedJob) run(ctx context.Context, command map[string]any) (id string, end execAnswer, timedOut bool, err error) {
	command["background"] = true
	job, err := callExec(ctx, j.session, command, j.wait)
	if err != nil {
		return "", end, false, err
	}
	if j.begun != nil {
		if err := j.begun(job.Job); err != nil {
			return job.Job, end, false, err
		}
	}
	out, errs := &follower{name: "stdout", job: j}, &follower{name: "stderr", job: j}
	for deadline := time.Now().Add(j.timeout); ; {
		wait := min(time.Until(deadline), followWait)
		if wait <= 0 && !timedOut {
			if _, err := callExec(ctx, j.session, map[string]any{"job": job.Job, "action": "kill"}, 0); err != nil {
				return job.Job, end, true, err
			}
			timedOut, deadline = true, time.Now().Add(margin)
		} else if wait <= 0 {
			return job.Job, end, true, errors.New("run command in sandbox: it was killed when its time was over, and did not end")
		}
		running, more, err := out.step(ctx, job.Job, max(wait, 0))
		if err != nil {
			return job.Job, end, timedOut, err
		}
		_, moreErrs, err := errs.step(ctx, job.Job, 0)
		if err != nil {
			return job.Job, end, timedOut, err
		}
		if !running && !more && !moreErrs {
			break
		}
	}
	end, err = callExec(ctx, j.session, map[string]any{"job": job.Job, "action": "status"}, 0)
	return job.Job, end, timedOut, err
}

// follower passes one stream of a job on.
type follower struct {
	name   string
	job    *followedJob
	offset int64
}

// step passes on what there is, and says whether the job still ran before.
func (f *follower) step(ctx context.Context, job string, wait time.Duration) (running, more bool, err error) {
	a, err := callExec(ctx, f.job.session, map[string]any{
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
		text = omitted(lost) + text
	}
	more, f.offset = a.Next > f.offset, max(a.Next, f.offset)
	if text == "" {
		return a.Running, more, nil
	}
	return a.Running, more, f.job.pass(f.name, text)
}

// omitted stands where output was left out.
func omitted(bytes int64) string { return fmt.Sprintf("\n[… %d bytes omitted …]\n", bytes) }

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
