package agent_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

// BenchmarkNoticeToTurn measures how long a notice takes to Engine.Turn with a
// hundred sessions: when one notice comes at a time, and when each of them gets
// one at the same moment. The bound is p99 ≤ 10 ms to the prompt on the wire, of
// which this is the part before the engine.
func BenchmarkNoticeToTurn(b *testing.B) {
	b.Run("OneAtATime", func(b *testing.B) { noticeToTurn(b, 1) })
	b.Run("AllAtOnce", func(b *testing.B) { noticeToTurn(b, 100) })
}

func noticeToTurn(b *testing.B, burst int) {
	const sessions = 100
	var mu sync.Mutex
	sent := map[string]time.Time{}
	var took []time.Duration
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	var all []*agent.Session
	for i := range sessions {
		a := agenttest.New()
		turned := func(turn *agenttest.Turn) (agent.Outcome, error) {
			now := time.Now()
			mu.Lock()
			for _, part := range turn.Prompt.Parts {
				took = append(took, now.Sub(sent[part.Text]))
				delete(sent, part.Text)
			}
			mu.Unlock()
			return agenttest.End()
		}
		for range b.N/sessions + 2 {
			a.Then(turned)
		}
		s, err := agent.NewSession(fmt.Sprint(i), a.New, agent.NewMemoryStore(0, 0), func(notices []agent.Notice, _ bool) string { return notices[0].ID }, &agent.Options{Warm: true})
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() { _ = s.Run(ctx) })
		if err := s.WaitIdle(ctx); err != nil {
			b.Fatal(err)
		}
		all = append(all, s)
	}
	b.ResetTimer()
	for n := 0; n < b.N; {
		var round sync.WaitGroup
		for i := 0; i < burst && n < b.N; i, n = i+1, n+1 {
			id := fmt.Sprint(n)
			round.Add(1)
			mu.Lock()
			sent[id] = time.Now()
			mu.Unlock()
			err := all[n%sessions].Notify(agent.Notice{ID: id}, func(ack agent.Ack) {
				if ack.State == agent.AckSeen {
					round.Done()
				}
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		round.Wait()
	}
	b.StopTimer()
	cancel()
	wg.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
