package feed

import (
	"context"
	"math"
)

// Subscribe says what a subscriber wants.
type Subscribe struct {
	Filter Filter
	// From is the position to resume from. Nil means from now on.
	From *Position
	// Wake, when set, is called when there may be something to Poll or to Take; it
	// must not block nor call the hub. It serves those who have no goroutine to
	// wait in Next.
	Wake func()
	// Bytes bounds the frames of one batch, beyond those of its first event. Zero
	// does not.
	Bytes int
	// Patient is for a reader that keeps its place elsewhere and must not lose
	// events: no policy applies to it, and what is not in the ring any more it
	// reads from the store.
	Patient bool
}

// Batch is what a subscriber gets at once: events, or word of a gap.
type Batch struct {
	Items []*Item
	Gap   *Gap
	// Position is where to resume behind this batch.
	Position Position
}

// Subscription is the place of one subscriber in the log. Next, Take and Poll are
// for one goroutine at a time; Close may be called from any.
type Subscription struct {
	hub  *Hub
	wake func()
	bell chan struct{} // nil with Subscribe.Wake

	bytes int32 // of the frames of a batch, 0 for any
	page  int32 // events that the next replay reads

	// Guarded by hub.mu.
	group   *group
	gen     int
	epoch   string
	cursor  int64 // what is selected up to here was handed out or told of
	next    int64 // while live: number of the group's item to hand out next
	live    bool  // takes from the ring, not from the store
	known   bool  // the store has confirmed that the log came to cursor
	settled bool  // has caught up once, so the policy applies
	told    int64 // up to here it was told of evictions
	frozen  *frozen
	closed  bool
	patient bool
}

// frozen is a lagging subscriber with the policy DropNewest: it gets so many
// events more and then a gap.
type frozen struct {
	left    int
	to      int64
	dropped int64
}

// Subscribe adds a subscriber. Errors: ErrFull, ErrStopped.
func (h *Hub) Subscribe(want Subscribe) (*Subscription, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.stopped:
		return nil, ErrStopped
	case h.count >= h.o.Subscribers:
		return nil, ErrFull
	}
	s := &Subscription{hub: h, group: h.group(want.Filter), gen: h.gen, epoch: h.head.Epoch, cursor: h.head.ID, wake: want.Wake, page: pumpPage, patient: want.Patient}
	if want.Bytes > 0 {
		s.bytes, s.page = int32(min(want.Bytes, math.MaxInt32)), firstPage
	}
	if s.wake == nil {
		s.bell = make(chan struct{}, 1)
		s.wake = s.ring
	}
	if want.From == nil {
		s.live, s.settled, s.next = true, true, s.group.n
	} else {
		s.epoch, s.cursor = want.From.Epoch, want.From.ID
		if s.goLive() {
			h.stats.FromRing++
		} else {
			h.stats.FromStore++
		}
	}
	s.group.subs[s] = struct{}{}
	h.count++
	return s, nil
}

func (s *Subscription) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// goLive takes the subscription to the ring if everything that it needs is
// there. hub.mu is held.
func (s *Subscription) goLive() bool {
	h, g := s.hub, s.group
	if s.frozen != nil || s.epoch != h.head.Epoch || s.cursor < g.floor || s.cursor > h.head.ID {
		return false
	}
	s.live, s.next = true, g.after(s.cursor)
	return true
}

// Close ends the subscription. Next and Take then return ErrClosed.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.closeLocked()
}

func (s *Subscription) closeLocked() {
	if s.closed {
		return
	}
	s.closed = true
	s.hub.count--
	g := s.group
	delete(g.subs, s)
	if len(g.subs) == 0 && g != s.hub.all {
		delete(s.hub.groups, g.filter)
		s.hub.index.remove(g)
	}
	s.wake()
}

// Position is where to resume. It moves on also while nothing that is selected
// comes.
func (s *Subscription) Position() Position {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.positionLocked()
}

func (s *Subscription) positionLocked() Position {
	if s.live && s.gen == s.hub.gen && s.next == s.group.n {
		s.cursor = max(s.cursor, s.hub.head.ID)
	}
	return Position{s.epoch, s.cursor}
}

