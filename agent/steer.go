package agent

import (
	"context"
	"log/slog"

	"github.com/ossicle/ossicle/internal/logattr"
)

// offerLocked decides what may be offered to the running turn: what has arrived
// since, once, if the owner of the session wants it and the agent has a way for
// it (specification N-24). The items stay in the queue; only the agent's own
// word that it has them makes them part of the run.
func (s *Session) offerLocked() ([]*item, *run) {
	r := s.active
	if r == nil || !r.calling || r.cause != nil || s.steering || !s.opts.MidTurn || !s.engine.info.Steering {
		return nil, nil
	}
	if _, ok := r.engine.(Steerer); !ok {
		return nil, nil
	}
	items := s.offerable()
	if len(items) == 0 {
		return nil, nil
	}
	s.steering = true
	r.offers.Add(1)
	return items, r
}

// offerable returns the items that the running turn has not been offered.
func (s *Session) offerable() []*item {
	var items []*item
	for _, it := range s.queue.items {
		if !it.offered && (it.input != nil || !s.held) {
			it.offered = true
			items = append(items, it)
		}
	}
	return items
}

// steer makes one offer.
func (s *Session) steer(ctx context.Context, r *run, items []*item) {
	defer s.ring()
	defer r.offers.Done()
	ctx, cancel := context.WithTimeout(ctx, s.opts.CancelWait)
	defer cancel()
	s.mu.Lock()
	r.noOffer = cancel
	s.mu.Unlock()
	prompt := Prompt{Parts: s.parts(items, true)}
	steerer, _ := r.engine.(Steerer) // offerLocked has looked
	outcome, err := steerer.Steer(ctx, prompt)
	s.mu.Lock()
	s.steering = false
	if err == nil && outcome == SteerInjected {
		s.join(r, items)
	}
	s.mu.Unlock()
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelDebug, "agent.steer_failed", logattr.Session(s.id), logattr.Err(err))
	}
}

// endOffers waits for the offer that is on its way to a turn that has ended; its
// answer says whether the turn had it. The caller holds the lock, which is
// released meanwhile.
func (s *Session) endOffers(r *run) {
	if r.noOffer != nil {
		r.noOffer()
	}
	s.mu.Unlock()
	r.offers.Wait()
	s.mu.Lock()
}

// join makes items of the queue part of the run that has them already.
func (s *Session) join(r *run, items []*item) {
	joined := map[*item]bool{}
	for _, it := range items {
		joined[it] = true
	}
	var left []*item
	for _, it := range s.queue.items {
		if !joined[it] {
			left = append(left, it)
			continue
		}
		s.queue.count(it, -1)
		r.items = append(r.items, it)
		s.recordClaim(it, r.id)
	}
	s.queue.items = left
	r.channel = s.route(r.items)
	r.proven, r.wokenDue = true, true
}

// drain answers an agent that asks, in the middle of its turn, for what waits.
// The answer reaching the agent, in reply to its own request, is the proof that
// the turn has it.
func (s *Session) drain(n int, ev Drain) {
	s.mu.Lock()
	r := s.active
	var items []*item
	if n == s.engine.count && r != nil && r.calling && r.cause == nil && s.opts.MidTurn && !s.steering {
		items = s.offerable()
	}
	if len(items) == 0 {
		s.mu.Unlock()
		_ = ev.Reply(Prompt{}) // nothing was promised
		return
	}
	s.steering = true
	r.offers.Add(1)
	defer r.offers.Done()
	s.mu.Unlock()
	err := ev.Reply(Prompt{Parts: s.parts(items, true)})
	s.mu.Lock()
	s.steering = false
	if err == nil {
		s.join(r, items)
	}
	s.mu.Unlock()
	s.ring()
}
