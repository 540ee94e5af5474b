package tools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Job is a command in the background.
type Job struct {
	ID      string
	Command string
	Running bool
	Outcome
	Size int64 // bytes of output so far
}

// Background starts a command that outlives its call. It has no deadline but the
// sandbox's.
func (s *Shell) Background(ctx context.Context, c Command) (Job, error) {
	if err := s.lock(ctx); err != nil {
		return Job{}, err
	}
	defer s.unlock()
	running := 0
	for _, j := range s.jobs {
		if !j.over() {
			running++
		}
	}
	if running >= s.o.Jobs {
		return Job{}, ErrManyJobs
	}
	s.evict()
	j, err := s.start(c)
	if err != nil {
		return Job{}, err
	}
	s.jobs[j.id] = j
	return j.job(), nil
}

// evict forgets the oldest of the jobs that are over, so that not more are kept
// than may run.
func (s *Shell) evict() {
	var over []*job
	for _, j := range s.jobs {
		if j.over() {
			over = append(over, j)
		}
	}
	slices.SortFunc(over, func(a, b *job) int { return a.began.Compare(b.began) })
	for len(over) >= s.o.Jobs {
		delete(s.jobs, over[0].id)
		over = over[1:]
	}
}

func (j *job) over() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

func (j *job) job() Job {
	o := j.describe()
	o.TimedOut, o.Canceled = false, j.killed.Load()
	return Job{ID: j.id, Command: j.text, Running: !j.over(), Outcome: o, Size: j.both.size()}
}

// find returns a job of the background.
func (s *Shell) find(ctx context.Context, id string) (*job, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	if j := s.jobs[id]; j != nil {
		return j, nil
	}
	return nil, fmt.Errorf("find job %.40q: %w", id, ErrNoJob)
}

// Jobs lists the commands in the background, oldest first.
func (s *Shell) Jobs(ctx context.Context) ([]Job, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	all := make([]*job, 0, len(s.jobs))
	for _, j := range s.jobs {
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *job) int { return a.began.Compare(b.began) })
	out := make([]Job, len(all))
	for i, j := range all {
		out[i] = j.job()
	}
	return out, nil
}

// Tail returns what a job wrote from an offset on, where that part begins, and
// the job. It waits up to wait for something new. Errors: ErrNoJob.
func (s *Shell) Tail(ctx context.Context, id string, offset int64, wait time.Duration) (part string, from int64, _ Job, err error) {
	j, err := s.find(ctx, id)
	if err != nil {
		return "", 0, Job{}, err
	}
	limit := time.NewTimer(min(wait, s.o.Timeout))
	defer limit.Stop()
	for waiting := wait > 0; waiting && j.both.size() <= offset; {
		select {
		case <-j.notify:
		case <-j.done:
			waiting = false
		case <-limit.C:
			waiting = false
		case <-ctx.Done():
			return "", 0, Job{}, fmt.Errorf("wait for job: %w", context.Cause(ctx))
		}
	}
	part, from = j.both.after(offset, s.o.Output)
	return clean(part), from, j.job(), nil
}

// Kill ends a job with its whole tree, and waits for its end for a moment.
// Errors: ErrNoJob.
func (s *Shell) Kill(ctx context.Context, id string) (Job, error) {
	j, err := s.find(ctx, id)
	if err != nil {
		return Job{}, err
	}
	j.kill()
	limit := time.NewTimer(killTime)
	defer limit.Stop()
	select {
	case <-j.done:
	case <-limit.C:
	case <-ctx.Done():
	}
	return j.job(), nil
}

// Restart ends every command and forgets the working directory and the
// variables.
func (s *Shell) Restart(ctx context.Context) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	for id, j := range s.jobs {
		j.kill()
		if !s.running || j.over() {
			delete(s.jobs, id)
		}
	}
	s.restart()
	return nil
}

// brief is one line about a job.
func (j Job) brief() string {
	text, _, _ := strings.Cut(j.Command, "\n")
	if len(text) > 60 {
		text = clean(text[:60]) + "…"
	}
	return fmt.Sprintf("%s: %s; %d bytes of output; %s", j.ID, j.status(), j.Size, text)
}

// status says how a command stands, and invents nothing.
func (j Job) status() string {
	if j.Running {
		return fmt.Sprintf("running for %.1f s", j.Duration.Seconds())
	}
	return j.Outcome.status()
}

func (o Outcome) status() string {
	var b strings.Builder
	switch {
	case o.TimedOut:
		fmt.Fprintf(&b, "killed with its whole tree when its time was over, after %.1f s", o.Duration.Seconds())
	case o.Canceled:
		fmt.Fprintf(&b, "killed with its whole tree, after %.1f s", o.Duration.Seconds())
	case o.Exit != nil:
		fmt.Fprintf(&b, "exit code %d after %.1f s", *o.Exit, o.Duration.Seconds())
	case o.Signal != "":
		fmt.Fprintf(&b, "ended by signal (%s) after %.1f s", o.Signal, o.Duration.Seconds())
	default:
		b.WriteString("how it ended is unknown")
	}
	if o.Held {
		b.WriteString("; processes that it left behind still hold its output")
	}
	return b.String()
}
