package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// script runs a command and then says, on a descriptor that the command does
// not have, where it left off. The command is an argument, so nothing in it can
// end the script early but the shell itself.
const script = `eval "$1" 3>&-
code=$?
{ printf '%s\0' "$(builtin pwd -P)"; env -0; } >&3 2>/dev/null
exit "$code"`

// maxState bounds what a command may leave as its environment, in bytes.
const maxState = 256 << 10

// markName is the variable that finds what left its process group.
const markName = "OSSICLE_COMMAND"

// Command is what exec is asked to do.
type Command struct {
	Text    string
	Cwd     string            // empty is where the last command left off
	Env     map[string]string // for this command, on top of what others exported
	Stdin   string
	Timeout time.Duration
	Wait    time.Duration // in the background, for a place where as many run as may
}

// Outcome is what is known of a command.
type Outcome struct {
	// Exit is the exit code; nil if the command still runs or was ended by a signal.
	Exit     *int
	Signal   string // that ended it
	TimedOut bool   // we killed it when its time was over
	Canceled bool   // we killed it because nobody wanted it any more
	Duration time.Duration
	Cwd      string // after it
	// Output is both streams as they came, Stdout and Stderr each alone. Each is cut
	// in the middle, and says so.
	Output, Stdout, Stderr string
	Omitted                int64 // bytes left out of Output
	// Held is true if a process that the command left behind still holds its output.
	Held bool
}

// job is a command that runs or ran.
type job struct {
	id     string
	text   string
	cmd    *exec.Cmd
	tree   Tree // nil if nothing holds it but its group and its mark
	mark   string
	both   *spool
	out    *spool
	err    *spool
	began  time.Time
	done   chan struct{}
	killed atomic.Bool
	result Outcome // before done is closed
	state  []byte  // what the script said
	notify chan struct{}
}

// kill ends the whole tree of a command: its group, and what carries its mark.
func (j *job) kill() {
	j.killed.Store(true)
	if j.tree != nil {
		j.tree.Kill()
		return
	}
	select {
	case <-j.done: // the group's number may be somebody else's by now
		killMarked(j.mark)
		return
	default:
	}
	_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL)
	killMarked(j.mark)
}

