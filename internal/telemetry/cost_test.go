package telemetry

import (
	"context"
	"testing"

	"github.com/ossicle/ossicle/feed"
)

// taking is a publisher that takes everything.
type taking struct{ receipts []feed.Receipt }

func (p taking) Publish(context.Context, []feed.Draft) ([]feed.Receipt, error) {
	return p.receipts, nil
}

// F-31: without an endpoint for traces, measuring leaves nothing behind.
func TestMeasuringAllocatesNothing(t *testing.T) { //nolint:paralleltest // others would be counted in
	tel := newTelemetry(t, nil)
	to := tel.Publisher(taking{[]feed.Receipt{{ID: 1}}})
	drafts := []feed.Draft{{Topic: "a"}}
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := to.Publish(t.Context(), drafts); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPublisher(b *testing.B) {
	tel, err := New(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	to := tel.Publisher(taking{[]feed.Receipt{{ID: 1}}})
	drafts := []feed.Draft{{Topic: "a"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := to.Publish(b.Context(), drafts); err != nil {
			b.Fatal(err)
		}
	}
}
