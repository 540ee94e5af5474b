package agent

import (
	"context"
	"errors"
)

// Facts of a terminal that callers branch on.
var (
	// ErrNoTerminal: no agent runs in the terminal at present, so nothing can be
	// typed. Its output can still be read.
	ErrNoTerminal = errors.New("agent: nothing runs in the terminal")
	// ErrTyping: the agent does not read what was typed, and too much of it waits
	// already; nothing was accepted.
	ErrTyping = errors.New("agent: the terminal does not take more input")
	// ErrTerminalSize: the size is outside of 2 to 1000 columns and rows.
	ErrTerminalSize = errors.New("agent: no such size of a terminal")
)

// Terminal is the terminal in which an agent runs that is no more than a program
// with a screen (specification N-1, passthrough). It lasts as long as the agent's
// session, over restarts of the program: its output is one stream of bytes. It is
// safe for concurrent use, and a reader that is slow or gone costs nobody anything.
type Terminal interface {
	// Attach reads the output from an offset on. An offset before what is kept, or
	// beyond the end, reads from the oldest byte that is kept.
	Attach(offset int64) TerminalView
	// Write types: the bytes of a keyboard, at most 64 KiB in one call. It does not
	// wait. Errors: ErrNoTerminal, ErrTyping.
	Write(p []byte) error
	// Resize tells the program its size, in cells; it then draws itself anew. The
	// last caller wins. Error: ErrTerminalSize.
	Resize(cols, rows int) error
	// Status tells what there is.
	Status() TerminalStatus
}

// TerminalStatus is what is known of a terminal.
type TerminalStatus struct {
	Running bool  `json:"running"` // a program runs in it
	Cols    int   `json:"cols"`
	Rows    int   `json:"rows"`
	Oldest  int64 `json:"oldest"` // offset of the oldest byte that is kept
	End     int64 `json:"end"`    // offset behind the newest byte
}

// TerminalView is one reader of a terminal's output. It holds nothing but its
// offset. It is for one goroutine; an abandoned one need not be closed.
type TerminalView interface {
	// Next waits for output and returns it, at most 64 KiB. Errors: io.EOF once the
	// session has ended and all was read, or ctx's.
	Next(ctx context.Context) (TerminalChunk, error)
}

// TerminalChunk is a piece of output. Data belongs to the caller.
type TerminalChunk struct {
	// Offset is that of the first byte of Data; Offset plus its length is where to
	// attach the next time.
	Offset int64
	// Lost counts the bytes before Offset that the reader has asked for and that
	// are kept no more. The screen is then to be cleared; Modes come first, and a
	// Resize has the program draw itself anew.
	Lost int64
	// Modes are bytes to write to a fresh screen before Data, in the first chunk
	// and after a loss: they bring it into the modes that the program has set.
	Modes []byte
	Data  []byte
}

// Screen is output of an agent's terminal. Nobody knows what it means: out of turn
// it counts as busy like Activity, and in a turn it proves nothing.
type Screen struct{}

func (Screen) event() {}
