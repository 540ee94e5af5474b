package monty

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/python"
)

// longRun is the time limit from which a run counts as long. Long runs may not
// take the last workers, so that code mode with its half minute cannot hold up
// filters with their two seconds.
const longRun = 5 * time.Second

// pool lends workers, at most size at once, first come first served. Workers
// are started when needed and kept. Those idle and those lent are never more
// than size together.
type pool struct {
	path string
	size int
	log  *slog.Logger

	slots *semaphore.Weighted // one per worker, idle or lent
	long  *semaphore.Weighted // one per worker that a long run may have

	mu     sync.Mutex
	idle   []*worker // last returned last
	live   int
	closed bool
}

func newPool(path string, size int, log *slog.Logger) *pool {
	reserved := (size + 3) / 4
	return &pool{
		path: path, size: size, log: log,
		slots: semaphore.NewWeighted(int64(size)),
		long:  semaphore.NewWeighted(int64(max(1, size-reserved))),
	}
}

// get lends a worker, preferably the one that holds the state with this id.
func (p *pool) get(ctx context.Context, long bool, holds uint64, memory int) (*worker, error) {
	if long {
		if err := p.long.Acquire(ctx, 1); err != nil {
			return nil, err
		}
	}
	if err := p.slots.Acquire(ctx, 1); err != nil {
		if long {
			p.long.Release(1)
		}
		return nil, err
	}
	w, err := p.pick(holds, memory)
	if err != nil {
		p.slots.Release(1)
		if long {
			p.long.Release(1)
		}
		return nil, err
	}
	return w, nil
}

func (p *pool) pick(holds uint64, memory int) (*worker, error) {
	for {
		w, err := p.pop(holds)
		if err != nil {
			return nil, err
		}
		if w == nil {
			return p.start(memory)
		}
		if !w.gone() && w.grant(memory) == nil {
			return w, nil
		}
		p.discard(w, "gone")
	}
}

func (p *pool) pop(holds uint64) (*worker, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, python.ErrClosed
	}
	if len(p.idle) == 0 {
		p.live++ // of the one that start makes
		return nil, nil
	}
	i := len(p.idle) - 1
	if holds != 0 {
		if j := slices.IndexFunc(p.idle, func(w *worker) bool { return w.holds == holds }); j >= 0 {
			i = j
		}
	}
	w := p.idle[i]
	p.idle = slices.Delete(p.idle, i, i+1)
	return w, nil
}

func (p *pool) start(memory int) (*worker, error) {
	began := time.Now()
	w, err := startWorker(p.path, memory)
	if err != nil {
		p.mu.Lock()
		p.live--
		p.mu.Unlock()
		return nil, err
	}
	p.log.Debug("interpreter started", logattr.PID(w.proc.Pid()), logattr.Duration(time.Since(began)))
	return w, nil
}

// put takes a worker back. One that may be in any other state than between two
// requests must come with healthy false, and is killed.
func (p *pool) put(w *worker, long, healthy bool) {
	p.mu.Lock()
	keep := healthy && !p.closed
	if keep {
		p.idle = append(p.idle, w)
	}
	p.mu.Unlock()
	if !keep {
		p.discard(w, "discarded")
	}
	p.slots.Release(1)
	if long {
		p.long.Release(1)
	}
}

func (p *pool) discard(w *worker, why string) {
	pid := w.proc.Pid()
	w.kill()
	p.mu.Lock()
	p.live--
	p.mu.Unlock()
	p.log.Debug("interpreter ended", logattr.PID(pid), logattr.Reason(why))
}

// processes counts the children.
func (p *pool) processes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live
}

// close ends the idle workers. Lent ones end when they come back.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, w := range idle {
		p.discard(w, "closed")
	}
}
