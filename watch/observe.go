package watch

import "sync"

// observers are told that List may tell something else.
type observers struct {
	mu  sync.Mutex
	all map[*func()]struct{}
}

// Observe calls f whenever [Manager.List] may tell something else, until stop is
// called. It must not block and must not call the manager, and is not called any
// more after stop has returned.
func (m *Manager) Observe(f func()) (stop func()) {
	o := m.looking
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[*func()]struct{}{}
	}
	o.all[&f] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.all, &f)
	}
}

// changed tells the observers.
func (o *observers) changed() {
	if o == nil { // of a watch without a manager
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for f := range o.all {
		(*f)()
	}
}
