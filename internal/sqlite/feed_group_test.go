package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/feed"
)

// F-4: what waits for the disk shares the next commit, each call gets its own
// receipts, and one that gives up before leaves nothing behind.
func TestWaitingAppendsShareACommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newAppendGroup()
		gate := make(chan struct{})
		var sizes []int
		next := int64(0)
		commit := func(_ context.Context, calls []*appending) error {
			<-gate
			sizes = append(sizes, 0)
			for _, one := range calls {
				sizes[len(sizes)-1] += len(one.drafts)
				one.receipts = make([]feed.Receipt, len(one.drafts))
				for i := range one.drafts {
					next++
					one.receipts[i].ID = next
				}
			}
			return nil
		}
		var wg sync.WaitGroup
		call := func(ctx context.Context, n int) {
			wg.Go(func() {
				receipts, err := g.add(ctx, make([]feed.Draft, n), commit)
				switch {
				case ctx.Err() != nil:
					if !errors.Is(err, context.Canceled) {
						t.Errorf("a call that gave up: %v", err)
					}
				case err != nil || len(receipts) != n:
					t.Errorf("%d drafts: %v, %v", n, receipts, err)
				default:
					for i := 1; i < n; i++ {
						if receipts[i].ID != receipts[i-1].ID+1 {
							t.Errorf("receipts %v", receipts)
						}
					}
				}
			})
			synctest.Wait()
		}
		call(t.Context(), 1)
		gone, cancel := context.WithCancel(t.Context())
		call(t.Context(), 3)
		call(gone, 7)
		call(t.Context(), 2)
		call(t.Context(), sharedDrafts-5)
		call(t.Context(), 10)
		cancel()
		synctest.Wait()
		close(gate)
		wg.Wait()
		if got := fmt.Sprint(sizes); got != fmt.Sprintf("[1 %d 10]", sharedDrafts) || len(g.waiting) != 0 {
			t.Errorf("commits of %v events, %d calls left", got, len(g.waiting))
		}
	})
}

// A commit that fails fails for all who share it, and for nobody else.
func TestASharedCommitFailsForAll(t *testing.T) {
	t.Parallel()
	g := newAppendGroup()
	full := errors.New("no space")
	_, err := g.add(t.Context(), make([]feed.Draft, 1), func(context.Context, []*appending) error { return full })
	if !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	receipts, err := g.add(t.Context(), make([]feed.Draft, 1), func(ctx context.Context, calls []*appending) error {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a commit without a deadline")
		}
		calls[0].receipts = make([]feed.Receipt, 1)
		return nil
	})
	if err != nil || len(receipts) != 1 {
		t.Errorf("after a failure: %v, %v", receipts, err)
	}
}

// BenchmarkFeedWriters sets writers that wait for the disk each on its own beside
// as many that share commits: the same calls, one at a time and 32 at once.
func BenchmarkFeedWriters(b *testing.B) {
	for _, writers := range []int{1, 32} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			db := open(b, filepath.Join(b.TempDir(), "x.db"), &Options{Durable: true, BusyTimeout: time.Minute})
			f := db.Feed()
			b.SetParallelism((writers + 1) / 2)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := f.Append(b.Context(), events(1, "a")); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
