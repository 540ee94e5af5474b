package acp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/logattr"
)

// turn is the prompt in flight.
type turn struct {
	answer    pendingCall
	cancelled chan struct{} // closed when the agent was asked to end it
}

// Turn sends a prompt and waits for the end of the agent's turn. See
// agent.Engine. While a turn is in flight it returns ErrBusy and sends nothing.
//
// After ctx has ended the agent is asked to cancel and Turn waits for it, for
// at most Options.CancelGrace: then the agent is killed and the error is its
// *agent.ExitError. A turn that ends by itself in that time is an Outcome.
func (e *Engine) Turn(ctx context.Context, p agent.Prompt) (agent.Outcome, error) {
	t, err := e.begin(ctx, p)
	if err != nil {
		return agent.Outcome{}, err
	}
	defer e.end(t)

	stop, cancelled := ctx.Done(), t.cancelled
	var grace <-chan time.Time
	for {
		select {
		case r := <-t.answer.answer:
			return e.outcome(ctx, t, r)
		case <-stop:
			stop = nil
			if err := e.cancel(context.WithoutCancel(ctx), t); err != nil {
				e.log.WarnContext(ctx, "cancel not sent", logattr.Err(err))
			}
		case <-cancelled:
			cancelled = nil
			timer := time.NewTimer(e.o.CancelGrace)
			defer timer.Stop()
			grace = timer.C
		case <-grace:
			grace = nil
			e.kill(ErrUnresponsive)
		case <-e.c.done:
			select {
			case r := <-t.answer.answer: // its last word
				return e.outcome(ctx, t, r)
			case <-e.gone:
				return agent.Outcome{}, e.dead()
			}
		}
	}
}

// begin sends the prompt and registers the turn, in one step: a cancel that
// comes later is behind it on the wire.
func (e *Engine) begin(ctx context.Context, p agent.Prompt) (*turn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closing:
		return nil, agent.ErrClosed
	case e.exit != nil:
		return nil, e.exit
	case !e.ready:
		return nil, errors.New("prompt agent: not started")
	case e.turn != nil:
		return nil, ErrBusy
	}
	call, err := e.c.start(ctx, methodPrompt, promptParams{SessionID: e.session, Prompt: blocks(p)})
	if err != nil {
		return nil, fmt.Errorf("prompt agent: %w", err)
	}
	e.turn = &turn{answer: call, cancelled: make(chan struct{})}
	return e.turn, nil
}

func (e *Engine) isClosing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closing
}

func (e *Engine) end(t *turn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.turn == t {
		e.turn = nil
	}
}

// blocks sends one text: agents join several blocks without a space, and a
// frame around watched text must stand on lines of its own.
func blocks(p agent.Prompt) []textBlock {
	return []textBlock{{Type: "text", Text: p.Text()}}
}

func (e *Engine) outcome(ctx context.Context, t *turn, r response) (agent.Outcome, error) {
	var result promptResult
	err := r.into(&result)
	asked := false
	select {
	case <-t.cancelled:
		asked = true
	default:
	}
	switch {
	case e.isClosing() && (err != nil || result.StopReason == string(agent.StopCancelled)):
		<-e.gone
		return agent.Outcome{}, agent.ErrClosed
	case err != nil && asked:
		// Some agents report the cancel that they were asked for as an error.
		e.log.DebugContext(ctx, "cancelled turn ended in an error", logattr.Err(err))
		result.StopReason = string(agent.StopCancelled)
	case err != nil:
		return agent.Outcome{}, fmt.Errorf("prompt agent: %w", err)
	case result.StopReason == "":
		return agent.Outcome{}, errors.New("prompt agent: it gave no stop reason")
	}
	if result.Usage != nil {
		e.h.emitUsage(agent.Usage{InputTokens: count(result.Usage.InputTokens), OutputTokens: count(result.Usage.OutputTokens)})
	}
	stop := agent.StopReason(result.StopReason)
	if stop == agent.StopCancelled && ctx.Err() != nil {
		return agent.Outcome{}, fmt.Errorf("prompt agent: %w", context.Cause(ctx))
	}
	return agent.Outcome{Stop: stop}, nil
}

// Cancel asks the agent to end the running turn. See agent.Engine. Open
// permission questions are answered as cancelled.
func (e *Engine) Cancel(ctx context.Context) error {
	e.mu.Lock()
	t := e.turn
	e.mu.Unlock()
	if t == nil {
		return nil
	}
	return e.cancel(ctx, t)
}

func (e *Engine) cancel(ctx context.Context, t *turn) error {
	e.mu.Lock()
	if e.turn == t {
		select {
		case <-t.cancelled:
		default:
			close(t.cancelled)
		}
	}
	e.mu.Unlock()
	ctx, stop := context.WithTimeout(ctx, e.o.CancelGrace)
	defer stop()
	err := e.c.notify(ctx, methodCancel, cancelParams{SessionID: e.session})
	e.h.perms.cancelAll()
	if err != nil {
		return fmt.Errorf("cancel turn: %w", err)
	}
	return nil
}

func (e *Engine) kill(why error) {
	e.mu.Lock()
	e.killed = why
	p := e.child
	e.mu.Unlock()
	e.log.Warn("agent killed", logattr.Err(why))
	p.Kill()
}

// Steer offers text to the running turn by the vendor extension
// _session/steering. See agent.Steerer.
func (e *Engine) Steer(ctx context.Context, p agent.Prompt) (agent.SteerOutcome, error) {
	e.mu.Lock()
	running, dead := e.turn != nil, e.closing || e.exit != nil
	e.mu.Unlock()
	switch {
	case dead:
		return agent.SteerFailed, e.dead()
	case !running:
		return agent.SteerNeedsTurn, nil
	}
	ctx, stop := context.WithTimeout(ctx, steerTimeout)
	defer stop()
	q := steerParams{SessionID: e.session, Prompt: blocks(p)}
	q.Meta.Steering.IdleBehavior = "promptRequired"
	var r steerResult
	if err := e.c.call(ctx, methodSteer, q, &r); err != nil {
		return agent.SteerFailed, fmt.Errorf("steer agent: %w", err)
	}
	switch r.Outcome {
	case "injected", "startedNewTurn": // the second is not what we asked for, but the text is in
		return agent.SteerInjected, nil
	case "promptRequired":
		return agent.SteerNeedsTurn, nil
	default:
		return agent.SteerFailed, nil
	}
}
