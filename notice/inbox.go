package notice

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Inbox keeps notices for agents and sees to it that they are shown. It is
// safe for concurrent use. Post and Pull work at any time; what pushes is Run.
type Inbox struct {
	store   Store
	watched *watched // the same
	o       Options
	log     *slog.Logger
	posts   atomic.Uint64

	mu       sync.Mutex
	desks    map[string]*desk
	running  bool
	fresh    []*desk       // attached and not yet served
	attached chan struct{} // says that fresh has grown; holds one
}

// New returns an Inbox on a store. Errors of the store pass through it.
func New(store Store, o *Options) *Inbox {
	opts := o.withDefaults()
	w := newWatched(store)
	return &Inbox{store: w, watched: w, o: opts, log: opts.Logger, desks: map[string]*desk{}, attached: make(chan struct{}, 1)}
}

// Register makes an agent known, so that notices can be posted to it. It is
// idempotent, and Attach does it too.
func (in *Inbox) Register(ctx context.Context, agent string) error {
	if err := CheckAgent(agent); err != nil {
		return err
	}
	return in.store.Register(ctx, agent, time.Now())
}

// Unregister forgets an agent and deletes its inbox. Nothing is delivered to it
// any more.
func (in *Inbox) Unregister(ctx context.Context, agent string) error {
	in.Detach(agent)
	return in.store.Unregister(ctx, agent)
}

// Agents lists the known agents in order.
func (in *Inbox) Agents(ctx context.Context) ([]string, error) { return in.store.Agents(ctx) }

// Receipt says what became of a posted notice.
type Receipt struct {
	ID    string `json:"id"`
	Added bool   `json:"added"` // false: it was there already, under ID
}

// quietTime is when a quiet notice would cause a turn after all: longer than any
// notice is kept.
const quietTime = 20 * 365 * 24 * time.Hour

// Post persists a notice, then has its agent woken. When it returns, the notice
// is on disk and the agent's delivery has been told, both as one step: there is
// no moment at which the delivery can come to rest without having seen it
// (specification D-5). Errors: *InvalidError, *UnknownAgentError, the store's.
func (in *Inbox) Post(ctx context.Context, n Notice) (Receipt, error) {
	now := time.Now()
	n, err := n.prepare(now)
	if err != nil {
		return Receipt{}, err
	}
	due := now
	if n.Quiet {
		due = now.Add(quietTime)
	}
	if n.Depth > in.o.Budget.MaxDepth {
		due = time.Time{}
	}
	id, added, err := in.store.Insert(ctx, n, now, due)
	if err != nil {
		return Receipt{}, err
	}
	if added {
		in.log.InfoContext(ctx, "notice.persisted", attrAgent(n.Agent), attrNotice(id), attrSource(n.Source))
		if due.IsZero() {
			in.log.WarnContext(ctx, "notice.too_deep", attrAgent(n.Agent), attrNotice(id), attrDepth(n.Depth))
		}
		if in.posts.Add(1)%pruneEvery == 0 {
			in.prune(ctx, n.Agent)
		}
		in.Kick(n.Agent)
	}
	return Receipt{ID: id, Added: added}, nil
}

// Kick tells the agent's delivery to look again: the agent became idle, or
// reachable. The caller first makes that visible to the Waker, then kicks.
func (in *Inbox) Kick(agent string) {
	in.mu.Lock()
	d := in.desks[agent]
	in.mu.Unlock()
	if d != nil {
		d.look()
	}
}

// Seen records proof from outside a delivery that the agent was shown notices,
// for instance that it named them in a call. Ids that are not the agent's are
// an *IDError and change nothing.
func (in *Inbox) Seen(ctx context.Context, agent, adapter string, ids ...string) error {
	_, err := in.moveOwn(ctx, agent, ids, Step{State: Seen, Adapter: adapter})
	return err
}

// Ack records that the agent, or a person for it, has taken note; by says who.
// It returns the ids that were not acknowledged before. Ids that are not the
// agent's are an *IDError and change nothing; the empty agent, which is the
// operator, may name anybody's.
func (in *Inbox) Ack(ctx context.Context, agent, by string, ids ...string) ([]string, error) {
	return in.moveOwn(ctx, agent, ids, Step{State: Acked, Adapter: by})
}

// Suppress withdraws notices that were not shown yet.
func (in *Inbox) Suppress(ctx context.Context, agent, by string, ids ...string) ([]string, error) {
	return in.moveOwn(ctx, agent, ids, Step{State: Suppressed, Adapter: by})
}

