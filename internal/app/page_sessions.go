package app

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/pageserver"
)

// sessionsTopic is the list of all sessions. While somebody looks at it, it
// follows each session that runs.
type sessionsTopic struct {
	crowd

	p *page

	outside sync.Mutex
	dirty   map[string]bool

	// Of run's goroutine.
	followed map[string]*Agent
	work     sync.WaitGroup
	told     map[string][]byte
}

func newSessionsTopic(p *page) *sessionsTopic {
	t := &sessionsTopic{
		crowd: newCrowd(p, pageserver.Topic{Kind: pageserver.Sessions}), p: p,
		dirty: map[string]bool{}, followed: map[string]*Agent{}, told: map[string][]byte{},
	}
	return t
}

func (t *sessionsTopic) mark(id string) {
	t.outside.Lock()
	t.dirty[id] = true
	t.outside.Unlock()
	t.ring()
}

func (t *sessionsTopic) run(ctx context.Context) {
	defer close(t.over)
	defer t.work.Wait()
	follow, stop := context.WithCancel(ctx)
	defer stop()
	defer t.p.agents.lives.Listen(t.mark)()
	t.attend(ctx, func(context.Context) { t.follow(follow) }, func(ctx context.Context) {
		t.follow(follow)
		t.flush(ctx)
	})
}

// join implements pageTopic.
func (t *sessionsTopic) join(ctx context.Context, to *pageserver.Stream) error {
	return t.admit(ctx, to, func(context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, pageRead)
		defer cancel()
		all, err := t.p.api.all(ctx, func(string) bool { return true })
		if err != nil {
			return nil, err
		}
		mine := []SessionInfo{}
		for i := range all {
			t.tell(&all[i])
			if to.May(all[i].Meta.ID) {
				mine = append(mine, all[i])
			}
		}
		return map[string]any{"sessions": mine}, nil
	})
}

// flush tells of the sessions that have changed.
func (t *sessionsTopic) flush(ctx context.Context) {
	t.outside.Lock()
	dirty := t.dirty
	t.dirty = map[string]bool{}
	t.outside.Unlock()
	for id := range dirty {
		if t.p.agents.Agent(id) != nil { // asks no store, however often a watch hears something
			if info := t.p.api.info(ctx, agent.Meta{ID: id}); info.Running {
				t.tell(&info)
				continue
			}
		}
		t.recall(ctx, id)
	}
}

// recall tells of a session that does not run as its store has it.
func (t *sessionsTopic) recall(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, pageRead)
	defer cancel()
	m, err := t.p.api.meta(ctx, id)
	switch {
	case err == nil:
		info := t.p.api.info(ctx, m)
		t.tell(&info)
	case statusOf(err) == notFound && t.told[id] != nil:
		delete(t.told, id)
		t.push("sessions.removed", map[string]string{"id": id}, id)
	}
}

// tell tells of a session that is other than it was.
func (t *sessionsTopic) tell(info *SessionInfo) {
	id := info.Meta.ID
	now, err := json.Marshal(info)
	if err != nil || bytes.Equal(now, t.told[id]) {
		return
	}
	t.told[id] = now
	t.push("sessions.changed", map[string]any{"session": info}, id)
}

// follow follows the sessions that run and are not followed.
func (t *sessionsTopic) follow(ctx context.Context) {
	running := map[string]*Agent{}
	for _, one := range t.p.agents.Running() {
		id := one.Session.ID()
		running[id] = one
		if t.followed[id] != one {
			t.work.Go(func() { t.hear(ctx, one) })
		}
	}
	t.followed = running
}

// hear marks a session whenever it may be shown differently in the list.
func (t *sessionsTopic) hear(ctx context.Context, one *Agent) {
	s := one.Session
	defer t.mark(s.ID())
	defer one.Client.Watches.Observe(func() { t.mark(s.ID()) })()
	for ctx.Err() == nil {
		sub := s.Subscribe()
		t.mark(s.ID())
		if !t.hearOne(ctx, sub, s.ID()) {
			return
		}
	}
}

// hearOne reports whether the subscription has ended because it lagged.
func (t *sessionsTopic) hearOne(ctx context.Context, sub *agent.Subscription, id string) (lagged bool) {
	defer sub.Close()
	for {
		select {
		case u, ok := <-sub.C:
			switch {
			case !ok:
				return sub.Err() != nil
			case u.Event == agent.EventText, u.Event == agent.EventThought, u.Event == agent.EventTool, u.Event == agent.EventPlan:
			default:
				t.mark(id)
			}
		case <-sub.Changed:
			t.mark(id)
		case <-ctx.Done():
			return false
		}
	}
}
