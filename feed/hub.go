package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

const (
	// pumpPage is how many events are read from the store at once.
	pumpPage = 500
	// ringWait bounds how long a publisher waits for the bus, which has no say in
	// whether the event is published.
	ringWait = 2 * time.Second

	// manyFilters is how many filters have whole rings.
	manyFilters = 64
)

// Hub hands the events of a log to subscribers. It is safe for concurrent use.
//
// One goroutine, that of Run, reads the log when the bus rings and moves the
// shared rings on. Subscribers take from the rings in their own goroutines; the
// hub never waits for one.
type Hub struct {
	store   Store
	bus     Bus
	o       Options
	kicked  chan struct{} // the log may have grown
	replays chan struct{} // a place for each replay
	pumping chan struct{} // holds a token while the rings are moved on

	mu      sync.Mutex // guards what follows, and the subscriptions
	head    Position   // every event up to here is in the rings
	gen     int        // how often the rings were cleared
	groups  map[Filter]*group
	index   index  // of the groups, by topic
	all     *group // the one of the zero Filter, always there
	count   int    // subscriptions
	stopped bool
	stats   Stats
}

// NewHub returns a hub of the log in store, whose last events it reads. A nil
// bus means that nobody else writes to the log.
func NewHub(ctx context.Context, store Store, bus Bus, o *Options) (*Hub, error) {
	if bus == nil {
		bus = &Local{}
	}
	h := &Hub{store: store, bus: bus, o: o.orDefaults(), kicked: make(chan struct{}, 1)}
	h.replays = make(chan struct{}, h.o.Replays)
	h.pumping = make(chan struct{}, 1)
	end, err := store.Read(ctx, Query{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	from := max(0, end.Head.ID-int64(h.o.Ring))
	page, err := store.Read(ctx, Query{After: from, Limit: min(h.o.Ring, MaxPage)})
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	h.head = Position{page.Head.Epoch, max(from, page.Trimmed)}
	h.all = newGroup(Filter{}, h.o.Ring, h.head.ID)
	h.groups = map[Filter]*group{{}: h.all}
	h.index.add(h.all)
	page.Events = after(page.Events, h.head.ID)
	h.head.ID = max(h.head.ID, page.Through)
	for _, it := range h.encode(page.Events) {
		h.all.push(it, h.o.Policy(it.Topic))
	}
	h.kick() // whatever came since
	return h, nil
}

// after drops the events up to an id.
func after(events []Event, id int64) []Event {
	for len(events) > 0 && events[0].ID <= id {
		events = events[1:]
	}
	return events
}

// Publish implements Publisher. The bus cannot make it fail.
func (h *Hub) Publish(ctx context.Context, drafts []Draft) ([]Receipt, error) {
	clean, err := Clean(drafts)
	if err != nil || len(clean) == 0 {
		return nil, err
	}
	receipts, err := h.store.Append(ctx, clean)
	if err != nil {
		var full *TopicsError // which is no fault of the store
		if ctx.Err() == nil && !errors.As(err, &full) {
			h.note(&h.stats.Store, err)
			h.kick() // to find out when it is well again
		}
		return nil, fmt.Errorf("publish: %w", err)
	}
	h.kick()
	head := Position{Epoch: h.Stats().Head.Epoch}
	for _, r := range receipts {
		head.ID = max(head.ID, r.ID)
	}
	ringing, cancel := context.WithTimeout(context.WithoutCancel(ctx), ringWait)
	defer cancel()
	if err := h.bus.Ring(ringing, head); err != nil {
		h.note(&h.stats.Bus, err)
		h.o.Logger.WarnContext(ctx, "the bus took no ring; other processes learn of the events later", logattr.Err(err))
	}
	return receipts, nil
}

// kick has the pump look at the log.
func (h *Hub) kick() {
	select {
	case h.kicked <- struct{}{}:
	default:
	}
}

// Run moves the hub on until ctx ends, and returns nil. Then subscribers get
// what is left in the rings, and ErrStopped.
func (h *Hub) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { h.listen(ctx) })
	defer h.stop()
	for {
		select {
		case <-h.kicked:
			retry(ctx, h.o.Logger, "the log cannot be read", func(err error) { h.note(&h.stats.Store, err) }, h.advance)
		case <-ctx.Done():
			return nil
		}
	}
}

// listen hears the bus, for as long as it takes.
func (h *Hub) listen(ctx context.Context) {
	hear(ctx, h.bus, h.o.Logger, func(err error) {
		h.note(&h.stats.Bus, err)
		// Until it hears again, what comes is found by whatever else kicks.
		h.kick()
	}, h.kick)
}

// advance reads the log up to its end.
func (h *Hub) advance(ctx context.Context) error {
	select {
	case h.pumping <- struct{}{}:
		defer func() { <-h.pumping }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		h.mu.Lock()
		from := h.head.ID
		h.mu.Unlock()
		page, err := h.store.Read(ctx, Query{After: from, Limit: pumpPage})
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		h.apply(page, h.encode(page.Events))
		if page.Through >= page.Head.ID {
			return nil
		}
	}
}

func (h *Hub) encode(events []Event) []*Item {
	items := make([]*Item, len(events))
	for i, e := range events {
		items[i] = &Item{e, h.o.Encode(e)}
	}
	return items
}

// apply moves the rings on by a page.
func (h *Hub) apply(page Page, items []*Item) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Another log, one that went back, or one that was trimmed before it was read:
	// the rings cannot tell the whole truth any more, the store can.
	if page.Head.Epoch != h.head.Epoch || page.Head.ID < h.head.ID || page.Trimmed > h.head.ID {
		h.head = page.Head
		h.gen++
		for _, g := range h.groups {
			g.clear(page.Head.ID)
			g.wake()
		}
		return
	}
	touched := map[*group]struct{}{}
	for _, it := range items {
		policy := h.o.Policy(it.Topic)
		h.index.each(it.Topic, func(g *group) {
			g.push(it, policy)
			touched[g] = struct{}{}
		})
	}
	h.head.ID = page.Through
	for g := range touched {
		g.wake()
	}
}

func (g *group) wake() {
	for s := range g.subs {
		s.wake()
	}
}

func (h *Hub) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	for _, g := range h.groups {
		g.wake()
	}
}

// group returns the group of a filter, made of what the common ring has. h.mu is
// held.
func (h *Hub) group(f Filter) *group {
	if g := h.groups[f]; g != nil {
		return g
	}
	size := h.o.Ring
	if len(h.groups) > manyFilters {
		size = h.o.Lag + 1
	}
	g := newGroup(f, size, h.all.floor)
	for k := h.all.oldest(); k < h.all.n; k++ {
		if it := h.all.item(k); f.Match(it.Topic) {
			g.push(it, h.o.Policy(it.Topic))
		}
	}
	h.groups[f] = g
	h.index.add(g)
	return g
}
