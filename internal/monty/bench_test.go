package monty_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/monty"
	"github.com/ossicle/ossicle/internal/python"
)

// podEvent is what a Kubernetes watch says of a pod, some 2 KB.
var podEvent = func() json.RawMessage {
	container := `{"name":"app-%d","image":"registry.example/app:1.2.%d","ready":false,"restartCount":%d,"state":{"waiting":{"reason":"CrashLoopBackOff","message":"back-off 40s restarting failed container"}}}`
	pod := `{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-7d4b9c6f5-x2x7q","namespace":"prod","uid":"0b5f7c9e-5b0c-4f6a-9f57-0d2f7f1f3c11","resourceVersion":"184467440737095516","creationTimestamp":"2026-11-29T10:00:00Z","labels":{"app":"web","tier":"front","pod-template-hash":"7d4b9c6f5"},"annotations":{"checksum/config":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}},"spec":{"nodeName":"node-17","serviceAccountName":"web","terminationGracePeriodSeconds":30,"containers":[{"name":"app","ports":[{"containerPort":80},{"containerPort":443}],"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"64Mi"}}}]},"status":{"phase":"Running","podIP":"10.1.2.3","startTime":"2026-11-29T10:00:05Z","conditions":[{"type":"Ready","status":"False","reason":"ContainersNotReady","lastTransitionTime":"2026-11-29T10:00:09Z"},{"type":"Initialized","status":"True","lastTransitionTime":"2026-11-29T10:00:06Z"},{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-11-29T10:00:05Z"}],"containerStatuses":[%s,%s,%s]}}}`
	var c []any
	for i := range 3 {
		c = append(c, fmt.Sprintf(container, i, i, i*7))
	}
	return json.RawMessage(fmt.Sprintf(pod, c...))
}()

// filter is a filter as the specification has them: a persistent counter, a
// look into the event, a line of text.
const filter = `
try:
    n += 1
except NameError:
    n = 1
meta = event["object"]["metadata"]
bad = [c["name"] for c in event["object"]["status"]["containerStatuses"] if c["restartCount"] > 3]
f"{n}: {meta['namespace']}/{meta['name']} {', '.join(bad)}" if bad else None
`

func newEngine(tb testing.TB, o *monty.Options) *monty.Engine {
	tb.Helper()
	e, err := monty.New(binary(tb), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

func newScope(tb testing.TB, e *monty.Engine, o python.ScopeOptions) python.Scope {
	tb.Helper()
	s, err := e.NewScope(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

func event() map[string]json.RawMessage { return map[string]json.RawMessage{"event": podEvent} }

// report turns durations into the percentiles that the specification bounds.
func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	at := func(p int) float64 { return float64(took[len(took)*p/100].Microseconds()) }
	b.ReportMetric(at(50), "p50-µs")
	b.ReportMetric(at(99), "p99-µs")
}

// BenchmarkFilter is one filter on one event after the other.
func BenchmarkFilter(b *testing.B) {
	e := newEngine(b, nil)
	s := newScope(b, e, python.ScopeOptions{})
	b.SetBytes(int64(len(podEvent)))
	b.ReportAllocs()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := s.Run(b.Context(), filter, event(), python.Limits{}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	report(b, took)
}

// BenchmarkFilterAwait is the same with one host call.
func BenchmarkFilterAwait(b *testing.B) {
	e := newEngine(b, nil)
	s := newScope(b, e, python.ScopeOptions{Functions: []string{"read_resource"}, Call: func(context.Context, python.Call) (json.RawMessage, error) {
		return json.RawMessage(`{"contents":[{"uri":"a://b","text":"hello"}]}`), nil
	}})
	source := filter + "r = await read_resource(uri=\"a://b\")\nr[\"contents\"][0][\"text\"]\n"
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := s.Run(b.Context(), source, event(), python.Limits{}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	report(b, took)
}

// BenchmarkScopes is one event for each of 1,000 scopes in turn, with as many
// runs at once as there are children.
func BenchmarkScopes(b *testing.B) {
	for _, workers := range []int{2, 8} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			e := newEngine(b, &monty.Options{Workers: workers})
			scopes := make([]python.Scope, 1000)
			for i := range scopes {
				scopes[i] = newScope(b, e, python.ScopeOptions{})
			}
			var mu sync.Mutex
			var took []time.Duration
			processes := 0
			for b.Loop() {
				next := make(chan python.Scope)
				var wg sync.WaitGroup
				for range workers {
					wg.Go(func() {
						for s := range next {
							began := time.Now()
							if _, err := s.Run(b.Context(), filter, event(), python.Limits{}); err != nil {
								b.Error(err)
							}
							mu.Lock()
							took = append(took, time.Since(began))
							mu.Unlock()
						}
					})
				}
				for _, s := range scopes {
					next <- s
				}
				close(next)
				wg.Wait()
				processes = max(processes, e.Processes())
			}
			report(b, took)
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(len(took)), "µs/run")
			b.ReportMetric(float64(processes), "processes")
		})
	}
}