func (in *Inbox) moveOwn(ctx context.Context, agent string, ids []string, step Step) ([]string, error) {
	owners, err := in.owners(ctx, agent, ids)
	if err != nil {
		return nil, err
	}
	var moved []string
	for _, owner := range slices.Sorted(maps.Keys(owners)) {
		m, err := in.move(ctx, owner, owners[owner], step)
		in.Kick(owner)
		moved = append(moved, m...)
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// owners sorts ids by inbox. Those that are not agent's, or nobody's when agent
// is empty, are an *IDError.
func (in *Inbox) owners(ctx context.Context, agent string, ids []string) (map[string][]string, error) {
	var missing []string
	owners := map[string][]string{}
	for _, id := range ids {
		r, err := in.Get(ctx, agent, id)
		switch {
		case errors.Is(err, ErrNotFound):
			missing = append(missing, id)
		case err != nil:
			return nil, err
		default:
			owners[r.Agent] = append(owners[r.Agent], id)
		}
	}
	if missing != nil {
		return nil, &IDError{IDs: missing}
	}
	return owners, nil
}

// move takes notices forward and logs it.
func (in *Inbox) move(ctx context.Context, agent string, ids []string, step Step) ([]string, error) {
	step.At, step.Reason = time.Now(), cut(step.Reason, MaxReason)
	moved, err := in.store.Move(ctx, agent, ids, step)
	if err == nil && len(moved) > 0 {
		level := slog.LevelInfo
		if step.State == Dead || step.State == Expired {
			level = slog.LevelWarn
		}
		in.log.LogAttrs(ctx, level, "notice.moved", attrAgent(agent), attrState(step.State), attrAdapter(step.Adapter), attrNotices(moved))
	}
	return moved, err
}

// Get returns a notice with its history. An agent sees its own; the empty
// agent, which is the operator, sees all. Errors: ErrNotFound.
func (in *Inbox) Get(ctx context.Context, agent, id string) (Record, error) {
	r, err := in.store.Get(ctx, id)
	if err == nil && agent != "" && r.Agent != agent {
		return Record{}, ErrNotFound
	}
	return r, err
}

// List returns a page of notices. Errors: *UnknownAgentError.
func (in *Inbox) List(ctx context.Context, q Query) (Page, error) { return in.store.List(ctx, q) }

// Delete removes notices for good and returns how many there were. A source
// that sends one of them again is still recognised.
func (in *Inbox) Delete(ctx context.Context, agent string, ids ...string) (int, error) {
	n, err := in.store.Delete(ctx, agent, ids)
	in.Kick(agent)
	return n, err
}

// Reset lets an agent be woken again that was over its budget, and forgets what
// it has spent. Only a person may cause this call (specification D-7).
func (in *Inbox) Reset(ctx context.Context, agent string) error {
	if err := in.store.Reset(ctx, agent); err != nil {
		return err
	}
	in.log.InfoContext(ctx, "notice.budget_reset", attrAgent(agent))
	in.Kick(agent)
	return nil
}

// Hold stops waking an agent, for instance because a person cancelled its turn,
// until Reset. Notices wait for the next user turn.
func (in *Inbox) Hold(ctx context.Context, agent, reason string) error {
	return in.store.SetHold(ctx, agent, Hold{Reason: cut(reason, MaxReason), At: time.Now()})
}

// prune is best effort: what it leaves, the next one finds.
func (in *Inbox) prune(ctx context.Context, agent string) {
	now, r := time.Now(), in.o.Retention
	p, err := in.store.Prune(ctx, Prune{
		Agent: agent, Now: now, Keep: r.Keep, Limit: pruneLimit,
		PendingBefore: now.Add(-r.PendingAge), DoneBefore: now.Add(-r.DoneAge), KeysBefore: now.Add(-r.KeyAge),
	})
	switch {
	case err != nil:
		in.log.WarnContext(ctx, "notice.prune_failed", attrAgent(agent), attrErr(err))
	case p.Expired > 0:
		in.log.WarnContext(ctx, "notice.expired", attrAgent(agent), attrCount(p.Expired))
	case p.Deleted > 0:
		in.log.DebugContext(ctx, "notice.pruned", attrAgent(agent), attrCount(p.Deleted))
	}
}

// Attached lists the agents that have adapters in this process, in order.
func (in *Inbox) Attached() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Sorted(maps.Keys(in.desks))
}
