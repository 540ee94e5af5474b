package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/worker"
)

func newTelemetry(t *testing.T, o *Options) *Telemetry {
	t.Helper()
	tel, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

// scrape returns the metrics as Prometheus reads them.
func scrape(t *testing.T, tel *Telemetry) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%d %s: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// value is that of a metric, for which labels are given as name=value; of a
// histogram it is the number of observations.
func value(t *testing.T, families map[string]*dto.MetricFamily, m metric, labels ...string) float64 {
	t.Helper()
	for _, v := range families[m.name].GetMetric() {
		var have []string
		for _, l := range v.GetLabel() {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		if !slices.Equal(have, labels) {
			continue
		}
		switch m.kind {
		case counter:
			return v.GetCounter().GetValue()
		case gauge:
			return v.GetGauge().GetValue()
		default:
			return float64(v.GetHistogram().GetSampleCount())
		}
	}
	t.Errorf("no %s%v", m.name, labels)
	return -1
}

// ill is a bus that says how it is.
type ill struct {
	feed.Local

	health feed.Health
	fails  error
}

func (b *ill) Health() feed.Health { return b.health }

func (b *ill) Ring(ctx context.Context, p feed.Position) error {
	if b.fails != nil {
		return b.fails
	}
	return b.Local.Ring(ctx, p)
}

// whole is a telemetry with everything that it can look at.
type whole struct {
	*Telemetry

	t     *testing.T
	store *feedtest.Memory
	bus   *ill
	hub   *feed.Hub
	to    feed.Publisher
}

// inBubble runs f with a hub that is looked at, in virtual time.
func inBubble(t *testing.T, o *Options, f func(t *testing.T, w *whole)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &whole{Telemetry: newTelemetry(t, o), t: t, store: feedtest.NewMemory(), bus: &ill{}}
		var err error
		if w.hub, err = feed.NewHub(t.Context(), w.Store(w.store), w.Bus(w.bus), nil); err != nil {
			t.Fatal(err)
		}
		w.Hub(w.hub)
		w.to = w.Publisher(w.hub)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.hub.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		f(t, w)
	})
}

func (w *whole) publish(topics ...string) error {
	w.t.Helper()
	var drafts []feed.Draft
	for _, topic := range topics {
		drafts = append(drafts, feed.Draft{Topic: topic, Data: json.RawMessage(`"s3cret"`)})
	}
	_, err := w.to.Publish(w.t.Context(), drafts)
	synctest.Wait()
	return err
}

