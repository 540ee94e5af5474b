package wake

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/notice"
)

// TestMain also plays Codex: see codex_test.go.
func TestMain(m *testing.M) {
	if mode := os.Getenv(fakeCodexEnv); mode != "" {
		fakeCodex(mode)
		return
	}
	goleak.VerifyTestMain(m)
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
}

// delivery is one of a watch's notice with a text.
func delivery(text string) notice.Delivery {
	return deliveryOf(notice.Notice{
		ID: "n1", Agent: "a", Source: notice.SourceWatch, Title: "memo", Text: text,
		Meta: map[string]string{notice.MetaURI: "memo://notes"}, CreatedAt: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC),
	})
}

func deliveryOf(notices ...notice.Notice) notice.Delivery {
	return notice.Delivery{ID: "d_test", Agent: "a", Notices: notices, Text: notice.Frame(notices...), Attempt: 1}
}

// outcome is what came of a wake: the proofs on the way, the last state, the
// error.
type outcome struct {
	proofs []notice.State
	state  notice.State
	err    error
}

// wakeWith wakes and collects what comes back, at most for a while.
func wakeWith(t *testing.T, w notice.Waker, d notice.Delivery, limit time.Duration) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var o outcome
	var mu sync.Mutex
	o.state, o.err = w.Wake(ctx, d, func(s notice.State) {
		mu.Lock()
		defer mu.Unlock()
		o.proofs = append(o.proofs, s)
	})
	mu.Lock()
	defer mu.Unlock()
	return o
}

// patience bounds a wake that ends by itself, on a busy machine too; short one whose
// host does not, once it has done what it does.
const (
	patience = 30 * time.Second
	short    = 2 * time.Second
)

// limit is short for these modes of a host.
func limit(mode string, endless ...string) time.Duration {
	if slices.Contains(endless, mode) {
		return short
	}
	return patience
}

func states(s ...notice.State) []notice.State { return s }
