package telemetry

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto" //nolint:depguard // the collector of the test reads what collectors read

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
)

// fake is a collector of traces.
type fake struct {
	*httptest.Server

	mu    sync.Mutex
	paths []string
	got   []*spans.Span
	raw   []byte
	about string // the resource
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.paths, f.raw = append(f.paths, r.URL.Path), append(f.raw, body...)
		for _, rs := range request.GetResourceSpans() {
			f.about = rs.GetResource().String()
			for _, ss := range rs.GetScopeSpans() {
				f.got = append(f.got, ss.GetSpans()...)
			}
		}
	}))
	t.Cleanup(f.Close)
	return f
}

// span returns the one span with a name.
func (f *fake) span(t *testing.T, name string) *spans.Span {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var found *spans.Span
	for _, s := range f.got {
		if s.GetName() == name {
			if found != nil {
				t.Errorf("several spans %s", name)
			}
			found = s
		}
	}
	if found == nil {
		t.Fatalf("no span %s among %v", name, f.got)
	}
	return found
}

// publishing is a server that publishes what is posted.
func publishing(t *testing.T, tel *Telemetry, store feed.Store) http.Handler {
	t.Helper()
	hub, err := feed.NewHub(t.Context(), tel.Store(store), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	to := tel.Publisher(hub)
	mux := http.NewServeMux()
	mux.Handle("/v1/topics/{topic}/events", tel.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, err = to.Publish(r.Context(), []feed.Draft{{Topic: r.PathValue("topic"), Data: json.RawMessage(body)}})
		}
		if err != nil {
			http.Error(w, "no", http.StatusServiceUnavailable)
		}
	})))
	return mux
}

func post(t *testing.T, h http.Handler, body, parent string) int {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/v1/topics/builds/events", strings.NewReader(body))
	if parent != "" {
		r.Header.Set("Traceparent", parent)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// F-31: a publisher's trace goes on through us, to the log, without what was
// published.
func TestTraces(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	tel := newTelemetry(t, &Options{Endpoint: f.URL})
	if !tel.Tracing() {
		t.Fatal("no traces")
	}
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	h := publishing(t, tel, feedtest.NewMemory())
	if code := post(t, h, `"s3cret"`, "00-"+trace+"-"+parent+"-01"); code != http.StatusOK {
		t.Fatal(code)
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	request := f.span(t, "/v1/topics/{topic}/events")
	publish, appended := f.span(t, "feed publish"), f.span(t, "feed store append")
	if got := hex.EncodeToString(request.GetTraceId()); got != trace {
		t.Errorf("trace %s", got)
	}
	if got := hex.EncodeToString(request.GetParentSpanId()); got != parent {
		t.Errorf("parent %s", got)
	}
	if !bytes.Equal(publish.GetParentSpanId(), request.GetSpanId()) || !bytes.Equal(appended.GetParentSpanId(), publish.GetSpanId()) {
		t.Errorf("the spans are not parts of each other: %v", f.got)
	}
	if request.GetKind() != spans.Span_SPAN_KIND_SERVER || publish.GetKind() != spans.Span_SPAN_KIND_PRODUCER {
		t.Errorf("kinds %v, %v", request.GetKind(), publish.GetKind())
	}
	if text := publish.String(); !strings.Contains(text, "builds") {
		t.Errorf("no topic: %s", text)
	}
	if !strings.Contains(request.String(), "200") {
		t.Errorf("no status: %v", request)
	}
	if bytes.Contains(f.raw, []byte("s3cret")) {
		t.Error("what was published is in the trace")
	}
	if len(f.got) != 3 { // reading the log on, and at the start, is nobody's part
		t.Errorf("spans %v", f.got)
	}
	if f.paths[0] != "/v1/traces" || !strings.Contains(f.about, "ossicle") {
		t.Errorf("paths %v, resource %s", f.paths, f.about)
	}
}

func TestTracesOfFailures(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	tel := newTelemetry(t, &Options{Endpoint: f.URL + "/some/where"})
	store := feedtest.NewMemory()
	h := publishing(t, tel, store)
	store.Fail(errors.New("s3cret"))
	if code := post(t, h, `1`, ""); code != http.StatusServiceUnavailable {
		t.Fatal(code)
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/v1/topics/{topic}/events", "feed publish", "feed store append"} {
		if s := f.span(t, name); s.GetStatus().GetCode() != spans.Status_STATUS_CODE_ERROR {
			t.Errorf("%v", s)
		}
	}
	if bytes.Contains(f.raw, []byte("s3cret")) || f.paths[0] != "/some/where" {
		t.Errorf("paths %v: %q", f.paths, f.raw)
	}
}

// Only what publishes is traced, and streams are left alone.
func TestTracesOfReadersAreNone(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	tel := newTelemetry(t, &Options{Endpoint: f.URL})
	w := httptest.NewRecorder()
	var seen http.ResponseWriter
	tel.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { seen = w })).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/events", nil))
	if seen != http.ResponseWriter(w) {
		t.Error("the response of a stream is wrapped")
	}
	if err := tel.Shutdown(t.Context()); err != nil || len(f.got) != 0 {
		t.Errorf("spans %v, %v", f.got, err)
	}
}

// F-31: without an endpoint there is nothing in the way.
func TestNoTraces(t *testing.T) {
	t.Parallel()
	tel := newTelemetry(t, nil)
	if tel.Tracing() {
		t.Fatal("traces to nowhere")
	}
	mux := http.NewServeMux()
	if tel.Middleware(mux) != http.Handler(mux) {
		t.Error("the handler is wrapped")
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		option string
		env    map[string]string
		want   bool
	}{
		{"", nil, false},
		{"http://x", nil, true},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, true},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, true},
		{"", map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, false},
		{"http://x", map[string]string{"OTEL_SDK_DISABLED": "TRUE"}, false},
		{"http://x", map[string]string{"OTEL_TRACES_EXPORTER": "none"}, false},
	} {
		if got := endpoint(Options{Endpoint: c.option}, func(k string) string { return c.env[k] }); got != c.want {
			t.Errorf("%q, %v: %v", c.option, c.env, got)
		}
	}
	for _, wrong := range []string{"collector:4318", "://", "ftp://x", "http://", "http://u:s3cret@%zz"} {
		if _, err := New(t.Context(), &Options{Endpoint: wrong}); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// A collector that is down, or hangs, holds up neither publishers nor the end.
func TestCollectorFails(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{})
	for name, answer := range map[string]http.HandlerFunc{
		"refuses": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) },
		"hangs":   func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-hung },
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(answer)
			defer s.Close()
			if name == "hangs" {
				defer close(hung)
			}
			tel := newTelemetry(t, &Options{Endpoint: s.URL})
			h := publishing(t, tel, feedtest.NewMemory())
			if code := post(t, h, `1`, ""); code != http.StatusOK {
				t.Error(code)
			}
			limit := 30 * time.Second
			if name == "hangs" {
				limit = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			begun := time.Now()
			err := tel.Shutdown(ctx)
			if d := time.Since(begun); d > 10*time.Second {
				t.Errorf("the end took %v", d)
			}
			if (err != nil) != (name == "hangs") {
				t.Errorf("error %v", err)
			}
			if name == "refuses" {
				if got := value(t, scrape(t, tel), exportFailures); got != 1 {
					t.Errorf("%v failures", got)
				}
			}
		})
	}
}
