package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ossicle/ossicle/notice"
)

// fill makes an inbox of so many notices, every fourth of them pending.
func fill(b *testing.B, s *Notices, count int) {
	b.Helper()
	ctx, now := b.Context(), time.Now()
	if err := s.Register(ctx, "a", now); err != nil {
		b.Fatal(err)
	}
	err := s.db.write(ctx, func(t *tx) error {
		agent, err := t.agentID("a")
		if err != nil {
			return err
		}
		for i := range count {
			n := notice.Notice{ID: fmt.Sprintf("n%d", i), Agent: "a", Source: notice.SourceWatch, Title: "pods", Text: "default/web: Pending -> Running", CreatedAt: now, DedupeKey: fmt.Sprintf("k%d", i)}
			if err := t.insert(agent, n, now, now.Add(time.Hour)); err != nil {
				return err
			}
			if i%4 != 0 {
				if _, err := t.exec(`UPDATE notice SET state = 6, state_at = ? WHERE id = ?`, now.UnixNano(), n.ID); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLookup reads an inbox of 100,000 notices, 25,000 of them pending.
func BenchmarkLookup(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "x.db"), nil).Notices()
	const count = 100_000
	fill(b, s, count)
	ctx, now := b.Context(), time.Now()
	for name, call := range map[string]func(i int) error{
		"get":    func(i int) error { _, err := s.Get(ctx, fmt.Sprintf("n%d", i*7919%count)); return err },
		"counts": func(int) error { _, err := s.Counts(ctx, "a"); return err },
		"desk":   func(int) error { _, err := s.Desk(ctx, "a", now, 3); return err },
		"pending": func(int) error {
			_, err := s.List(ctx, notice.Query{Agent: "a", States: []notice.State{notice.Persisted, notice.Notified, notice.Woken}, Limit: 10})
			return err
		},
		"newest": func(int) error { _, err := s.List(ctx, notice.Query{Newest: true, Limit: 10}); return err },
		"page50": func(int) error { _, err := s.List(ctx, notice.Query{Agent: "a"}); return err },
		"move": func(i int) error {
			_, err := s.Move(ctx, "a", []string{fmt.Sprintf("n%d", i*4%count)}, notice.Step{State: notice.Acked, At: now})
			return err
		},
		"claim and release": func(i int) error {
			d := fmt.Sprintf("d%d", i)
			if _, err := s.Claim(ctx, notice.Claim{Agent: "a", Delivery: d, Now: now, Until: now.Add(time.Minute), Limit: 10}); err != nil {
				return err
			}
			return s.Release(ctx, "a", d, nil, notice.Step{At: now})
		},
		"prune": func(int) error {
			_, err := s.Prune(ctx, notice.Prune{Agent: "a", Now: now, PendingBefore: now.Add(-time.Hour), DoneBefore: now.Add(-time.Hour), KeysBefore: now.Add(-time.Hour), Keep: count, Limit: 1000})
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if err := call(i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkInsert posts notices one by one.
func BenchmarkInsert(b *testing.B) {
	for name, o := range map[string]*Options{"default": nil, "durable": {Durable: true}} {
		b.Run(name, func(b *testing.B) {
			s := open(b, filepath.Join(b.TempDir(), "x.db"), o).Notices()
			ctx, now := b.Context(), time.Now()
			if err := s.Register(ctx, "a", now); err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				n := notice.Notice{ID: fmt.Sprintf("n%d", i), Agent: "a", Source: notice.SourceWatch, Text: "default/web: Pending -> Running", CreatedAt: now, DedupeKey: fmt.Sprintf("k%d", i)}
				if _, _, err := s.Insert(ctx, n, now, now); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "inserts/s")
		})
	}
}

// timed says how long after its posting each notice reached its host.
type timed struct{ reached chan time.Duration }

func (timed) Name() string { return "timed" }

func (timed) Reach(context.Context, string) error { return nil }

func (w timed) Wake(_ context.Context, d notice.Delivery, _ func(notice.State)) (notice.State, error) {
	w.reached <- time.Since(d.Notices[0].CreatedAt)
	return notice.Seen, nil
}

// BenchmarkPostToWake posts to 100 agents in turn, one notice at a time, and
// reports when the host of each has it.
func BenchmarkPostToWake(b *testing.B) {
	const agents = 100
	ctx, stop := context.WithCancel(b.Context())
	unbounded := notice.Budget{WakesPerMinute: 1 << 30, WakesPerHour: 1 << 30, TokensPerHour: 1 << 40}
	in := notice.New(open(b, filepath.Join(b.TempDir(), "x.db"), nil).Notices(), &notice.Options{Budget: unbounded})
	w := timed{make(chan time.Duration, 1)}
	for i := range agents {
		if err := in.Attach(ctx, fmt.Sprintf("a%d", i), notice.Route{Waker: w}); err != nil {
			b.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		n := notice.Notice{Agent: fmt.Sprintf("a%d", i%agents), Source: notice.SourceWatch, Text: "x", CreatedAt: time.Now()}
		if _, err := in.Post(ctx, n); err != nil {
			b.Fatal(err)
		}
		took = append(took, <-w.reached)
	}
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
