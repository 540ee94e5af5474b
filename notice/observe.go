package notice

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Change says that an inbox may be other than it was. It tells no content: who
// wants to know looks.
type Change struct {
	Agent string
	// IDs are the notices that are new, or other than they were. More may be: see
	// Unknown.
	IDs []string
	// Unknown: notices have changed, and it is not known which.
	Unknown bool
	// Gone: the agent is known no more.
	Gone bool
}

// maxHeldDeliveries bounds the deliveries whose notices are remembered while
// somebody observes. Of those beyond it changes are Unknown.
const maxHeldDeliveries = 1024

// Observe calls f after each change that this process makes to an inbox, until
// stop is called; f must not block, and is not called any more after stop has
// returned. What other processes do to the same store is not seen.
func (in *Inbox) Observe(f func(Change)) (stop func()) { return in.watched.observe(f) }

// watched is a store that tells what is done to it.
type watched struct {
	Store

	mu        sync.Mutex
	observers map[*func(Change)]struct{}
	held      map[string][]string // notices of a delivery, by its id
}

func newWatched(store Store) *watched {
	return &watched{Store: store, observers: map[*func(Change)]struct{}{}, held: map[string][]string{}}
}

func (w *watched) observe(f func(Change)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observers[&f] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.observers, &f)
		if len(w.observers) == 0 {
			clear(w.held)
		}
	}
}

// tell passes a change on, if there was one.
func (w *watched) tell(err error, c Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		return
	}
	for f := range w.observers {
		(*f)(c)
	}
}

// hold remembers what a delivery holds.
func (w *watched) hold(delivery string, ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.observers) > 0 && len(w.held) < maxHeldDeliveries {
		w.held[delivery] = ids
	}
}

func (w *watched) letGo(delivery string) (ids []string, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids, known = w.held[delivery]
	delete(w.held, delivery)
	return ids, known
}

// done forgets deliveries that hold nothing but these: a notice that is pending no
// more belongs to none.
func (w *watched) done(ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for delivery, held := range w.held {
		held = slices.DeleteFunc(slices.Clone(held), func(id string) bool { return slices.Contains(ids, id) })
		if w.held[delivery] = held; len(held) == 0 {
			delete(w.held, delivery)
		}
	}
}

// Register implements Directory.
func (w *watched) Register(ctx context.Context, agent string, at time.Time) error {
	err := w.Store.Register(ctx, agent, at)
	w.tell(err, Change{Agent: agent})
	return err
}

// Unregister implements Directory.
func (w *watched) Unregister(ctx context.Context, agent string) error {
	err := w.Store.Unregister(ctx, agent)
	w.tell(err, Change{Agent: agent, Gone: true})
	return err
}

// Insert implements Log.
func (w *watched) Insert(ctx context.Context, n Notice, at, due time.Time) (id string, added bool, err error) {
	id, added, err = w.Store.Insert(ctx, n, at, due)
	if added {
		w.tell(err, Change{Agent: n.Agent, IDs: []string{id}})
	}
	return id, added, err
}

// Move implements Log.
func (w *watched) Move(ctx context.Context, agent string, ids []string, step Step) ([]string, error) {
	moved, err := w.Store.Move(ctx, agent, ids, step)
	if len(moved) > 0 {
		if !step.State.Pending() {
			w.done(moved)
		}
		w.tell(nil, Change{Agent: agent, IDs: moved})
	}
	return moved, err
}

// Claim implements Claims.
func (w *watched) Claim(ctx context.Context, c Claim) (Claimed, error) {
	claimed, err := w.Store.Claim(ctx, c)
	if len(claimed.Records) > 0 {
		held := make([]string, len(claimed.Records))
		for i := range claimed.Records {
			held[i] = claimed.Records[i].ID
		}
		w.hold(claimed.Delivery, held)
		w.tell(err, Change{Agent: c.Agent, IDs: held})
	}
	return claimed, err
}

// Extend implements Claims.
func (w *watched) Extend(ctx context.Context, agent, delivery string, until time.Time) error {
	err := w.Store.Extend(ctx, agent, delivery, until)
	w.tell(err, Change{Agent: agent})
	return err
}

// Release implements Claims.
func (w *watched) Release(ctx context.Context, agent, delivery string, next []Next, step Step) error {
	err := w.Store.Release(ctx, agent, delivery, next, step)
	if err == nil {
		held, known := w.letGo(delivery)
		w.tell(nil, Change{Agent: agent, IDs: held, Unknown: !known})
	}
	return err
}

// Spend implements Ledger.
func (w *watched) Spend(ctx context.Context, agent string, at time.Time, wakes, tokens int) error {
	err := w.Store.Spend(ctx, agent, at, wakes, tokens)
	w.tell(err, Change{Agent: agent})
	return err
}

// SetHold implements Ledger.
func (w *watched) SetHold(ctx context.Context, agent string, h Hold) error {
	err := w.Store.SetHold(ctx, agent, h)
	w.tell(err, Change{Agent: agent})
	return err
}

// Reset implements Ledger.
func (w *watched) Reset(ctx context.Context, agent string) error {
	err := w.Store.Reset(ctx, agent)
	w.tell(err, Change{Agent: agent})
	return err
}

// Prune implements Keeper.
func (w *watched) Prune(ctx context.Context, p Prune) (Pruned, error) {
	pruned, err := w.Store.Prune(ctx, p)
	if pruned.Expired+pruned.Deleted > 0 {
		w.tell(nil, Change{Agent: p.Agent, Unknown: true})
	}
	return pruned, err
}

// Delete implements Keeper.
func (w *watched) Delete(ctx context.Context, agent string, ids []string) (int, error) {
	n, err := w.Store.Delete(ctx, agent, ids)
	if n > 0 {
		w.tell(nil, Change{Agent: agent, Unknown: true})
	}
	return n, err
}
