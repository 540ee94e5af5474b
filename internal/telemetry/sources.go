package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/mailbox"
)

// Hub counts what subscribers get; *feed.Hub is one.
type Hub interface {
	Stats() feed.Stats
}

// Lagging is what a Hub may know besides.
type Lagging interface {
	// Lag returns how many events subscribers still have to get of those in
	// memory: the one furthest behind, and all together.
	Lag() (most, total int64)
}

// Ailing is what a feed.Bus may know besides: its state.
type Ailing interface {
	Health() feed.Health
}

// Streams are what a server of streams counts. The fields are those of
// feedserver.Stats, which converts to it.
type Streams struct {
	// Streams are open, and Direct of them taken over from net/http. Replaying of
	// them wait for the store. Polls are long polls under way.
	Streams, Direct, Replaying, Polls int64
	// Queued are the bytes that wait for clients that are slow to read.
	Queued int64
	// Writes were made, with so many Bytes and Events.
	Writes, Bytes, Events int64
	// Cut are the streams that the write deadline has ended, Slow those that a
	// policy has, and Lapsed those whose token has ended.
	Cut, Slow, Lapsed int64
	// Published are events that were taken, Refused requests of any kind that were
	// answered with a problem.
	Published, Refused int64
}

// Page is what a server of the page counts. The fields are those of
// pageserver.Stats, which converts to it.
type Page struct {
	Connections, Subscriptions int
	Gaps                       int64
}

// Backlog is what waits in an outbox.
type Backlog struct {
	Rows int64
	Age  time.Duration // of the oldest row; zero if there is none
}

// sources are what is looked at when the metrics are asked for. It is a
// prometheus.Collector.
type sources struct {
	wait     time.Duration
	failures *prometheus.CounterVec

	mu      sync.Mutex
	hub     Hub
	bus     Ailing
	streams func() Streams
	outbox  func(context.Context) (Backlog, error)
	inbox   func(context.Context) (map[string]int, error)
	signals func() mailbox.Stats
	page    func() Page
	// sandboxes counts them by state.
	sandboxes func() map[string]int
}

func newSources(wait time.Duration, failures *prometheus.CounterVec) *sources {
	return &sources{wait: wait, failures: failures}
}

// Hub has the metrics tell of a hub. A later call replaces the one before, here
// and below.
func (t *Telemetry) Hub(h Hub) {
	t.sources.mu.Lock()
	defer t.sources.mu.Unlock()
	t.sources.hub = h
}

// Streams has the metrics tell of a server of streams.
func (t *Telemetry) Streams(stats func() Streams) {
	t.sources.mu.Lock()
	defer t.sources.mu.Unlock()
	t.sources.streams = stats
}

// Outbox has the metrics tell what backlog says, which is asked at each scrape
// and has a deadline.
func (t *Telemetry) Outbox(backlog func(ctx context.Context) (Backlog, error)) {
	t.sources.mu.Lock()
	defer t.sources.mu.Unlock()
	t.sources.outbox = backlog
}

// Inbox has the metrics tell how many notices there are in each state, which is
// asked at each scrape and has a deadline. The states must be few.
func (t *Telemetry) Inbox(counts func(ctx context.Context) (map[string]int, error)) {
	t.sources.mu.Lock()
	defer t.sources.mu.Unlock()
	t.sources.inbox = counts
}

// Signals has the metrics tell of signals between agents.
func (t *Telemetry) Signals(stats func() mailbox.Stats) {
	t.sources.mu.Lock()
	defer t.sources.mu.Unlock()
	t.sources.signals = stats
}

// Page has the metrics tell of a server of the page.
func (t *Telemetry) Page(stats func() Page) {
	t.sources.mu.Lock()
	defer t.sources.mu.Unlock()
	t.sources.page = stats
}

