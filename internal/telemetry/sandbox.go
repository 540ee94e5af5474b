package telemetry

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ossicle/ossicle/worker"
)

// Metrics of the tool channel.
var (
	sandboxSessions   = metric{"ossicle_sandbox_sessions", gauge, []string{"state"}, "Sandboxes that this process holds, by state of their session."}
	sandboxHandshakes = metric{"ossicle_sandbox_handshake_seconds", histogram, nil, "Time from the upgrade of a connection until it was bound to its session."}
	sandboxReconnects = metric{"ossicle_sandbox_reconnects_total", counter, nil, "Connections of workers that had been bound before."}
	sandboxDetached   = metric{"ossicle_sandbox_detached_seconds", histogram, nil, "Time that sessions were without a connection, of those whose worker came back."}
	sandboxBeatLag    = metric{"ossicle_sandbox_heartbeat_lag_seconds", histogram, nil, "How much later than its interval a heartbeat came."}
	sandboxBroken     = metric{"ossicle_sandbox_broken_frames_total", counter, nil, "Frames of workers that were no JSON-RPC; ten end a connection."}
	sandboxSuperseded = metric{"ossicle_sandbox_superseded_total", counter, nil, "Connections that a newer one of the same worker, or another host, replaced (close code 4009)."}
	sandboxCloses     = metric{"ossicle_sandbox_closes_total", counter, []string{"by", "code"}, "Connections that ended, by close code and by who closed: `host` or `worker`. 1006 is a connection that broke; codes that nobody defines are `other`."}
	sandboxEnded      = metric{"ossicle_sandbox_ended_total", counter, []string{"outcome"}, "Sandboxes that are over: `released`, or the reason of their failure."}
	sandboxFlush      = metric{"ossicle_sandbox_release_flush_total", counter, []string{"result"}, "Releases, by what became of the outputs: `flushed`, `lost` in part, or `unreported` because the worker said nothing."}
)

// channelMeasures are the counters of the tool channel.
type channelMeasures struct {
	handshakes, detached, lag *prometheus.HistogramVec
	reconnects, broken        *prometheus.CounterVec
	superseded, closes        *prometheus.CounterVec
	ended, flush              *prometheus.CounterVec
}

func newChannelMeasures() *channelMeasures {
	slow := append(buckets(), 20, 30, 45, 60, 70, 120)
	return &channelMeasures{
		handshakes: sandboxHandshakes.histograms(buckets()), detached: sandboxDetached.histograms(slow), lag: sandboxBeatLag.histograms(slow),
		reconnects: sandboxReconnects.counters(), broken: sandboxBroken.counters(), superseded: sandboxSuperseded.counters(),
		closes: sandboxCloses.counters(), ended: sandboxEnded.counters(), flush: sandboxFlush.counters(),
	}
}

func (m *channelMeasures) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.handshakes, m.detached, m.lag, m.reconnects, m.broken, m.superseded, m.closes, m.ended, m.flush}
}

// ObserveChannel counts what a worker.Host tells; it is for HostOptions.Observe.
func (t *Telemetry) ObserveChannel(o worker.Observation) {
	m := t.m.channel
	switch o.Kind {
	case worker.ObservedHandshake:
		m.handshakes.WithLabelValues().Observe(o.Duration.Seconds())
		if o.Again {
			m.reconnects.WithLabelValues().Inc()
		}
	case worker.ObservedBack:
		m.detached.WithLabelValues().Observe(o.Duration.Seconds())
	case worker.ObservedBeat:
		m.lag.WithLabelValues().Observe(o.Duration.Seconds())
	case worker.ObservedBroken:
		m.broken.WithLabelValues().Inc()
	case worker.ObservedClosed:
		m.closed(o)
	case worker.ObservedEnded:
		m.over(o)
	}
}

func (m *channelMeasures) closed(o worker.Observation) {
	if o.Code == worker.CloseSuperseded && o.Ours {
		m.superseded.WithLabelValues().Inc()
	}
	by, code := "worker", other
	if o.Ours {
		by = "host"
	}
	// A worker can close with any number: only those that mean something are labels.
	if o.Code >= 1000 && o.Code <= 1015 || o.Code >= worker.CloseVersion && o.Code <= worker.CloseSuperseded {
		code = strconv.Itoa(int(o.Code))
	}
	m.closes.WithLabelValues(by, code).Inc()
}

func (m *channelMeasures) over(o worker.Observation) {
	if o.Failure != "" {
		m.ended.WithLabelValues(string(o.Failure)).Inc()
		return
	}
	m.ended.WithLabelValues("released").Inc()
	result := "unreported"
	switch {
	case o.Flushed:
		result = "flushed"
	case o.Reported:
		result = "lost"
	}
	m.flush.WithLabelValues(result).Inc()
}

// Sandboxes has the metrics tell how many sandboxes there are in each state.
func (t *Telemetry) Sandboxes(states func() map[string]int) {
	m := t.m.channel
	for _, c := range []*prometheus.CounterVec{m.reconnects, m.broken, m.superseded} {
		c.WithLabelValues() // counters begin at zero, and not with the first that there is to count
	}
	for _, h := range []*prometheus.HistogramVec{m.handshakes, m.detached, m.lag} {
		h.WithLabelValues()
	}
	t.sources.mu.Lock()
	defer t.sources.mu.Unlock()
	t.sources.sandboxes = states
}