// Next waits for the next batch, which has events or a gap. Errors: that of ctx,
// ErrClosed, ErrStopped, *SlowError; and those of the store, after which it may
// be called again.
func (s *Subscription) Next(ctx context.Context) (Batch, error) {
	for {
		b, ok, err := s.Take(ctx)
		if ok || err != nil {
			return b, err
		}
		select {
		case <-s.bell:
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		}
	}
}

// Take returns the next batch if there is one. It reads the store if it must,
// but does not wait for events. Errors are those of Next.
func (s *Subscription) Take(ctx context.Context) (Batch, bool, error) {
	for {
		b, state, err := s.takeLive(nil)
		if err != nil || state != behind {
			return b, state == ready, err
		}
		b, ok, err := s.replay(ctx)
		if err != nil || ok {
			return b, ok, err
		}
	}
}

// Poll is Take without the store and without an allocation: it appends the items
// to into, which is best empty with some capacity. Behind means that the store
// has what comes next; then Take gets it, which may take its time.
func (s *Subscription) Poll(into []*Item) (b Batch, isBehind bool, err error) {
	b, state, err := s.takeLive(into)
	return b, state == behind, err
}

type state int

const (
	idle   state = iota // nothing to hand out
	ready               // here is a batch
	behind              // the store has it
)

// takeLive takes a batch from the ring.
func (s *Subscription) takeLive(items []*Item) (Batch, state, error) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed {
		return Batch{}, idle, ErrClosed
	}
	if s.gen != h.gen {
		s.gen, s.live, s.known = h.gen, false, false
	}
	if s.live && s.next < s.group.oldest() && (!s.settled || s.patient) {
		s.live = false // the ring has moved past a reader that is still catching up
	}
	if !s.live && !s.goLive() {
		if s.ahead() {
			return Batch{}, idle, s.end()
		}
		return Batch{}, behind, nil
	}
	if lag := s.group.n - s.next; s.settled && !s.patient && lag > int64(h.o.Lag) {
		return s.overflow(lag)
	}
	for size := 0; s.next < s.group.n; s.next++ {
		it := s.group.item(s.next)
		if size += len(it.Frame); s.bytes > 0 && size > int(s.bytes) && len(items) > 0 {
			break
		}
		items, s.cursor = append(items, it), it.ID
	}
	s.settled = s.settled || s.next == s.group.n
	position := s.positionLocked()
	if len(items) > 0 {
		return Batch{Items: items, Position: position}, ready, nil
	}
	return Batch{}, idle, s.end()
}

// ahead reports whether the subscriber has seen more of the log than the hub. It
// waits until the hub has caught up. hub.mu is held.
func (s *Subscription) ahead() bool {
	if s.known && s.frozen == nil && s.epoch == s.hub.head.Epoch && s.cursor > s.hub.head.ID {
		s.hub.kick()
		return true
	}
	return false
}

// end is the error of a subscriber that has everything.
func (s *Subscription) end() error {
	if s.hub.stopped {
		return ErrStopped
	}
	return nil
}

// overflow applies the policy of the group. hub.mu is held.
func (s *Subscription) overflow(lag int64) (Batch, state, error) {
	h, g := s.hub, s.group
	most := int64(h.o.Lag)
	switch g.policy {
	case Disconnect:
		h.stats.Dropped[Disconnect]++
		s.closeLocked()
		return Batch{}, idle, &SlowError{Position{s.epoch, s.cursor}, lag}
	case DropNewest:
		s.live, s.frozen = false, &frozen{left: h.o.Lag, to: g.item(g.n - 1).ID, dropped: lag - most}
		return Batch{}, behind, nil
	default:
		s.next = g.n - most
		gap := Gap{From: s.cursor, To: g.item(s.next - 1).ID, Dropped: lag - most, Reason: Slow}
		h.stats.Dropped[DropOldest] += gap.Dropped
		return s.tell(gap, gap.To), ready, nil
	}
}

// tell makes the batch of a gap and moves the subscription. hub.mu is held.
func (s *Subscription) tell(gap Gap, cursor int64) Batch {
	s.hub.stats.Gaps++
	s.cursor = cursor
	return Batch{Gap: &gap, Position: Position{s.epoch, cursor}}
}