// Describe implements prometheus.Collector. It describes nothing, because what
// there is depends on the sources.
func (s *sources) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *sources) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	hub, bus, streams, outbox, inbox, signals, sandboxes, page := s.hub, s.bus, s.streams, s.outbox, s.inbox, s.signals, s.sandboxes, s.page
	s.mu.Unlock()
	to := sink(ch)
	if hub != nil {
		collectHub(to, hub, bus)
	}
	if streams != nil {
		collectStreams(to, streams())
	}
	if signals != nil {
		collectSignals(to, signals())
	}
	if page != nil {
		p := page()
		to.gauge(pageConnections, int64(p.Connections))
		to.gauge(pageSubscriptions, int64(p.Subscriptions))
		to.counter(pageGaps, p.Gaps)
	}
	if sandboxes != nil {
		for state, n := range sandboxes() {
			to.gauge(sandboxSessions, int64(n), state)
		}
	}
	if outbox != nil {
		ask(s, "outbox", outbox, func(b Backlog) {
			to.gauge(outboxRows, b.Rows)
			to.seconds(outboxLagSeconds, b.Age)
		})
	}
	if inbox != nil {
		ask(s, "inbox", inbox, func(counts map[string]int) {
			for state, n := range counts {
				to.gauge(inboxNotices, int64(n), state)
			}
		})
	}
}

// ask asks a source, for as long as a scrape waits.
func ask[T any](s *sources, name string, source func(context.Context) (T, error), tell func(T)) {
	ctx, cancel := context.WithTimeout(context.Background(), s.wait) // a scrape passes no context on
	defer cancel()
	v, err := source(ctx)
	if err != nil {
		s.failures.WithLabelValues(name).Inc()
		return
	}
	tell(v)
}

func collectHub(to sink, hub Hub, bus Ailing) {
	s := hub.Stats()
	to.gauge(head, s.Head.ID)
	to.gauge(subscribers, int64(s.Subscribers))
	for policy := feed.DropOldest; policy <= feed.Disconnect; policy++ {
		to.counter(drops, s.Dropped[policy], policy.String())
	}
	to.counter(resumes, s.FromRing, "ring")
	to.counter(resumes, s.FromStore, "store")
	to.counter(gaps, s.Gaps)
	to.up(storeUp, s.Store.Err == "")
	to.up(busUp, s.Bus.Err == "" && (bus == nil || bus.Health().Err == ""))
	if l, ok := hub.(Lagging); ok {
		most, total := l.Lag()
		to.gauge(lagMost, most)
		to.gauge(lagTotal, total)
	}
}

func collectStreams(to sink, s Streams) {
	to.gauge(streams, s.Direct, "direct")
	to.gauge(streams, s.Streams-s.Direct, "standard")
	to.gauge(polls, s.Polls)
	to.gauge(replaying, s.Replaying)
	to.gauge(queuedBytes, s.Queued)
	to.counter(sentEvents, s.Events)
	to.counter(sentBytes, s.Bytes)
	to.counter(streamWrites, s.Writes)
	to.counter(streamsEnded, s.Cut, "cut")
	to.counter(streamsEnded, s.Slow, "slow")
	to.counter(streamsEnded, s.Lapsed, "lapsed")
	to.counter(requestsRefused, s.Refused)
}

func collectSignals(to sink, s mailbox.Stats) {
	for _, t := range mailbox.Types() {
		to.counter(signalsSent, s.Sent[t], string(t))
	}
	to.counter(signalsAnnounced, s.Announced)
	for _, outcome := range []string{mailbox.OutcomeDone, mailbox.OutcomeFailed, mailbox.OutcomeTimeout} {
		to.counter(signalsEscalated, s.Outcomes[outcome], outcome)
	}
	for _, gate := range mailbox.Refusals() {
		to.counter(signalsRefused, s.Refused[gate], string(gate))
	}
	to <- prometheus.MustNewConstMetric(signalsTurnTime.desc(), prometheus.CounterValue, s.Turns.Seconds())
}

// sink takes metrics.
type sink chan<- prometheus.Metric

func (to sink) gauge(m metric, v int64, labels ...string) {
	to <- prometheus.MustNewConstMetric(m.desc(), prometheus.GaugeValue, float64(v), labels...)
}

func (to sink) counter(m metric, v int64, labels ...string) {
	to <- prometheus.MustNewConstMetric(m.desc(), prometheus.CounterValue, float64(v), labels...)
}

func (to sink) seconds(m metric, d time.Duration) {
	to <- prometheus.MustNewConstMetric(m.desc(), prometheus.GaugeValue, d.Seconds())
}

func (to sink) up(m metric, up bool) {
	v := int64(0)
	if up {
		v = 1
	}
	to.gauge(m, v)
}
