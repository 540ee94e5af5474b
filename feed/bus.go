package feed

import (
	"context"
	"sync"
)

// Local is a Bus within the process: hubs on one log ring for each other. The
// zero Local is ready.
type Local struct {
	mu    sync.Mutex
	bells map[chan struct{}]struct{}
}

// Ring implements Bus.
func (l *Local) Ring(context.Context, Position) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for bell := range l.bells {
		select {
		case bell <- struct{}{}:
		default: // it has not been heard yet
		}
	}
	return nil
}

// Listen implements Bus.
func (l *Local) Listen(ctx context.Context, ring func()) error {
	bell := make(chan struct{}, 1)
	bell <- struct{}{}
	l.mu.Lock()
	if l.bells == nil {
		l.bells = map[chan struct{}]struct{}{}
	}
	l.bells[bell] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.bells, bell)
	}()
	for {
		select {
		case <-bell:
			ring()
		case <-ctx.Done():
			return nil
		}
	}
}
