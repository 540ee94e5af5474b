package sse

import (
	"context"
	"io"
	"time"
)

// watchdog ends a connection on which nothing comes. It runs only while somebody
// waits for bytes: a slow handler is not a silent server.
type watchdog struct {
	limit time.Duration
	timer *time.Timer // nil: never
}

func newWatchdog(limit time.Duration, cancel context.CancelCauseFunc) *watchdog {
	w := &watchdog{limit: limit}
	if limit > 0 {
		w.timer = time.AfterFunc(limit, func() { cancel(&SilenceError{limit}) })
		w.timer.Stop()
	}
	return w
}

func (w *watchdog) start() {
	if w.timer != nil {
		w.timer.Reset(w.limit)
	}
}

func (w *watchdog) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// watched is a body under a watchdog.
type watched struct {
	r   io.Reader
	dog *watchdog
}

func (w *watched) Read(p []byte) (int, error) {
	w.dog.start()
	defer w.dog.stop()
	return w.r.Read(p)
}
