package supervise

import (
	"sync"
	"time"
)

// Health is the state of something that has parts. The zero Health is ready, and
// well.
type Health struct {
	mu    sync.Mutex
	parts map[*Part]struct{}
}

// Part is the state of one part of a Health.
type Part struct {
	health *Health
	err    error // guarded by health.mu
	since  time.Time
}

// Part adds a part, which is well until it is told otherwise.
func (h *Health) Part() *Part {
	p := &Part{health: h}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.parts == nil {
		h.parts = map[*Part]struct{}{}
	}
	h.parts[p] = struct{}{}
	return p
}

// Note says how the part is: nil means well.
func (p *Part) Note(err error) {
	p.health.mu.Lock()
	defer p.health.mu.Unlock()
	switch {
	case err == nil:
		p.since = time.Time{}
	case p.err == nil:
		p.since = time.Now()
	}
	p.err = err
}

// Leave takes the part out.
func (p *Part) Leave() {
	p.health.mu.Lock()
	defer p.health.mu.Unlock()
	delete(p.health.parts, p)
}

// State returns what has been wrong for longest, and since when; a nil error if
// all parts are well.
func (h *Health) State() (since time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var worst *Part
	for p := range h.parts {
		if p.err != nil && (worst == nil || p.since.Before(worst.since)) {
			worst = p
		}
	}
	if worst == nil {
		return time.Time{}, nil
	}
	return worst.since, worst.err
}
