package app

import "sync"

// bells tell whoever listens that something of a name has changed. The zero value
// is ready.
type bells struct {
	mu  sync.Mutex
	all map[*func(name string)]struct{}
}

// listen calls f with each name, until stop is called; f must not block, and is
// not called any more after stop has returned.
func (b *bells) listen(f func(name string)) (stop func()) {
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

func (b *bells) ring(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.all {
		(*f)(name)
	}
}
