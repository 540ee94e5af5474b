package worker

import (
	"sync"
	"time"
)

const (
	// leastHandshakes is what the gate lets in however slow they are.
	leastHandshakes = 8
	// firstHandshakes is the part of the most that the gate begins with.
	firstHandshakes = 4
	// slowPart is the part of a worker's patience with a handshake that makes one slow.
	slowPart = 4
	// afterSlow is what is left of the limit after a slow handshake.
	afterSlow = 0.97
)

// gate bounds the handshakes that are under way at once. On a machine that is busy,
// or with a store that is, the most that are allowed would all last longer than
// their workers wait; so there are fewer of them when they are slow, and more when
// they are quick and there is a crowd. Those that must wait are told so before the
// upgrade, and keep their patience for the handshake.
type gate struct {
	most int

	mu    sync.Mutex
	open  int
	limit float64
}

func newGate(most int) *gate {
	return &gate{most: most, limit: max(float64(most/firstHandshakes), float64(min(most, leastHandshakes)))}
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open >= int(g.limit) {
		return false
	}
	g.open++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open--
}

// learn takes how long a handshake took, of a worker that has so much patience.
// One that never ended teaches nothing: whoever hangs would close the gate for
// others.
func (g *gate) learn(took, patience time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case took > patience/slowPart:
		g.limit = max(g.limit*afterSlow, float64(min(g.most, leastHandshakes)))
	case g.open > int(g.limit)/2:
		g.limit = min(g.limit+1, float64(g.most))
	}
}
