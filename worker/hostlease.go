package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

const (
	// renewals is how often a lease is renewed before it would end.
	renewals = 3
	// wholeSweep is every how many leases all sessions are looked at, and not those of
	// dead hosts alone.
	wholeSweep = 4
)

// sweepMargin is what a session has beyond its last deadline before another host
// gives it up: the clocks of two machines, and a store that was slow.
const sweepMargin = time.Minute

// Run tells the other hosts of the store that this one lives, and takes over what
// hosts that died have left, until ctx ends; then it says that it lives no longer.
// A host that has its store for itself needs no Run. To end in good order: Drain,
// then end Run, then Close.
//
// That a host died can be known by its silence alone, so this is a timer that runs
// at rest too: one write to the store in a third of HostOptions.Lease, one read in
// each, of all sessions in every fourth.
func (h *Host) Run(ctx context.Context) error {
	tick := time.NewTicker(h.o.Lease / renewals)
	defer tick.Stop()
	for n := 0; ; n++ {
		h.renew(ctx)
		if n%renewals == 0 {
			if _, err := h.sweep(ctx, n%(renewals*wholeSweep) == 0); err != nil && ctx.Err() == nil {
				h.o.Logger.WarnContext(ctx, "sessions of dead hosts could not be looked for", logattr.Err(err))
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return h.retire(context.WithoutCancel(ctx))
		}
	}
}

// renew announces the host. One that was taken for dead looks which sessions it
// still has.
func (h *Host) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	lapsed, err := h.store.Announce(ctx, HostRecord{Owner: h.o.Owner, Addr: h.o.Addr, Image: h.o.Image}, h.o.Lease)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			h.o.Logger.WarnContext(ctx, "the host could not be announced", logattr.Err(err))
		}
		return
	}
	if !lapsed {
		return
	}
	for _, s := range h.Sessions() {
		s.reaffirm(ctx)
	}
}

func (h *Host) retire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := h.store.Retire(ctx, h.o.Owner); err != nil {
		return fmt.Errorf("retire host: %w", err)
	}
	return nil
}

// Sweep takes over the sessions of hosts that announced themselves once and are
// silent now: their workers have what is left of their windows to come, to
// whichever host. Sessions whose last deadline is past by a minute, whoever had
// them, it fails, and deletes their sandboxes. It returns how many there were of
// both. Run calls it; of several hosts one wins each session.
func (h *Host) Sweep(ctx context.Context) (int, error) { return h.sweep(ctx, true) }

func (h *Host) sweep(ctx context.Context, whole bool) (int, error) {
	recs, err := h.store.List(ctx, Filter{Live: true, Orphaned: true})
	if err != nil {
		return 0, fmt.Errorf("sweep sessions: %w", err)
	}
	dead := map[string]bool{}
	for _, rec := range recs {
		dead[rec.Owner] = rec.Owner != h.o.Owner
	}
	if whole {
		if recs, err = h.store.List(ctx, Filter{Live: true}); err != nil {
			return 0, fmt.Errorf("sweep sessions: %w", err)
		}
	}
	swept := 0
	for _, rec := range recs {
		if _, err := h.Session(rec.ID); err == nil {
			continue
		}
		var take func(context.Context, Record) error
		switch {
		case time.Now().After(rec.LastDeadline().Add(sweepMargin)):
			take = h.giveUp
		case dead[rec.Owner]:
			take = h.takeOver
		default:
			continue
		}
		switch err := take(ctx, rec); {
		case errors.Is(err, ErrConflict), errors.Is(err, ErrUnknownSession): // somebody was faster
		case errors.Is(err, ErrDraining):
			return swept, nil
		case err != nil:
			return swept, fmt.Errorf("sweep sessions: %w", err)
		default:
			swept++
		}
	}
	return swept, nil
}