// start begins a command. The caller has the state. Before it is told that the command
// is over ended is called, which may be nil.
func (s *Shell) start(c Command, ended func()) (*job, error) {
	if s.stopped {
		return nil, ErrStopped
	}
	if strings.Contains(c.Text, "\x00") {
		return nil, errors.New("the command has a NUL in it")
	}
	j := &job{text: c.Text, mark: newMark(), both: newSpool(s.o.Output / 2), out: newSpool(s.o.Output / 2), err: newSpool(s.o.Output / 2), began: time.Now(), done: make(chan struct{}), notify: make(chan struct{}, 1)}
	env, err := with(s.env, c.Env)
	if err != nil {
		return nil, err
	}
	dir, err := s.dir(c.Cwd)
	if err != nil {
		return nil, err
	}
	s.next++
	j.id = fmt.Sprintf("job-%d", s.next)
	args := append(slices.Clone(s.o.Wrap), s.bash, "--noprofile", "--norc", "-c", script, "bash", c.Text)
	program, err := exec.LookPath(args[0])
	if err != nil {
		return nil, fmt.Errorf("start command: %w", err)
	}
	j.cmd = &exec.Cmd{
		Path: program, Args: args,
		Dir: dir, Env: append(env, markName+"="+j.mark),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	p, err := openPipes(j.cmd, c.Stdin)
	if err != nil {
		return nil, fmt.Errorf("start command: %w", err)
	}
	if err := s.launch(j); err != nil {
		p.closeAll()
		return nil, fmt.Errorf("start command: %w", err)
	}
	p.closeChild()
	s.work.Go(func() {
		defer close(j.done)
		j.follow(p)
		if ended != nil {
			ended()
		}
	})
	return j, nil
}

func (s *Shell) launch(j *job) (err error) {
	if s.o.Start == nil {
		return j.cmd.Start()
	}
	j.tree, err = s.o.Start(j.cmd)
	return err
}

// pipes are our ends and the child's. They are made here and not by os/exec,
// whose Wait would wait for whoever holds them.
type pipes struct {
	out, err, state *os.File
	ours, child     []*os.File
}

func openPipes(cmd *exec.Cmd, stdin string) (*pipes, error) {
	p := &pipes{}
	var w [3]*os.File
	for i, r := range []**os.File{&p.out, &p.err, &p.state} {
		a, b, err := os.Pipe()
		if err != nil {
			p.closeAll()
			return nil, err
		}
		*r, w[i] = a, b
		p.ours, p.child = append(p.ours, a), append(p.child, b)
	}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = w[0], w[1], []*os.File{w[2]}
	in, err := stdinFile(stdin)
	if err != nil {
		p.closeAll()
		return nil, err
	}
	cmd.Stdin = in
	p.child = append(p.child, in)
	return p, nil
}

// stdinFile is the standard input: a file without a name, so that nobody has to
// feed it, or nothing.
func stdinFile(text string) (*os.File, error) {
	if text == "" {
		return os.Open(os.DevNull)
	}
	f, err := os.CreateTemp("", "stdin")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name())
	if _, err := f.WriteString(text); err != nil {
		_ = f.Close()
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (p *pipes) closeChild() {
	for _, f := range p.child {
		_ = f.Close()
	}
}

func (p *pipes) closeAll() {
	p.closeChild()
	for _, f := range p.ours {
		_ = f.Close()
	}
}

// follow reads a command's output and waits for its end: that of the process,
// not of its output.
func (j *job) follow(p *pipes) {
	read := func(f *os.File, to io.Writer) chan bool {
		ended := make(chan bool, 1)
		go func() { ended <- drain(f, to) }()
		return ended
	}
	state := &bounded{limit: maxState}
	streams := []chan bool{
		read(p.out, tee{j, j.out}), read(p.err, tee{j, j.err}), read(p.state, state),
	}
	err := j.cmd.Wait()
	if j.tree != nil {
		j.tree.Close() // before its output is awaited: nobody holds that any more
	}
	j.result = outcome(err, j.cmd.ProcessState)
	j.result.Duration = time.Since(j.began)
	until := time.Now().Add(drainTime)
	for _, f := range p.ours {
		_ = f.SetReadDeadline(until)
	}
	outHeld, errHeld := <-streams[0], <-streams[1]
	<-streams[2]
	for _, f := range p.ours {
		_ = f.Close()
	}
	j.result.Held = outHeld || errHeld
	j.state = state.b
}

// drain copies until the end, or the deadline, and then reports that somebody still
// holds the other side. On a machine so busy that this had no turn until then, the
// pipe still has what was written before: that is read all the same.
func drain(f *os.File, to io.Writer) (held bool) {
	_, err := io.Copy(to, f)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = f.SetReadDeadline(time.Now().Add(drainTime / 10))
		_, err = io.Copy(to, f)
	}
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// tee writes to one stream's spool and to that of both.
type tee struct {
	j  *job
	to *spool
}

func (t tee) Write(p []byte) (int, error) {
	_, _ = t.to.Write(p)
	_, _ = t.j.both.Write(p)
	select {
	case t.j.notify <- struct{}{}:
	default:
	}
	return len(p), nil
}

// bounded keeps the first bytes and takes all.
type bounded struct {
	b     []byte
	limit int
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := b.limit - len(b.b); room > 0 {
		b.b = append(b.b, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

func outcome(err error, state *os.ProcessState) Outcome {
	var o Outcome
	ws, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case ok && ws.Signaled():
		o.Signal = ws.Signal().String()
	case err == nil || state.Exited():
		code := state.ExitCode()
		o.Exit = &code
	}
	return o
}

// Run runs a command and waits for its end, its time, or ctx. progress, if not
// nil, gets the number of bytes that came and the newest of them, from time to
// time.
func (s *Shell) Run(ctx context.Context, c Command, progress func(total int64, newest string)) (Outcome, error) {
	if err := s.lock(ctx); err != nil {
		return Outcome{}, err
	}
	if s.running {
		s.unlock()
		return Outcome{}, ErrBusy
	}
	j, err := s.start(c, nil)
	if err == nil {
		s.running = true
		s.jobs[j.id] = j
	}
	s.unlock()
	if err != nil {
		return Outcome{}, err
	}
	timeout := s.o.Timeout
	if c.Timeout > 0 {
		timeout = min(c.Timeout, MaxTimeout)
	}
	timedOut, canceled := j.await(ctx, timeout, progress)
	s.state <- struct{}{} // the holder never keeps it for long
	defer s.unlock()
	s.running = false
	delete(s.jobs, j.id)
	s.learn(j)
	o, _ := j.describe()
	o.TimedOut, o.Canceled, o.Cwd = timedOut, canceled, s.cwd
	return o, nil
}

// await waits for a command and ends it if it must.
func (j *job) await(ctx context.Context, timeout time.Duration, progress func(int64, string)) (timedOut, canceled bool) {
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	var told int64
	var pace <-chan time.Time
	for {
		more := j.notify
		if progress == nil || pace != nil {
			more = nil
		}
		select {
		case <-j.done:
			return timedOut, canceled
		case <-more:
			pace = time.After(progressEvery)
		case <-pace:
			pace = nil
			part, _ := j.both.after(told, progressSize)
			told = j.both.size()
			progress(told, clean(part))
		case <-limit.C:
			timedOut = true
			j.kill()
		case <-ctx.Done():
			canceled = true
			j.kill()
			ctx = context.WithoutCancel(ctx) //nolint:fatcontext // once: the end is awaited without it
		}
	}
}

// Updates of a running command: not more often, and not larger in bytes.
const (
	progressEvery = 100 * time.Millisecond
	progressSize  = 4 << 10
)

// learn takes over what a command left of its state. One that was killed, or
// that ended its shell, leaves none.
func (s *Shell) learn(j *job) {
	parts := strings.Split(strings.TrimSuffix(string(j.state), "\x00"), "\x00")
	if len(parts) < 2 || len(j.state) >= maxState || !strings.HasPrefix(parts[0], "/") {
		return
	}
	s.cwd = parts[0]
	env := make([]string, 0, len(parts))
	for _, v := range parts[1:] {
		name, _, ok := strings.Cut(v, "=")
		switch {
		case !ok || name == markName || name == "_" || name == "SHLVL" || name == "PWD" || name == "OLDPWD":
		default:
			env = append(env, v)
		}
	}
	s.env = env
}

// describe is what is known of a command now, and whether it is over.
func (j *job) describe() (o Outcome, over bool) {
	if over = j.over(); over {
		o = j.result
	} else {
		o.Duration = time.Since(j.began)
	}
	var omitted int64
	o.Output, omitted = render(j.both)
	o.Stdout, _ = render(j.out)
	o.Stderr, _ = render(j.err)
	o.Omitted = omitted
	return o, over
}

// render joins head and tail, and says how much is between them.
func render(s *spool) (string, int64) {
	head, tail, omitted := s.text()
	if omitted == 0 {
		return clean(head + tail), 0
	}
	return clean(head) + fmt.Sprintf("\n[… %d bytes omitted …]\n", omitted) + clean(tail), omitted
}
