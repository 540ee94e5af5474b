package feedserver

import (
	"context"
	"sync"
)

// replayer reads the store for streams that are behind, some at a time and in
// turn: one page each, so that a long replay does not keep out a short one. Its
// goroutines run while streams wait.
type replayer struct {
	most int
	stop context.CancelFunc
	ctx  func() context.Context
	wg   sync.WaitGroup

	mu      sync.Mutex
	waiting []*stream // each stream once
	running int
}

func newReplayer(most int) *replayer {
	ctx, cancel := context.WithCancel(context.Background())
	return &replayer{most: most, stop: cancel, ctx: func() context.Context { return ctx }}
}

func (r *replayer) add(st *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, st)
	if r.running < r.most {
		r.running++
		r.wg.Go(r.run)
	}
}

func (r *replayer) run() {
	for st := r.take(); st != nil; st = r.take() {
		ctx, cancel := context.WithTimeout(r.ctx(), storeTime)
		b, _, err := st.sub.Take(ctx)
		cancel()
		st.replayed = &replayed{b, err}
		st.mark(markReplayed)
	}
}

// take returns whose turn it is, or nil when the goroutine is to end.
func (r *replayer) take() *stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.waiting) > 0 && r.ctx().Err() == nil {
		st := r.waiting[0]
		r.waiting[0] = nil
		r.waiting = r.waiting[1:]
		if !st.closed.Load() {
			return st
		}
	}
	if len(r.waiting) == 0 {
		r.waiting = nil
	}
	r.running--
	return nil
}

// close ends what is under way and waits for it.
func (r *replayer) close() {
	r.stop()
	r.wg.Wait()
}
