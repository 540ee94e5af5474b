package worker

import (
	"testing"
	"time"
)

// The gate narrows with slow handshakes and widens with quick ones, within its
// bounds, and only while there is a crowd.
func TestGate(t *testing.T) {
	t.Parallel()
	const patience = 10 * time.Second
	g := newGate(100)
	fill := func() (n int) {
		for g.enter() {
			n++
		}
		return n
	}
	if n := fill(); n != 25 {
		t.Errorf("begins with %d", n)
	}
	for range 500 {
		g.learn(time.Second, patience)
		fill()
	}
	if g.open != 100 {
		t.Errorf("quick ones: %d", g.open)
	}
	for range 500 {
		g.learn(3*time.Second, patience)
	}
	for range 100 {
		g.leave()
	}
	if n := fill(); n != leastHandshakes {
		t.Errorf("slow ones: %d", n)
	}
	for range leastHandshakes {
		g.leave()
	}
	for range 100 {
		g.learn(time.Second, patience)
	}
	if n := fill(); n != leastHandshakes {
		t.Errorf("nobody was there, and it widened to %d", n)
	}
	if g = newGate(3); fill() != 3 {
		t.Error("a bound below the least")
	}
}