// F-31: what the hub, its store and its bus do can be read in numbers.
func TestFeedMetrics(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, w *whole) {
		slow, err := w.hub.Subscribe(feed.Subscribe{})
		if err != nil {
			t.Fatal(err)
		}
		for range 150 {
			if err := w.publish("a", "b"); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.publish("No topic"); err == nil {
			t.Error("published")
		}
		if _, err := w.to.Publish(t.Context(), []feed.Draft{{Topic: "a", Data: json.RawMessage("1"), IdempotencyKey: "k"}, {Topic: "a", Data: json.RawMessage("1"), IdempotencyKey: "k"}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		m := scrape(t, w.Telemetry)
		if got := value(t, m, lagMost); got != 301 {
			t.Errorf("lag %v", got)
		}
		if _, err := slow.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.store.Fail(errors.New("the disk is full"))
		if err := w.publish("a"); err == nil {
			t.Error("published")
		}
		if m := scrape(t, w.Telemetry); value(t, m, storeUp) != 0 {
			t.Error("the store is said to be up while nothing can be published")
		}
		w.store.Fail(nil)
		time.Sleep(time.Second) // the hub looks again by itself
		synctest.Wait()
		for _, from := range []int64{1, 300} {
			if _, err := w.hub.Subscribe(feed.Subscribe{From: &feed.Position{Epoch: w.hub.Stats().Head.Epoch, ID: from}}); err != nil {
				t.Fatal(err)
			}
		}
		m = scrape(t, w.Telemetry)
		for _, c := range []struct {
			want   float64
			metric metric
			labels []string
		}{
			{151, publishSeconds, []string{"result=ok"}},
			{1, publishSeconds, []string{"result=refused"}},
			{1, publishSeconds, []string{"result=failed"}},
			{151, publishedEvents, []string{"topic=a"}},
			{150, publishedEvents, []string{"topic=b"}},
			{1, repeatedEvents, nil},
			{151, storeSeconds, []string{"operation=append", "result=ok"}},
			{1, storeSeconds, []string{"operation=append", "result=failed"}},
			{1, storeUp, nil},
			{1, busUp, nil},
			{151, busRings, []string{"kind=sent"}},
			{301, head, nil},
			{3, subscribers, nil},
			{201, drops, []string{"policy=drop-oldest"}},
			{0, drops, []string{"policy=drop-newest"}},
			{0, drops, []string{"policy=disconnect"}},
			{2, resumes, []string{"from=ring"}},
			{0, resumes, []string{"from=store"}},
			{1, gaps, nil},
		} {
			if got := value(t, m, c.metric, c.labels...); got != c.want {
				t.Errorf("%s%v is %v, want %v", c.metric.name, c.labels, got, c.want)
			}
		}
		if got := value(t, m, busRings, "kind=heard"); got < 1 {
			t.Errorf("%v rings heard", got)
		}
		if got := value(t, m, storeSeconds, "operation=read", "result=ok"); got < 2 {
			t.Errorf("%v reads", got)
		}
	})
}

// F-27, F-31: the metrics say that the bus is down, whoever knows it.
func TestBusState(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, w *whole) {
		synctest.Wait()
		if got := value(t, scrape(t, w.Telemetry), busUp); got != 1 {
			t.Errorf("a bus that works is %v", got)
		}
		w.bus.health = feed.Health{Err: "deaf", Since: time.Now()}
		if got := value(t, scrape(t, w.Telemetry), busUp); got != 0 {
			t.Errorf("a deaf bus is %v", got)
		}
		w.bus.health, w.bus.fails = feed.Health{}, errors.New("mute")
		if err := w.publish("a"); err != nil {
			t.Fatal(err)
		}
		m := scrape(t, w.Telemetry)
		if got := value(t, m, busUp); got != 0 {
			t.Errorf("a mute bus is %v", got)
		}
		if got := value(t, m, busRings, "kind=failed"); got != 1 {
			t.Errorf("%v rings failed", got)
		}
	})
}

func TestStoreState(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(t *testing.T, w *whole) {
		synctest.Wait()
		w.store.Fail(errors.New("gone"))
		if err := w.bus.Ring(t.Context(), feed.Position{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := value(t, scrape(t, w.Telemetry), storeUp); got != 0 {
			t.Errorf("a store that fails is %v", got)
		}
	})
}

func TestStreamMetrics(t *testing.T) {
	t.Parallel()
	tel := newTelemetry(t, nil)
	tel.Streams(func() Streams {
		return Streams{Streams: 10, Direct: 7, Replaying: 2, Polls: 3, Queued: 4, Writes: 5, Bytes: 6, Events: 8, Cut: 9, Slow: 11, Lapsed: 12, Published: 13, Refused: 14}
	})
	tel.ObserveDelivery(30 * time.Millisecond)
	m := scrape(t, tel)
	for _, c := range []struct {
		want   float64
		metric metric
		labels []string
	}{
		{7, streams, []string{"path=direct"}},
		{3, streams, []string{"path=standard"}},
		{3, polls, nil},
		{2, replaying, nil},
		{4, queuedBytes, nil},
		{8, sentEvents, nil},
		{6, sentBytes, nil},
		{5, streamWrites, nil},
		{9, streamsEnded, []string{"reason=cut"}},
		{11, streamsEnded, []string{"reason=slow"}},
		{12, streamsEnded, []string{"reason=lapsed"}},
		{14, requestsRefused, nil},
		{1, deliverySeconds, nil},
	} {
		if got := value(t, m, c.metric, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.metric.name, c.labels, got, c.want)
		}
	}
	if sum := m[deliverySeconds.name].GetMetric()[0].GetHistogram().GetSampleSum(); sum != 0.03 {
		t.Errorf("%v seconds", sum)
	}
}

