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

// BenchmarkNoticeToTurn measures how long a notice takes to Engine.Turn while a
// hundred sessions do the same. The bound is p99 ≤ 10 ms to the prompt on the
// wire, of which this is the part before the engine.
func BenchmarkNoticeToTurn(b *testing.B) {
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
		s, err := agent.NewSession(fmt.Sprint(i), a.New, agent.NewMemoryStore(0, 0), func(n agent.Notice) string { return n.ID }, &agent.Options{Warm: true})
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
		// One notice to every session at once, then the next round.
		var round sync.WaitGroup
		for i := 0; i < sessions && n < b.N; i, n = i+1, n+1 {
			id := fmt.Sprintf("%d-%d", i, n)
			round.Add(1)
			mu.Lock()
			sent[id] = time.Now()
			mu.Unlock()
			err := all[i].Notify(agent.Notice{ID: id}, func(ack agent.Ack) {
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
