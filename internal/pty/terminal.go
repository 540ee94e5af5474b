package pty

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ossicle/ossicle/agent"
)

// Defaults of TerminalOptions, and bounds.
const (
	DefaultCols       = 120
	DefaultRows       = 32
	DefaultScrollback = 1 << 20 // bytes
	maxTyped          = 2 * MaxPaste
	maxWrite          = 64 << 10
	maxChunk          = 64 << 10
	minSize, maxSize  = 2, 1000
)

// TerminalOptions change a Terminal. The zero value is the default.
type TerminalOptions struct {
	Cols, Rows int
	// Scrollback is how much output is kept, in bytes.
	Scrollback int
	Logger     *slog.Logger // nil discards
}

// Terminal is the terminal of one session, over all lives of its program. See
// agent.Terminal, which it implements.
type Terminal struct {
	log *slog.Logger

	mu     sync.Mutex
	parser parser
	ring   ring
	sum    uint64
	still  time.Time     // since when the screen shows the same text
	grown  chan struct{} // closed and replaced with new output
	closed bool

	// Of the life that runs; nil and empty without one.
	master  *os.File
	queue   []byte // to be typed
	waiting []byte // what a person typed while a prompt is being typed
	prompt  bool   // one is
	bell    chan struct{}
	draft   draft
	moved   func() // the text of the screen has changed
}

var _ agent.Terminal = (*Terminal)(nil)

// NewTerminal returns a terminal in which nothing runs.
func NewTerminal(o *TerminalOptions) *Terminal {
	var d TerminalOptions
	if o != nil {
		d = *o
	}
	for _, f := range []struct {
		v   *int
		def int
	}{{&d.Cols, DefaultCols}, {&d.Rows, DefaultRows}, {&d.Scrollback, DefaultScrollback}} {
		if *f.v <= 0 {
			*f.v = f.def
		}
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Terminal{
		log: d.Logger, ring: ring{limit: d.Scrollback}, still: time.Now(), grown: make(chan struct{}), bell: make(chan struct{}, 1),
	}
	t.parser.screen = newScreen(clampSize(d.Cols), clampSize(d.Rows))
	t.sum = t.parser.screen.sum()
	return t
}

func clampSize(n int) int { return max(minSize, min(n, maxSize)) }

// Close says that nothing will run in the terminal any more: its viewers come to
// the end. It is idempotent.
func (t *Terminal) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.closed = true
		close(t.grown)
	}
}

// Status implements agent.Terminal.
func (t *Terminal) Status() agent.TerminalStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.parser.screen
	return agent.TerminalStatus{Running: t.master != nil, Cols: s.cols, Rows: s.rows, Oldest: t.ring.oldest(), End: t.ring.end()}
}

// Text is what the screen shows, line by line.
func (t *Terminal) Text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.parser.screen.text()
}

// Resize implements agent.Terminal.
func (t *Terminal) Resize(cols, rows int) error {
	if cols < minSize || cols > maxSize || rows < minSize || rows > maxSize {
		return agent.ErrTerminalSize
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parser.screen.resize(cols, rows)
	t.sum = t.parser.screen.sum()
	if t.master == nil {
		return nil
	}
	return setSize(t.master, cols, rows)
}

// Write implements agent.Terminal.
func (t *Terminal) Write(p []byte) error {
	if len(p) > maxWrite {
		return agent.ErrTyping
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.master == nil:
		return agent.ErrNoTerminal
	case len(t.queue)+len(t.waiting)+len(p) > maxTyped:
		return agent.ErrTyping
	case t.prompt: // a prompt is whole before anything else is typed
		t.waiting = append(t.waiting, p...)
		return nil
	}
	t.draft.typed(p)
	t.typeLocked(p)
	return nil
}

func (t *Terminal) typeLocked(p []byte) {
	t.queue = append(t.queue, p...)
	select {
	case t.bell <- struct{}{}:
	default: // it rings
	}
}

// hold keeps back what a person types until release.
func (t *Terminal) hold() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prompt = true
}

func (t *Terminal) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prompt = false
	if len(t.waiting) > 0 && t.master != nil {
		t.draft.typed(t.waiting)
		t.typeLocked(t.waiting)
	}
	t.waiting = nil
}

// press types what no person does. A queue that is full refuses it.
func (t *Terminal) press(p []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pressLocked(p)
}

// pressIf is press if the screen is as wanted; nothing is drawn or typed in between.
func (t *Terminal) pressIf(wanted func(sight) bool, p []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return wanted(t.lookLocked()) && t.pressLocked(p) == nil
}

func (t *Terminal) pressLocked(p []byte) error {
	switch {
	case t.master == nil:
		return agent.ErrNoTerminal
	case len(t.queue)+len(p) > maxTyped+MaxPaste:
		return agent.ErrTyping
	}
	t.typeLocked(p)
	return nil
}