// giveUp fails a session that nobody holds any more.
func (h *Host) giveUp(ctx context.Context, rec Record) error {
	from, epoch := rec.State, rec.Epoch
	rec.Epoch, rec.Owner, rec.State = epoch+1, h.o.Owner, StateFailed
	rec.Failure, rec.Detail, rec.Deadline, rec.Tools = FailureLost, "its host is gone and its worker did not come back", Deadlines{}, nil
	if err := h.store.Save(ctx, rec, epoch); err != nil {
		return err
	}
	h.audit(rec.entry("failed", string(rec.Failure)+": "+rec.Detail, from))
	if h.enter() {
		go func() {
			defer h.work.Done()
			h.teardown(rec.ID, false)
		}()
	}
	return nil
}

// takeOver makes the session of a dead host ours. It waits for its worker here,
// and whichever host the worker dials takes it from us.
func (h *Host) takeOver(ctx context.Context, rec Record) error {
	h.mu.Lock()
	leaving := h.draining || h.closed
	h.mu.Unlock()
	if leaving {
		return ErrDraining
	}
	from, before, epoch := rec.State, rec.Owner, rec.Epoch
	m, _ := newHostMachine(rec, h.o.Image, h.o.MCPVersions, time.Now())
	rec = m.rec
	rec.Epoch, rec.Owner = epoch+1, h.o.Owner
	if err := h.store.Save(ctx, rec, epoch); err != nil {
		return err
	}
	h.audit(rec.entry("taken_over", fmt.Sprintf("the host %.100q is gone", before), from))
	_, err := h.open(rec, true)
	return err
}

// reaffirm looks whether a session is still ours, after a time in which others
// took this host for dead.
func (s *Session) reaffirm(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.owned || s.gone != nil {
		return
	}
	rec, err := s.host.store.Load(ctx, s.id)
	switch {
	case err == nil && rec.Epoch == s.m.rec.Epoch:
	case err == nil, errors.Is(err, ErrUnknownSession):
		if !s.retake(ctx, s.m.bound != 0) {
			s.lose()
		}
	default: // the next change of the session finds out
		s.host.o.Logger.WarnContext(ctx, "the session could not be looked up", logattr.Session(s.id), logattr.Err(err))
	}
}

// saveTries bounds the attempts to write the end of a session to a store that does
// not answer, ten seconds apart in the end. After that the session is one of a dead
// host to others, and they fail it.
const saveTries = 60

// saveLater writes the end of a session once the store answers.
func (s *Session) saveLater(had bool) {
	if !s.host.enter() {
		return
	}
	go func() {
		defer s.host.work.Done()
		for try := range saveTries {
			pause := time.NewTimer(min(teardownPause<<min(try, 4), backoffMost))
			select {
			case <-pause.C:
			case <-s.host.ending:
				pause.Stop()
				return
			}
			s.mu.Lock()
			err := s.save()
			if isConflict(err) {
				s.retakeSoon(had)
			}
			s.mu.Unlock()
			if err == nil || isConflict(err) || errors.Is(err, ErrUnknownSession) {
				return
			}
		}
	}()
}

// retakeSoon is retake within the time of a call to the store.
func (s *Session) retakeSoon(had bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	return s.retake(ctx, had)
}

// retake takes a session back that another host took over, as that of a dead one,
// while we had its worker: what the worker does counts, not what another host
// believes. It reports false if the worker has gone there, or the session is over.
func (s *Session) retake(ctx context.Context, had bool) bool {
	if !had {
		return false
	}
	rec := s.m.rec
	for range 3 {
		now, err := s.host.store.Load(ctx, s.id)
		if err != nil || now.State.Final() || now.InstanceID != rec.InstanceID || now.Attempt != rec.Attempt {
			return false
		}
		rec.Epoch, rec.Owner = now.Epoch+1, s.host.o.Owner
		switch err := s.host.store.Save(ctx, rec, now.Epoch); {
		case err == nil:
			s.m.rec.Epoch, s.m.rec.Owner, s.saved = rec.Epoch, rec.Owner, rec.clone()
			s.audit("retaken", "the host "+now.Owner+" had taken it over")
			return true
		case !isConflict(err):
			return false
		}
	}
	return false
}
