package interop

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/testserver"
	"github.com/ossicle/ossicle/sse"
)

// follow opens a stream of a daemon, and returns where the ids of its events
// arrive.
func (d *daemon) follow(path string) <-chan string {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.t.Context())
	res := d.open(ctx, http.MethodGet, path, "") //nolint:bodyclose // when the test ends
	if res.StatusCode != http.StatusOK {
		d.t.Fatal(res.Status)
	}
	ids, done := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(done)
		for events := sse.NewReader(res.Body, 0); ; {
			e, err := events.Next()
			if err != nil {
				return
			}
			_, id, _ := strings.Cut(e.ID, "-")
			ids <- id
		}
	}()
	d.t.Cleanup(func() {
		cancel()
		_ = res.Body.Close()
		<-done
	})
	return ids
}

// metric waits until a line of the metrics is there.
func (d *daemon) metric(line string) {
	d.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // it is made to be polled
		text := string(d.call(http.MethodGet, "/metrics", ""))
		if strings.Contains(text, line+"\n") {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("no line %q in\n%s", line, text)
		}
	}
}

// F-26, F-27, F-31: two replicas on one log hear of each other over Redis or
// NATS; without it they go on, say so, and make up for it.
func TestReplicasOnABus(t *testing.T) {
	t.Parallel()
	for scheme, start := range map[string]func(testing.TB) *testserver.Server{
		"redis": func(tb testing.TB) *testserver.Server { tb.Helper(); return testserver.Redis(tb) },
		"nats":  func(tb testing.TB) *testserver.Server { tb.Helper(); return testserver.NATS(tb) },
	} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			bus := start(t)
			args := []string{"--store", "sqlite:" + filepath.Join(t.TempDir(), "feed.db"), "--bus", scheme + "://" + bus.Addr}
			here, there := newDaemon(t, nil, args...), newDaemon(t, nil, args...)
			heard := there.follow("/v1/events?topic=builds")
			n := 0
			publish := func() {
				t.Helper()
				here.post("/v1/topics/builds/events", `{"data":1}`)
				n++
			}
			hear := func() {
				t.Helper()
				select {
				case id := <-heard:
					if id != fmt.Sprint(n) {
						t.Fatalf("event %s, want %d", id, n)
					}
				case <-time.After(patience):
					t.Fatalf("event %d did not arrive", n)
				}
			}
			there.metric("ossicle_feed_bus_up 1")
			publish()
			hear()
			bus.Kill(t)
			there.metric("ossicle_feed_bus_up 0")
			begun := time.Now()
			publish()
			if d := time.Since(begun); d > 10*time.Second {
				t.Errorf("without a bus it took %v to publish", d)
			}
			here.metric("ossicle_feed_bus_up 0")
			there.post("/v1/topics/builds/events", `{"data":1}`) // it has seen that one with its own
			hear()
			n++
			hear()
			publish()
			bus.Start(t)
			hear()
			for _, d := range []*daemon{here, there} {
				d.metric("ossicle_feed_bus_up 1")
			}
			publish()
			hear()
			here.metric(fmt.Sprintf(`ossicle_feed_published_events_total{topic="builds"} %d`, n-1))
			there.metric(`ossicle_feed_streams{path="direct"} 1`)
			there.metric("ossicle_feed_store_up 1")
		})
	}
}

// F-31: the daemon sends its traces, the last of them when it ends.
func TestDaemonTraces(t *testing.T) {
	t.Parallel()
	var batches atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/traces" {
			batches.Add(1)
		}
	}))
	defer collector.Close()
	d := newDaemon(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_BSP_SCHEDULE_DELAY=3600000"})
	d.call(http.MethodPost, "/v1/topics/builds/events", `{"data":1}`, "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if n := batches.Load(); n != 0 {
		t.Errorf("%d batches before it is time", n)
	}
	d.terminate()
	if n := batches.Load(); n != 1 {
		t.Errorf("%d batches", n)
	}
}