// F-31: what is asked for at a scrape does not hold it up for long, and says
// nothing rather than something old.
func TestSlowSources(t *testing.T) {
	t.Parallel()
	tel := newTelemetry(t, &Options{Wait: time.Second}) // which a quick source has on a busy machine, too
	tel.Outbox(func(context.Context) (Backlog, error) { return Backlog{Rows: 7, Age: 1500 * time.Millisecond}, nil })
	tel.Inbox(func(ctx context.Context) (map[string]int, error) {
		<-ctx.Done()
		return map[string]int{"seen": 1}, ctx.Err()
	})
	begun := time.Now()
	m := scrape(t, tel)
	if d := time.Since(begun); d > 20*time.Second {
		t.Errorf("a scrape took %v", d)
	}
	if rows, age := value(t, m, outboxRows), value(t, m, outboxLagSeconds); rows != 7 || age != 1.5 {
		t.Errorf("%v rows, %v s", rows, age)
	}
	if m[inboxNotices.name] != nil {
		t.Error("an inbox that could not be read has numbers")
	}
	if got := value(t, scrape(t, tel), scrapeFailures, "source=inbox"); got < 1 {
		t.Errorf("%v failures", got)
	}
	tel.Inbox(func(context.Context) (map[string]int, error) { return map[string]int{"seen": 3}, nil })
	if got := value(t, scrape(t, tel), inboxNotices, "state=seen"); got != 3 {
		t.Errorf("%v notices", got)
	}
}

// However many topics there are, the metrics stay small.
func TestTopicsAreBounded(t *testing.T) {
	t.Parallel()
	inBubble(t, &Options{Topics: 3}, func(t *testing.T, w *whole) {
		for i := range 100 {
			if err := w.publish(fmt.Sprintf("t%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		m := scrape(t, w.Telemetry)
		if n := len(m[publishedEvents.name].GetMetric()); n != 4 {
			t.Errorf("%d topics", n)
		}
		if got := value(t, m, publishedEvents, "topic=other"); got != 97 {
			t.Errorf("%v others", got)
		}
	})
}

// Every metric is in the table, with its labels, and the page has the table.
func TestDocumentedMetrics(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "<!-- metrics -->\n"+Table()+"<!-- /metrics -->") {
		t.Errorf("docs/reference/metrics.md needs this table:\n%s", Table())
	}
	inBubble(t, nil, func(t *testing.T, w *whole) {
		w.Streams(func() Streams { return Streams{} })
		w.Outbox(func(context.Context) (Backlog, error) { return Backlog{}, nil })
		w.Inbox(func(context.Context) (map[string]int, error) { return map[string]int{"seen": 1}, nil })
		w.Signals(func() mailbox.Stats { return mailbox.Stats{} })
		w.Page(func() Page { return Page{Connections: 1} })
		w.Sandboxes(func() map[string]int { return map[string]int{"running": 1} })
		w.ObserveChannel(worker.Observation{Kind: worker.ObservedClosed})
		w.ObserveChannel(worker.Observation{Kind: worker.ObservedEnded})
		w.ObserveDelivery(0)
		w.m.repeated.WithLabelValues()
		w.m.scrapeFailures.WithLabelValues("inbox")
		w.m.exportFailures.WithLabelValues()
		if err := w.publish("a"); err != nil {
			t.Fatal(err)
		}
		got := map[string]metric{}
		for name, f := range scrape(t, w.Telemetry) {
			if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
				continue
			}
			m := metric{name: name, kind: strings.ToLower(f.GetType().String()), help: f.GetHelp()}
			for _, l := range f.GetMetric()[0].GetLabel() {
				m.labels = append(m.labels, l.GetName())
			}
			got[name] = m
		}
		want := map[string]metric{}
		for _, m := range all() {
			m.help = m.text()
			want[m.name] = m
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(metric{})); diff != "" {
			t.Errorf("(-documented +served):\n%s", diff)
		}
	})
}
