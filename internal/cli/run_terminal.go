package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/app"
)

// screen is the person's own terminal, as the window to that of an agent.
type screen struct {
	in, out    *os.File
	mu         sync.Mutex
	cols, rows int
}

// screenOf is the terminal of this process, nil if it has none.
func screenOf(e *env) *screen {
	if e.json {
		return nil
	}
	if _, err := unix.IoctlGetTermios(int(e.In.Fd()), getTermios); err != nil {
		return nil
	}
	if _, err := unix.IoctlGetWinsize(int(e.Out.Fd()), unix.TIOCGWINSZ); err != nil {
		return nil
	}
	return &screen{in: e.In, out: e.Out}
}

// leave brings the person's terminal back into order, whatever the agent has set.
const leave = "\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?1l\x1b[?25h\x1b[m\r\n"

// show passes keys and output until the agent's program has ended, or ctx.
func (s *screen) show(ctx context.Context, one *app.Agent, term agent.Terminal, prompt string) error {
	restore, err := s.raw()
	if err != nil {
		return err
	}
	defer restore()
	sub := one.Session.Subscribe()
	defer sub.Close()
	if prompt != "" {
		if _, err := one.Session.Submit(agent.Input{Text: prompt, From: "user"}); err != nil {
			return err
		}
	}
	s.fit(term)
	ctx, cancel := context.WithCancel(ctx)
	var output sync.WaitGroup
	output.Go(func() { s.print(ctx, term) })
	defer output.Wait()
	defer cancel()
	running := term.Status().Running
	if running {
		go s.read(term)
	}
	for {
		select {
		case u, ok := <-sub.C:
			switch {
			case !ok:
				return errSessionEnded
			case u.Event == agent.EventStarted && !running: // what was typed before waits
				running = true
				go s.read(term)
			case u.Event == agent.EventExited && !running:
				return programEnded(&agentError{err: errors.New(u.Error)}, u.Cause())
			case u.Event == agent.EventExited:
				return programEnded(nil, u.Cause()) // as the program itself would
			}
		case err := <-one.Failed():
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// programEnded ends the command as the program in the terminal has ended, which has
// shown itself what there is to say. Other ends, say of one that could not be
// started, are otherwise.
func programEnded(otherwise, cause error) error {
	if _, exited := errors.AsType[*agent.ExitError](cause); !exited {
		return otherwise
	}
	code, ended := programCode(cause)
	if !ended || code == exitOK {
		return nil
	}
	return &codeError{code: code, reason: "the program failed", silent: true}
}

// programCode is the exit code of a program that ended with an error, as a shell
// gives it.
func programCode(cause error) (code int, ended bool) {
	state, ok := errors.AsType[*exec.ExitError](cause)
	if !ok {
		return 0, false
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), true
	}
	return state.ExitCode(), true
}

// raw hands keys over as they are, also those that are signals otherwise.
func (s *screen) raw() (restore func(), err error) {
	fd := int(s.in.Fd())
	old, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, err
	}
	t := *old
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, setTermios, &t); err != nil {
		return nil, err
	}
	return func() {
		_, _ = io.WriteString(s.out, leave)
		_ = unix.IoctlSetTermios(fd, setTermios, old)
	}, nil
}

// fit gives the agent's terminal the size of this one. Who tells of a new size is a
// signal, which is not ours to take; so it is looked at with every key and output.
func (s *screen) fit(term agent.Terminal) {
	size, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cols, rows := int(size.Col), int(size.Row); cols != s.cols || rows != s.rows {
		s.cols, s.rows = cols, rows
		_ = term.Resize(cols, rows) // a size that it does not take is none for a program
	}
}

func (s *screen) print(ctx context.Context, term agent.Terminal) {
	view := term.Attach(0)
	for {
		c, err := view.Next(ctx)
		if err != nil {
			return
		}
		if _, err := s.out.Write(append(c.Modes, c.Data...)); err != nil {
			return
		}
		s.fit(term)
	}
}

// read cannot be woken: it ends with the input, or the process.
func (s *screen) read(term agent.Terminal) {
	buf := make([]byte, 4<<10)
	for {
		n, err := s.in.Read(buf)
		if n > 0 {
			s.fit(term)
			if werr := term.Write(buf[:n]); werr != nil && !errors.Is(werr, agent.ErrTyping) {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
