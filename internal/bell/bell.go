// Package bell tells whoever listens that something has changed. What has changed
// they look up themselves, so nothing is queued.
package bell

import "sync"

// Bell tells its listeners names of what has changed. The zero value is ready. It is
// safe for concurrent use, but f of Listen calls none of its methods.
type Bell struct {
	mu  sync.Mutex
	all map[*func(name string)]struct{}
}

// Listen calls f with each name, until stop is called; f must not block, and is
// not called any more after stop has returned.
func (b *Bell) Listen(f func(name string)) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[*func(string)]struct{}{}
	}
	b.all[&f] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.all, &f)
	}
}

// Ring tells all who listen now.
func (b *Bell) Ring(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.all {
		(*f)(name)
	}
}
