package telemetry

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// metric describes a metric once, for the registry and for the page.
type metric struct {
	name   string
	kind   string // of Prometheus
	labels []string
	help   string
}

const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// The metrics. Those of a part that the process does not have are absent.
var (
	buildInfo = metric{"ossicle_build_info", gauge, []string{"version"}, "1; the label says which version runs."}

	publishSeconds  = metric{"ossicle_feed_publish_seconds", histogram, []string{"result"}, "Time until a batch was durable (`ok`), or not taken: `refused` is the publisher's fault, `failed` ours."}
	publishedEvents = metric{"ossicle_feed_published_events_total", counter, []string{"topic"}, "Events that were published here, by topic; those of topics beyond the first 50 count as `other`."}
	repeatedEvents  = metric{"ossicle_feed_repeated_events_total", counter, nil, "Events that were known by their idempotency key, and not published again."}
	storeSeconds    = metric{"ossicle_feed_store_seconds", histogram, []string{"operation", "result"}, "Time of a call of the log's store: `append`, `read`, `topics`, `trim` or `forget`, with the result `ok` or `failed`."}
	storeUp         = metric{"ossicle_feed_store_up", gauge, nil, "1 if the log could be read at the last try, else 0."}

	busUp    = metric{"ossicle_feed_bus_up", gauge, nil, "1 if this process hears the bus and can ring it, else 0: then it learns late of events that others publish."}
	busRings = metric{"ossicle_feed_bus_rings_total", counter, []string{"kind"}, "Rings that were `sent`, that `failed` to be sent in time, and that were `heard`."}

	head        = metric{"ossicle_feed_head", gauge, nil, "Id of the last event that this process has seen. Replicas differ by what they are behind."}
	subscribers = metric{"ossicle_feed_subscribers", gauge, nil, "Subscriptions of any kind: streams, long polls, watches of MCP clients."}
	lagMost     = metric{"ossicle_feed_subscriber_lag_most", gauge, nil, "Events that the subscriber furthest behind still has to get, of those in memory."}
	lagTotal    = metric{"ossicle_feed_subscriber_lag_total", gauge, nil, "The same of all subscribers together: the depth of their queues."}
	drops       = metric{"ossicle_feed_drops_total", counter, []string{"policy"}, "Events that slow subscribers did not get, by the policy of the topic; with `disconnect`, subscribers that were sent away."}
	resumes     = metric{"ossicle_feed_resumes_total", counter, []string{"from"}, "Subscriptions that resumed, from the `ring` in memory or from the `store`."}
	gaps        = metric{"ossicle_feed_gaps_total", counter, nil, "Gaps that subscribers were told of."}

	streams         = metric{"ossicle_feed_streams", gauge, []string{"path"}, "Open event streams: `direct` ones cost no goroutine, `standard` ones are TLS and HTTP/2."}
	polls           = metric{"ossicle_feed_polls", gauge, nil, "Long polls under way."}
	replaying       = metric{"ossicle_feed_replaying", gauge, nil, "Streams that wait for the store to be read."}
	queuedBytes     = metric{"ossicle_feed_queued_bytes", gauge, nil, "Bytes that wait for clients that are slow to read."}
	sentEvents      = metric{"ossicle_feed_sent_events_total", counter, nil, "Events that were written to streams."}
	sentBytes       = metric{"ossicle_feed_sent_bytes_total", counter, nil, "Bytes that were written to streams."}
	streamWrites    = metric{"ossicle_feed_writes_total", counter, nil, "Writes to streams. Fewer than events: those that are behind get many at once."}
	streamsEnded    = metric{"ossicle_feed_streams_ended_total", counter, []string{"reason"}, "Streams that the server ended: `cut` by the write deadline, `slow` by a policy, `lapsed` with their token."}
	requestsRefused = metric{"ossicle_feed_requests_refused_total", counter, nil, "Requests that were answered with a problem."}
	deliverySeconds = metric{"ossicle_feed_delivery_seconds", histogram, nil, "Time from the commit of an event to the end of its write to a stream; of a sample of one in 64."}

	outboxRows       = metric{"ossicle_feed_outbox_rows", gauge, nil, "Rows that wait in the outbox of PostgreSQL to become events; beyond 10,000 an estimate."}
	outboxLagSeconds = metric{"ossicle_feed_outbox_lag_seconds", gauge, nil, "Age of the oldest of them, 0 if there is none."}

	inboxNotices = metric{"ossicle_inbox_notices", gauge, []string{"state"}, "Notices in the inbox, of all agents, by state."}

	signalsSent      = metric{"ossicle_signals_sent_total", counter, []string{"type"}, "Signals between agents that agents of this process sent, by type."}
	signalsAnnounced = metric{"ossicle_signals_announced_total", counter, nil, "Changes of sessions that watchers in this process were told of."}
	signalsEscalated = metric{"ossicle_signals_escalated_total", counter, []string{"outcome"}, "Turns that were begun for signals: `done`, `failed` or `timeout`."}
	signalsRefused   = metric{"ossicle_signals_refused_total", counter, []string{"gate"}, "Times that a gate kept a signal from beginning a turn: `means`, `type`, `depth` or `rate`."}
	signalsTurnTime  = metric{"ossicle_signals_turn_seconds_total", counter, nil, "Time that clients took over sampling requests."}

	pageConnections   = metric{"ossicle_page_connections", gauge, nil, "Live connections of the page."}
	pageSubscriptions = metric{"ossicle_page_subscriptions", gauge, nil, "Topics that they are subscribed to, together."}
	pageGaps          = metric{"ossicle_page_gaps_total", counter, nil, "Times that a topic was begun anew for a connection that was too slow for it."}

	scrapeFailures = metric{"ossicle_scrape_failures_total", counter, []string{"source"}, "Times that a source (`outbox`, `inbox`) could not be asked within its deadline; its metrics are absent then."}
	exportFailures = metric{"ossicle_trace_export_failures_total", counter, nil, "Batches of spans that the collector of traces did not take."}
)

