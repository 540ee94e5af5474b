package feed_test

import (
	"testing"
)

// F-31: how far behind subscribers are.
func TestLag(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		quick, _, other := b.subscribe(nil), b.subscribe(nil), b.subscribe(nil, "b")
		b.publish(7, "a")
		b.publish(1, "b")
		if most, total := b.Lag(); most != 8 || total != 8+8+1 {
			t.Errorf("lag %d of %d", most, total)
		}
		drain(t, quick)
		other.Close()
		b.subscribe(b.at(5))
		if most, total := b.Lag(); most != 8 || total != 8+3 {
			t.Errorf("lag %d of %d", most, total)
		}
	})
}

// One that reads the store counts what the ring has for it.
func TestLagOfReplay(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.publish(600, "a")
		b.subscribe(b.at(0))
		if most, total := b.Lag(); most != 500 || total != 500 {
			t.Errorf("lag %d of %d", most, total)
		}
	})
}
