package feed_test

import (
	"testing"

	"github.com/ossicle/ossicle/feed"
)

// F-30: a listener that keeps its own place gets every event, whatever the policy
// of the topic and however far the ring has moved on.
func TestAPatientSubscriberLosesNothing(t *testing.T) {
	t.Parallel()
	for policy := feed.DropOldest; policy <= feed.Disconnect; policy++ {
		o := &feed.Options{Ring: 10, Lag: 5, Policy: func(string) feed.Policy { return policy }}
		inBubble(t, o, func(t *testing.T, b *bench) {
			s, err := b.Subscribe(feed.Subscribe{Patient: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			last := int64(0)
			for round := range 3 {
				b.publish(40, "a")
				for {
					batch, ok, err := s.Take(t.Context())
					if err != nil || batch.Gap != nil {
						t.Fatalf("%v, round %d: gap %+v, %v", policy, round, batch.Gap, err)
					}
					if !ok {
						break
					}
					for _, it := range batch.Items {
						if it.ID != last+1 {
							t.Fatalf("%v: event %d after %d", policy, it.ID, last)
						}
						last = it.ID
					}
				}
			}
			if last != 120 {
				t.Errorf("%v: the last event is %d", policy, last)
			}
		})
	}
}