// sight is what is known of the screen at a moment.
type sight struct {
	text  string
	still time.Time // since when
	paste bool      // the program takes bracketed pastes
	line  bool      // the terminal itself edits lines, and shows them
	draft bool      // somebody has begun a line
}

// free reports whether text that is typed is text, and nobody else's.
func (s sight) free() bool { return !s.draft && (s.paste || s.line) }

func (t *Terminal) look() sight {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lookLocked()
}

func (t *Terminal) lookLocked() sight {
	s := sight{text: t.parser.screen.text(), still: t.still, paste: t.parser.modes.is(modePaste), draft: t.draft.begun()}
	s.line = !s.paste && t.master != nil && editsLines(t.master)
	return s
}

// begin puts a program into the terminal, on a clear screen.
func (t *Terminal) begin(master *os.File, moved func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return agent.ErrClosed
	}
	if t.ring.end() > 0 {
		t.takeLocked([]byte("\x1bc"))
	}
	t.parser.drop()
	t.master, t.queue, t.waiting, t.draft, t.moved = master, nil, nil, draft{}, moved
	s := t.parser.screen
	return setSize(master, s.cols, s.rows)
}

// end takes the program out again, and says so to viewers.
func (t *Terminal) end(note string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parser.drop()
	other := ""
	if t.parser.modes.is(modeOther) { // else the cursor would go to where none was saved, and the note over the last words
		other = "\x1b[?1049l"
	}
	t.takeLocked([]byte(other + "\x1b[!p\x1b[?25h\x1b[?2004l\r\n" + Clean(note) + "\r\n"))
	t.master, t.queue, t.waiting, t.moved = nil, nil, nil, nil
}

// take takes output of the program.
func (t *Terminal) take(p []byte) {
	t.mu.Lock()
	moved := t.takeLocked(p)
	t.mu.Unlock()
	if moved != nil {
		moved()
	}
}

func (t *Terminal) takeLocked(p []byte) (moved func()) {
	out, answer := t.parser.feed(p)
	t.ring.write(out)
	if len(answer) > 0 && len(t.queue)+len(answer) <= maxTyped+MaxPaste {
		t.typeLocked(answer)
	}
	if sum := t.parser.screen.sum(); sum != t.sum {
		t.sum, t.still = sum, time.Now()
		moved = t.moved
	}
	if !t.closed {
		close(t.grown)
		t.grown = make(chan struct{})
	}
	return moved
}

// typist types what is queued until stop is closed or the terminal is gone.
func (t *Terminal) typist(master *os.File, stop <-chan struct{}) {
	for {
		select {
		case <-t.bell:
		case <-stop:
			return
		}
		t.mu.Lock()
		var p []byte
		if t.master == master {
			p, t.queue = t.queue, nil
		}
		t.mu.Unlock()
		if _, err := master.Write(p); err != nil {
			return
		}
	}
}

// editsLines reports whether what is typed is a line that the terminal shows: neither
// keys of a program, nor a password.
func editsLines(f *os.File) (yes bool) {
	c, err := f.SyscallConn()
	if err != nil {
		return false
	}
	_ = c.Control(func(fd uintptr) {
		state, err := unix.IoctlGetTermios(int(fd), getTermios)
		yes = err == nil && state.Lflag&unix.ICANON != 0 && state.Lflag&unix.ECHO != 0
	})
	return yes
}

func setSize(f *os.File, cols, rows int) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(cols), Row: uint16(rows)})
	})
	if err != nil {
		return err
	}
	return failed
}

// Attach implements agent.Terminal.
func (t *Terminal) Attach(offset int64) agent.TerminalView {
	return &view{t: t, next: offset, fresh: true}
}

// view reads from an offset on.
type view struct {
	t     *Terminal
	next  int64
	fresh bool
}

// Next implements agent.TerminalView.
func (v *view) Next(ctx context.Context) (agent.TerminalChunk, error) {
	for {
		c, grown := v.read()
		switch {
		case len(c.Data) > 0:
			return c, nil
		case grown == nil:
			return agent.TerminalChunk{}, io.EOF
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return agent.TerminalChunk{}, ctx.Err()
		}
	}
}

// read returns what there is; without anything, what to wait for, nil at the end.
func (v *view) read() (agent.TerminalChunk, <-chan struct{}) {
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	oldest := t.ring.oldest()
	var c agent.TerminalChunk
	switch {
	case v.next < 0 || v.next > t.ring.end():
		v.next = oldest
	case v.next < oldest:
		c.Lost = oldest - v.next
	}
	c.Data, c.Offset = t.ring.read(v.next, maxChunk)
	if len(c.Data) == 0 {
		if t.closed {
			return c, nil
		}
		return c, t.grown
	}
	if v.fresh && c.Offset > 0 || c.Lost > 0 {
		c.Modes = t.parser.modes.restore()
	}
	v.next, v.fresh = c.Offset+int64(len(c.Data)), false
	return c, nil
}
