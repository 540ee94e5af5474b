package watch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/internal/python"
	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

// W-054, W-244: starts, stops, changes, failures and restarts, all at once and
// thousands of them: no event of the log is told twice, and nothing is left.
func TestChaos(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		states, logs := watchtest.NewServer("states"), watchtest.NewServer("logs")
		for i := range 3 {
			states.Add(fmt.Sprintf("state://%d", i), "application/json", `{"n":0}`)
		}
		log := watchtest.NewLog(logs, "log://x", "1", 20)
		engine := watchtest.NewEngine()
		engine.Register("slow", func(ctx context.Context, run *watchtest.Run) (python.Result, error) {
			select {
			case <-time.After(time.Duration(1+rand.IntN(500)) * time.Millisecond):
			case <-ctx.Done():
				return python.Result{}, ctx.Err()
			}
			return watchtest.Text(fmt.Sprintf("%v %v", run.Event["type"], run.Event["seq"]))
		})
		var mu sync.Mutex
		told := map[string]int{}
		sink := watch.SinkFunc(func(_ context.Context, n watch.Notice) error {
			mu.Lock()
			defer mu.Unlock()
			if n.Watch == "steady" {
				for _, line := range n.Lines {
					told[line]++
				}
			}
			return nil
		})
		m := watch.NewManager([]watch.Server{states, logs}, engine, sink, &watch.Options{Limits: watch.Limits{Watches: 50, Lines: 10_000}})
		// One watch of the log stays from beginning to end.
		if _, err := m.Start(t.Context(), watch.StartRequest{Name: "steady", URI: "log://x"}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(worker), 7))
				for step := range 400 {
					name, uri := fmt.Sprint("w", r.IntN(10)), fmt.Sprintf("state://%d", r.IntN(3))
					switch r.IntN(9) {
					case 0, 1:
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(100))*time.Millisecond)
						_, _ = m.Start(ctx, watch.StartRequest{Name: name, URI: uri, OnEvent: []string{"", "slow"}[r.IntN(2)]})
						cancel()
					case 2:
						_, _ = m.Start(t.Context(), watch.StartRequest{Name: name, URI: "log://x", OnEvent: "slow"})
					case 3:
						m.Stop(name)
					case 4:
						states.Change(uri, fmt.Sprintf(`{"n":%d,"w":%d}`, step, worker))
					case 5:
						log.Push(fmt.Sprintf(`"type":"ADDED","object":{"metadata":{"name":"%d-%d"}}`, worker, step))
					case 6:
						states.Interrupt(uri, errors.New("lost"), 1, time.Second)
						logs.Interrupt("log://x", errors.New("lost"), 1, time.Second)
						states.Restore(uri)
						logs.Restore("log://x")
					case 7:
						states.Fail(uri, errors.New("gone"))
					default:
						states.Refuse("read", []error{nil, errors.New("broken")}[r.IntN(2)])
						m.List()
					}
					time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		states.Refuse("read", nil)
		time.Sleep(time.Minute)
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		for i := range 3 {
			if n := states.Subscribers(fmt.Sprintf("state://%d", i)); n != 0 {
				t.Errorf("%d subscriptions of state %d are left", n, i)
			}
		}
		if n := logs.Subscribers("log://x"); n != 0 || engine.Open() != 0 {
			t.Errorf("%d subscriptions of the log and %d scopes are left", n, engine.Open())
		}
		mu.Lock()
		defer mu.Unlock()
		if len(told) < 100 {
			t.Errorf("only %d lines", len(told))
		}
		for line, n := range told {
			if n > 1 || strings.Contains(line, "×") || strings.HasPrefix(line, "GAP") {
				t.Errorf("%s: told %d times", line, n)
			}
		}
	})
}
