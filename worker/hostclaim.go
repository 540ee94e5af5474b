package worker

import (
	"context"
	"errors"
	"time"
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
