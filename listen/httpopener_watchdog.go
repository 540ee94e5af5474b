package listen

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// SilenceError is the cause of a stream that was given up because the server
// stopped keeping it alive.
type SilenceError struct{ For time.Duration }

func (e *SilenceError) Error() string { return fmt.Sprintf("no sign of life for %v", e.For) }

// aliveReader tells the watchdog of each read.
type aliveReader struct {
	r   io.Reader
	dog *watchdog
}

func (a *aliveReader) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if n > 0 {
		a.dog.alive()
	}
	return n, err
}

// watchdog ends a stream that has fallen silent: see [HTTPOpener].
type watchdog struct {
	least time.Duration             // negative: never
	bite  func(quiet time.Duration) // called at most once, from the timer

	mu      sync.Mutex
	last    time.Time     // when the last byte came
	pause   time.Duration // before the bytes that are being read
	longest time.Duration // pause before a comment
	timer   *time.Timer   // nil until the server has shown an interval
	stopped bool
}

// minPause tells a keep-alive from a greeting: some servers send one comment
// when the stream opens and none after it.
const minPause = time.Second

func (w *watchdog) start(least time.Duration, bite func(time.Duration)) {
	w.least, w.bite, w.last = least, bite, time.Now()
}

func (w *watchdog) limitLocked() time.Duration { return max(w.least, 3*w.longest) }

func (w *watchdog) alive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.pause, w.last = now.Sub(w.last), now
	w.pushLocked()
}

func (w *watchdog) comment() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.least < 0 || w.stopped || w.pause < minPause {
		return
	}
	w.longest = max(w.longest, w.pause)
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limitLocked(), w.judge)
	}
	w.pushLocked()
}

func (w *watchdog) pushLocked() {
	if w.timer != nil && !w.stopped {
		w.timer.Reset(w.limitLocked())
	}
}

// judge runs when the timer fires, perhaps while a byte is coming in.
func (w *watchdog) judge() {
	w.mu.Lock()
	quiet := time.Since(w.last)
	dead := !w.stopped && quiet >= w.limitLocked()
	w.stopped = w.stopped || dead
	w.mu.Unlock()
	if dead {
		w.bite(quiet)
	}
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
