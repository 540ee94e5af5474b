package worker

import (
	"context"
	"errors"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

const (
	// seekFirst and seekLast are how soon a session whose calls wait for its worker is
	// looked for at other hosts, and how often in the end.
	seekFirst = 250 * time.Millisecond
	seekLast  = 2 * time.Second
)

func isConflict(err error) bool { return errors.Is(err, ErrConflict) }

// claimOnce writes the new holder of the session under the epoch that we know.
// After a conflict the machine has adopted what is in the store.
func (s *Session) claimOnce(w welcome) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	rec := s.m.rec.clone()
	epoch := rec.Epoch
	rec.Epoch, rec.Owner = epoch+1, s.host.o.Owner
	rec.InstanceID, rec.Attempt = w.InstanceID, w.Attempt
	if rec.State != StateReleasing { // as it will be when it is bound, which then is no write of its own
		rec.State, rec.Deadline.Reconnect = StateReadying, time.Time{}
	}
	err := s.host.store.Save(ctx, rec, epoch)
	if err == nil {
		s.m.rec.Epoch, s.m.rec.Owner = rec.Epoch, rec.Owner
		s.saved, s.owned = rec, true
		return nil
	}
	if !isConflict(err) {
		return err
	}
	now, loadErr := s.host.store.Load(ctx, s.id)
	if loadErr != nil {
		return loadErr
	}
	if now.State.Final() {
		s.lose()
		return ErrOver
	}
	s.owned = false
	from := s.m.rec.State
	acts := s.m.adopt(time.Now(), now)
	s.note(from, nil, acts)
	s.execute(acts)
	return err
}

// welcomeGuest keeps a connection that begins here, of a session that another host
// took over without our knowledge: it is judged by what that host has written. It
// reports false if there is none, or the session is over.
func (s *Session) welcomeGuest(ev hostEvent, acts []hostAction) bool {
	if _, ok := ev.(hostOpened); !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	now, err := s.host.store.Load(ctx, s.id)
	if err != nil || now.State.Final() {
		return false
	}
	s.owned = false
	s.execute(acts)
	from := s.m.rec.State
	acts = s.m.adopt(time.Now(), now)
	s.note(from, nil, acts)
	s.execute(acts)
	return true
}

// seek looks for a session whose calls wait here while its worker may have gone to
// another host: nobody tells this one. It goes on as long as they wait, which the
// reconnect window bounds.
func (s *Session) seek() {
	switch need := s.owned && s.gone == nil && s.m.bound == 0 && len(s.calls) > 0; {
	case !need:
		s.rest()
	case s.seeker == nil:
		s.pause = min(max(2*s.pause, seekFirst), seekLast)
		s.seeker = time.AfterFunc(s.pause, s.sought)
	}
}

// rest ends the search.
func (s *Session) rest() {
	s.pause = 0
	if s.seeker != nil {
		s.seeker.Stop()
		s.seeker = nil
	}
}

// sought ends the calls of a session that is another host's by now.
func (s *Session) sought() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seeker == nil { // it was found, or the session is gone
		return
	}
	s.seeker = nil
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	switch rec, err := s.host.store.Load(ctx, s.id); {
	case errors.Is(err, ErrUnknownSession), err == nil && rec.Epoch != s.m.rec.Epoch:
		s.lose()
		return
	case err != nil:
		s.host.o.Logger.WarnContext(ctx, "the session could not be looked up", logattr.Session(s.id), logattr.Err(err))
	}
	s.seek()
}
