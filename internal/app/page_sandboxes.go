package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/pageserver"
	"github.com/ossicle/ossicle/worker"
)

// sandboxesTopic is the list of the sandboxes that are not over, and how they end.
type sandboxesTopic struct {
	crowd

	fleet *fleet.Fleet

	// Of run's goroutine.
	told     map[string][]byte
	followed map[*worker.Session]bool
	work     sync.WaitGroup
}

func newSandboxesTopic(p *page, f *fleet.Fleet) *sandboxesTopic {
	t := &sandboxesTopic{
		crowd: newCrowd(p, pageserver.Topic{Kind: pageserver.Sandboxes}), fleet: f,
		told: map[string][]byte{}, followed: map[*worker.Session]bool{},
	}
	return t
}

func (t *sandboxesTopic) run(ctx context.Context) {
	defer close(t.over)
	defer t.work.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer t.fleet.Listen(t.ring)()
	t.attend(ctx, nil, t.flush)
}

// join implements pageTopic.
func (t *sandboxesTopic) join(ctx context.Context, to *pageserver.Stream) error {
	return t.admit(ctx, to, func(run context.Context) (any, error) {
		list, err := t.tell(run)
		return map[string]any{"sandboxes": nonNil(list)}, err
	})
}

func (t *sandboxesTopic) flush(ctx context.Context) {
	if _, err := t.tell(ctx); err != nil && ctx.Err() == nil {
		t.log.LogAttrs(ctx, slog.LevelWarn, "sandboxes cannot be listed for the page", logattr.Err(err))
		t.gap()
	}
}

// tell tells of the sandboxes that are other than they were, and returns those that
// are not over.
func (t *sandboxesTopic) tell(ctx context.Context) ([]fleet.Info, error) {
	read, cancel := context.WithTimeout(ctx, pageRead)
	defer cancel()
	list, err := t.fleet.List(read, false)
	if err != nil {
		return nil, err
	}
	now := map[string]bool{}
	for i := range list {
		now[list[i].ID] = true
		if list[i].Here {
			t.follow(ctx, list[i].ID)
		}
		t.tellOne(&list[i])
	}
	for s := range t.followed {
		if !now[s.ID()] {
			delete(t.followed, s)
		}
	}
	for id := range t.told {
		if now[id] {
			continue
		}
		info, err := t.fleet.Find(read, id)
		switch {
		case err == nil:
			t.tellOne(&info)
		case errors.Is(err, worker.ErrUnknownSession):
			t.push("sandboxes.removed", map[string]string{"id": id}, "")
		default:
			return nil, err
		}
		delete(t.told, id)
	}
	return list, nil
}

func (t *sandboxesTopic) tellOne(s *fleet.Info) {
	key := *s
	key.HeartbeatAge = nil // it is another at every look; when the last one came is not
	beat := time.Time{}
	if s.HeartbeatAge != nil {
		beat = time.Now().Add(-time.Duration(*s.HeartbeatAge * float64(time.Second))).Round(time.Second)
	}
	now, err := json.Marshal(struct {
		fleet.Info
		Beat time.Time
	}{key, beat})
	if err != nil || bytes.Equal(now, t.told[s.ID]) {
		return
	}
	t.told[s.ID] = now
	t.push("sandboxes.changed", map[string]any{"sandbox": s}, "")
}

// follow looks again when a sandbox that is held here can be used, and when it is
// over.
func (t *sandboxesTopic) follow(ctx context.Context, id string) {
	s, err := t.fleet.Session(ctx, id)
	if err != nil || t.followed[s] {
		return
	}
	t.followed[s] = true
	t.work.Go(func() {
		defer t.ring()
		if s.Running(ctx) == nil {
			t.ring()
		}
		select {
		case <-s.Left():
		case <-ctx.Done():
		}
	})
}
