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
// sandbox's. Where as many run as may, it waits for the end of one, as long as the
// command says. Errors: ErrManyJobs.
func (s *Shell) Background(ctx context.Context, c Command) (Job, error) {
	if err := s.place(ctx, c.Wait); err != nil {
		return Job{}, err
	}
	started := false
	defer func() {
		if !started {
			<-s.places
		}
	}()
	if err := s.lock(ctx); err != nil {
		return Job{}, err
	}
	defer s.unlock()
	s.evict()
	j, err := s.start(c, func() { <-s.places })
	if err != nil {
		return Job{}, err
	}
	started = true
	s.jobs[j.id] = j
	return j.job(), nil
}

// place takes a place in the background.
func (s *Shell) place(ctx context.Context, wait time.Duration) error {
	select {
	case s.places <- struct{}{}:
		return nil
	default:
	}
	limit := time.NewTimer(min(wait, s.o.Timeout))
	defer limit.Stop()
	select {
	case s.places <- struct{}{}:
		return nil
	case <-limit.C:
		return fmt.Errorf("start command: %w: %d, as many as may; try again when one has ended, or kill one", ErrManyJobs, s.o.Jobs)
	case <-ctx.Done():
		return fmt.Errorf("wait for a place in the background: %w", context.Cause(ctx))
	}
}

// evict forgets the oldest of the jobs that are over.
func (s *Shell) evict() {
	var over []*job
	for _, j := range s.jobs {
		if j.over() {
			over = append(over, j)
		}
	}
	slices.SortFunc(over, func(a, b *job) int { return a.began.Compare(b.began) })
	for len(over) >= keptJobs*s.o.Jobs {
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
	o, over := j.describe()
	o.TimedOut, o.Canceled = false, j.killed.Load()
	return Job{ID: j.id, Command: j.text, Running: !over, Outcome: o, Size: j.both.size()}
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
func (s *Shell) Tail(ctx context.Context, id string, offset int64, wait time.Duration) (text string, from int64, _ Job, err error) {
	p, err := s.tail(ctx, id, "", offset, wait)
	return p.text, p.from, p.job, err
}

// part is a piece of what a job wrote.
type part struct {
	text string // as text; what is not UTF-8 is replaced
	from int64  // the byte where it begins
	next int64  // and that after it
	job  Job    // before the piece was read: of a job that is over all is there
}

// tail is Tail of both streams, or of one. One stream ends its wait also when the
// other has something new, so that a reader of both needs to wait for one only.
func (s *Shell) tail(ctx context.Context, id, stream string, offset int64, wait time.Duration) (part, error) {
	j, err := s.find(ctx, id)
	if err != nil {
		return part{}, err
	}
	from, one := j.both, stream != ""
	switch stream {
	case "":
	case "stdout":
		from = j.out
	case "stderr":
		from = j.err
	default:
		return part{}, fmt.Errorf("the stream %.40q is not stdout or stderr", stream)
	}
	limit := time.NewTimer(min(wait, s.o.Timeout))
	defer limit.Stop()
	for waiting := wait > 0; waiting && from.size() <= offset; {
		select {
		case <-j.notify:
			waiting = !one
		case <-j.done:
			waiting = false
		case <-limit.C:
			waiting = false
		case <-ctx.Done():
			return part{}, fmt.Errorf("wait for job: %w", context.Cause(ctx))
		}
	}
	p := part{job: j.job()}
	p.text, p.from = from.after(offset, s.o.Output)
	p.next = p.from + int64(len(p.text))
	p.text = clean(p.text)
	return p, nil
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
