package main

import (
	"bytes"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// wire hears one conversation with an agent, from the frames that its engine
// records: each is one Write. Recording comes right before the write to the
// pipe.
type wire struct {
	written, read, ended chan time.Time // of prompts
	size                 atomic.Int64   // bytes of the last prompt
}

// Times are dropped when nobody asks for them.
func newWire() *wire {
	return &wire{written: make(chan time.Time, 16), read: make(chan time.Time, 16), ended: make(chan time.Time, 16)}
}

func (w *wire) length() int { return int(w.size.Load()) }

// readMark begins the line by which our agent says when it has read a prompt,
// in nanoseconds of the clock that both processes share.
const readMark = "prompt read at "

var promptMethod = []byte(`"session/prompt"`)

// Write implements io.Writer.
func (w *wire) Write(frame []byte) (int, error) {
	switch {
	case bytes.Contains(frame, []byte(`"dir":"sent"`)) && bytes.Contains(frame, promptMethod):
		now := time.Now()
		w.size.Store(int64(len(frame)))
		tell(w.written, now)
	case bytes.Contains(frame, []byte(`"dir":"stderr"`)):
		if _, text, ok := strings.Cut(string(frame), readMark); ok {
			digits, _, _ := strings.Cut(text, `"`)
			if ns, err := strconv.ParseInt(digits, 10, 64); err == nil {
				tell(w.read, time.Unix(0, ns))
			}
		}
	case bytes.Contains(frame, []byte(`"stopReason"`)):
		tell(w.ended, time.Now())
	}
	return len(frame), nil
}

func tell(c chan time.Time, at time.Time) {
	select {
	case c <- at:
	default:
	}
}
