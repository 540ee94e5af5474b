package pty

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/logattr"
)

// turn is the prompt in flight.
type turn struct {
	cancelled chan struct{}
	sent      bool // Enter was pressed; under the engine's lock
}

// errCancelled ends the steps of a turn that is cancelled before it was sent.
var errCancelled = errors.New("cancelled")

func errAttr(err error) slog.Attr { return logattr.Err(err) }

// Turn types a prompt when the screen is still, sends it once the screen shows it,
// and returns when the screen is still again. That proves nothing, and the outcome
// says so. See agent.Engine.
func (e *Engine) Turn(ctx context.Context, p agent.Prompt) (agent.Outcome, error) {
	e.mu.Lock()
	switch {
	case e.closing || e.exit != nil || !e.ready:
		e.mu.Unlock()
		return agent.Outcome{}, e.dead()
	case e.turn != nil:
		e.mu.Unlock()
		return agent.Outcome{}, ErrBusy
	}
	t := &turn{cancelled: make(chan struct{})}
	e.turn = t
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.turn = nil
		e.mu.Unlock()
	}()
	shown, err := e.send(ctx, t, promptText(p))
	for again := 0; err == nil; again++ {
		// Only that the screen comes to rest ends it; a cancel has pressed its key.
		err = e.term.await(ctx, 0, e.o.EndStill, e.stop, nil, func(sight) bool { return true })
		if err != nil || again == moreEnters || !e.enterAgain(t, shown) {
			break
		}
	}
	return e.outcome(ctx, t, err)
}

// moreEnters is how often Enter is pressed again where a program swallows it.
const moreEnters = 2

// pasted is a text, and the screens before it was pasted and when it was shown.
type pasted struct {
	text          string
	before, shown sight
}

// enterAgain presses Enter once more if the screen has come to rest and the input line
// still shows what was pasted: some programs take an Enter that comes soon after a
// paste for a part of it. It presses nothing after a cancel, nor where somebody types,
// nor where the program reads no pastes any more, as a shell that runs a command.
func (e *Engine) enterAgain(t *turn, p pasted) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-t.cancelled:
		return false
	default:
	}
	swallowed := func(now sight) bool {
		return p.shown.paste && now.paste && now.free() && unmoved(p.before.text, p.shown.text, now.text, p.text)
	}
	if !e.term.pressIf(swallowed, []byte("\r")) {
		return false
	}
	e.log.Info("the terminal still shows a prompt that was sent; Enter was pressed again")
	return true
}

func (e *Engine) outcome(ctx context.Context, t *turn, err error) (agent.Outcome, error) {
	cancelled := false
	select {
	case <-t.cancelled:
		cancelled = true
	default:
	}
	switch {
	case errors.Is(err, errEnded):
		<-e.gone
		return agent.Outcome{}, e.dead()
	case ctx.Err() != nil:
		_ = e.interrupt(t) // the context's end is what counts
		return agent.Outcome{}, fmt.Errorf("prompt agent: %w", context.Cause(ctx))
	case cancelled:
		return agent.Outcome{Stop: agent.StopCancelled}, nil
	case err != nil:
		return agent.Outcome{}, fmt.Errorf("prompt agent: %w", err)
	}
	return agent.Outcome{Stop: agent.StopEndTurn, Unproven: true}, nil
}

// send pastes a text and presses Enter. Nobody's typing comes in between.
func (e *Engine) send(ctx context.Context, t *turn, text string) (pasted, error) {
	if err := e.term.await(ctx, e.o.TakeWait, e.o.Still, e.stop, t.cancelled, sight.free); err != nil {
		return pasted{}, orElse(err, ErrNotStill)
	}
	e.term.hold()
	defer e.term.release()
	p := pasted{text: text, before: e.term.look()}
	if !p.before.free() { // just now
		return pasted{}, ErrNotStill
	}
	typed, err := keys(text, p.before.paste)
	if err != nil {
		return pasted{}, err
	}
	if err := e.term.press(typed); err != nil {
		return pasted{}, err
	}
	shown := func(s sight) bool {
		p.shown = s
		return shows(p.before.text, s.text, text)
	}
	if err := e.term.await(ctx, e.o.ShowWait, settle, e.stop, t.cancelled, shown); err != nil {
		return pasted{}, orElse(err, ErrNotShown)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-t.cancelled:
		return pasted{}, errCancelled
	default:
	}
	t.sent = true
	return p, e.term.press([]byte("\r"))
}

func orElse(err, late error) error {
	if errors.Is(err, errLate) {
		return late
	}
	return err
}

// Cancel presses the key that interrupts the program, if a prompt was sent, and
// keeps it from being sent otherwise. Without a turn it does nothing: a key may
// answer a dialog. See agent.Engine.
func (e *Engine) Cancel(context.Context) error {
	e.mu.Lock()
	t := e.turn
	e.mu.Unlock()
	if t == nil {
		return nil
	}
	return e.interrupt(t)
}

func (e *Engine) interrupt(t *turn) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-t.cancelled:
	default:
		close(t.cancelled)
	}
	if !t.sent || e.turn != t {
		return nil
	}
	return e.term.press(e.o.Kind.interrupt())
}

// How the wait for a screen can end.
var (
	errLate  = errors.New("the screen did not come to rest in time")
	errEnded = errors.New("the program has ended")
)

// await waits until the screen has shown the same for a time and is as wanted. A
// limit of 0 is none but ctx's.
func (t *Terminal) await(ctx context.Context, limit, still time.Duration, stop, cancelled <-chan struct{}, wanted func(sight) bool) error {
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	began := time.Now()
	rested := time.NewTimer(still)
	defer rested.Stop()
	for {
		s, grown := t.watch()
		since := s.still
		if since.Before(began) && limit == 0 {
			since = began // what follows Enter takes its time to begin
		}
		if rest := still - time.Since(since); rest > 0 {
			rested.Reset(rest)
		} else if wanted(s) {
			return nil
		}
		select {
		case <-grown:
		case <-rested.C:
		case <-late:
			return errLate
		case <-stop:
			return errEnded
		case <-cancelled:
			return errCancelled
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// firstPicture waits until the program has drawn something and rests. One that
// draws nothing is given its time.
func (t *Terminal) firstPicture(ctx context.Context, limit time.Duration, stop <-chan struct{}) error {
	err := t.await(ctx, limit, settle, stop, nil, func(s sight) bool { return s.text != "" })
	if errors.Is(err, errLate) {
		return nil
	}
	return err
}

// watch is look, with what is closed when there is something new.
func (t *Terminal) watch() (sight, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return t.lookLocked(), nil
	}
	return t.lookLocked(), t.grown
}