// all is in the order of the page.
func all() []metric {
	return []metric{
		buildInfo,
		publishSeconds, publishedEvents, repeatedEvents, storeSeconds, storeUp, busUp, busRings,
		head, subscribers, lagMost, lagTotal, drops, resumes, gaps,
		streams, polls, replaying, queuedBytes, sentEvents, sentBytes, streamWrites, streamsEnded, requestsRefused, deliverySeconds,
		outboxRows, outboxLagSeconds, inboxNotices,
		signalsSent, signalsAnnounced, signalsEscalated, signalsRefused, signalsTurnTime,
		sandboxSessions, sandboxHandshakes, sandboxReconnects, sandboxDetached, sandboxBeatLag, sandboxBroken, sandboxSuperseded, sandboxCloses, sandboxEnded, sandboxFlush,
		pageConnections, pageSubscriptions, pageGaps,
		scrapeFailures, exportFailures,
	}
}

// Table is the table of metrics as docs/reference/metrics.md shows it.
func Table() string {
	var b strings.Builder
	b.WriteString("| metric | kind | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range all() {
		labels := ""
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		b.WriteString("| `" + m.name + "` | " + m.kind + " | " + labels + " | " + m.help + " |\n")
	}
	return b.String()
}

// text is the help without the markup of the page.
func (m metric) text() string { return strings.ReplaceAll(m.help, "`", "") }

func (m metric) desc() *prometheus.Desc { return prometheus.NewDesc(m.name, m.text(), m.labels, nil) }

func (m metric) opts() prometheus.Opts { return prometheus.Opts{Name: m.name, Help: m.text()} }

func (m metric) counters() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts(m.opts()), m.labels)
}

func (m metric) histograms(buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.name, Help: m.text(), Buckets: buckets}, m.labels)
}

// buckets are in seconds: from what memory takes to what a client gives up at.
func buckets() []float64 {
	return []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
}
