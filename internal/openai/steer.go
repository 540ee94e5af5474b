package openai

import (
	"context"
	"sync"

	"github.com/ossicle/ossicle/agent"
)

// offer is a text for the running turn. Its outcome is known when it goes to
// the model with the next call, or when the turn ends before that.
type offer struct {
	parts   []agent.Part
	once    sync.Once
	outcome chan agent.SteerOutcome // buffered for the only outcome
}

func (o *offer) settle(s agent.SteerOutcome) { o.once.Do(func() { o.outcome <- s }) }

// Steer adds text to the running turn: the model has it with its next call.
// Steer returns when that is certain. See agent.Steerer.
func (e *Engine) Steer(ctx context.Context, p agent.Prompt) (agent.SteerOutcome, error) {
	e.mu.Lock()
	switch {
	case e.closed:
		e.mu.Unlock()
		return agent.SteerFailed, agent.ErrClosed
	case e.turn == nil:
		e.mu.Unlock()
		return agent.SteerNeedsTurn, nil
	}
	o := &offer{parts: p.Parts, outcome: make(chan agent.SteerOutcome, 1)}
	e.turn.offers = append(e.turn.offers, o)
	e.mu.Unlock()
	select {
	case s := <-o.outcome:
		return s, nil
	case <-ctx.Done():
		// Unless it was taken meanwhile, it is taken back.
		o.settle(agent.SteerFailed)
		if s := <-o.outcome; s == agent.SteerInjected {
			return s, nil
		}
		return agent.SteerFailed, context.Cause(ctx)
	}
}

// takeOffers puts what was offered into the conversation and reports whether
// there was anything.
func (e *Engine) takeOffers(t *turn) bool {
	e.mu.Lock()
	offers := t.offers
	t.offers = nil
	e.mu.Unlock()
	taken := false
	for _, o := range offers {
		o.once.Do(func() {
			e.history.ask(t.n, o.parts)
			o.outcome <- agent.SteerInjected
			taken = true
		})
	}
	return taken
}
