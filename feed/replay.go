package feed

import (
	"context"
	"fmt"
)

// replay reads the next page from the store, when it is its turn. It returns no
// batch when there is nothing to hand out, but progress to be looked at.
func (s *Subscription) replay(ctx context.Context) (Batch, bool, error) {
	h := s.hub
	select {
	case h.replays <- struct{}{}:
		defer func() { <-h.replays }()
	case <-ctx.Done():
		return Batch{}, false, ctx.Err()
	}
	h.mu.Lock()
	q := Query{After: s.cursor, Filter: s.group.filter, Limit: int(s.page)}
	frozen := s.frozen
	h.mu.Unlock()
	page, err := h.store.Read(ctx, q)
	if err != nil {
		return Batch{}, false, fmt.Errorf("replay: %w", err)
	}
	if frozen != nil && len(page.Events) > frozen.left {
		page.Events = page.Events[:frozen.left]
	}
	items := s.fit(&page) // outside the lock

	h.mu.Lock()
	defer h.mu.Unlock()
	if b, ok := s.astray(page); ok {
		return b, true, nil
	}
	if b, ok := s.evicted(page); ok {
		return b, true, nil
	}
	s.known = true
	if s.frozen != nil {
		b, ok := s.thaw(page, items)
		return b, ok, nil
	}
	s.cursor = max(s.cursor, page.Through)
	if len(items) == 0 {
		if s.epoch != h.head.Epoch {
			return Batch{}, false, s.await(ctx)
		}
		return Batch{}, false, nil
	}
	return Batch{Items: items, Position: Position{s.epoch, s.cursor}}, true, nil
}

// firstPage is how many events are read at first where the bytes of a batch are
// bounded. It grows with what fits.
const firstPage = 64

// fit encodes the events of a page, and cuts the page behind those that a batch
// may have.
func (s *Subscription) fit(page *Page) []*Item {
	if s.bytes == 0 {
		return s.hub.encode(page.Events)
	}
	items := make([]*Item, 0, len(page.Events))
	for size := 0; len(items) < len(page.Events); {
		e := page.Events[len(items)]
		it := &Item{e, s.hub.o.Encode(e)}
		if size += len(it.Frame); size > int(s.bytes) && len(items) > 0 {
			s.page = int32(min(len(items)+1, pumpPage))
			page.Events, page.Through = page.Events[:len(items)], items[len(items)-1].ID
			return items
		}
		items = append(items, it)
	}
	s.page = min(4*s.page, pumpPage)
	return items
}

// await lets go of the hub until it has found out that the log is another one.
func (s *Subscription) await(ctx context.Context) error {
	h := s.hub
	h.mu.Unlock()
	defer h.mu.Lock()
	if err := h.advance(ctx); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	return nil
}

// astray tells a subscriber that its position is not one of this log.
func (s *Subscription) astray(page Page) (Batch, bool) {
	head := page.Head
	if head.Epoch != s.epoch {
		// To it, everything in this log is news.
		gap := Gap{From: s.cursor, Reason: Epoch}
		s.epoch, s.told, s.frozen, s.known = head.Epoch, 0, nil, true
		return s.tell(gap, 0), true
	}
	if head.ID < s.cursor {
		gap := Gap{From: s.cursor, To: head.ID, Reason: Future}
		s.told, s.frozen, s.known = 0, nil, true
		return s.tell(gap, head.ID), true
	}
	return Batch{}, false
}

// evicted tells a subscriber of events that are no longer kept. Its position
// becomes that before the first event that is: among several topics, of which
// one is kept longer, that may be before the end of the gap.
func (s *Subscription) evicted(page Page) (Batch, bool) {
	from := max(s.cursor, s.told)
	if page.Trimmed <= from {
		return Batch{}, false
	}
	first := page.Through
	if len(page.Events) > 0 {
		first = page.Events[0].ID - 1
	}
	s.told = page.Trimmed
	return s.tell(Gap{From: from, To: page.Trimmed, Reason: Evicted}, max(s.cursor, min(page.Trimmed, first))), true
}

// thaw hands out what a frozen subscriber is still to get, then the gap.
func (s *Subscription) thaw(page Page, items []*Item) (Batch, bool) {
	f := s.frozen
	for i, it := range items {
		if it.ID > f.to {
			items = items[:i]
			break
		}
	}
	if f.left -= len(items); len(items) > 0 {
		s.cursor = items[len(items)-1].ID
		return Batch{Items: items, Position: Position{s.epoch, s.cursor}}, true
	}
	if f.left > 0 && page.Through < f.to {
		s.cursor = page.Through
		return Batch{}, false
	}
	s.frozen = nil
	if f.left > 0 { // retention was faster; it was told of that
		s.cursor = max(s.cursor, f.to)
		return Batch{}, false
	}
	s.hub.stats.Dropped[DropNewest] += f.dropped
	return s.tell(Gap{From: s.cursor, To: f.to, Dropped: f.dropped, Reason: Slow}, f.to), true
}
