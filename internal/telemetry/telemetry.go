package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/trace"

	"github.com/ossicle/ossicle/internal/version"
)

// Defaults of Options.
const (
	DefaultService = "ossicle"
	DefaultTopics  = 50
	// DefaultWait bounds what a scrape waits for one source.
	DefaultWait = 2 * time.Second
	// DefaultFlush bounds Shutdown where its context does not.
	DefaultFlush = 3 * time.Second

	scrapes    = 4 // at the same time
	scrapeTime = 10 * time.Second
)

// Options adjust a Telemetry. Zero fields take the defaults.
type Options struct {
	// Service is the name of the service in traces. OTEL_SERVICE_NAME wins.
	Service string
	// Endpoint is the URL of an OTLP collector over HTTP. Empty means that of
	// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT in the
	// environment; without any there are no traces. The other variables of the
	// OpenTelemetry specification count as well.
	Endpoint string
	// Topics bounds the topics that metrics tell apart.
	Topics int
	// Wait bounds what a scrape waits for one source.
	Wait time.Duration
	// Logger takes what goes wrong. Nil discards it.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Service == "" {
		opts.Service = DefaultService
	}
	if opts.Topics <= 0 {
		opts.Topics = DefaultTopics
	}
	if opts.Wait <= 0 {
		opts.Wait = DefaultWait
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return opts
}

// Telemetry is the metrics and traces of a process, until Shutdown. It is safe
// for concurrent use.
type Telemetry struct {
	o        Options
	registry *prometheus.Registry
	m        measures
	topics   *labels
	sources  *sources
	tracer   trace.Tracer // nil without traces
	flush    func(context.Context) error
}

// New returns a telemetry, which looks at nothing yet. It dials nobody. Errors:
// an endpoint for traces that is none.
func New(ctx context.Context, o *Options) (*Telemetry, error) {
	t := &Telemetry{o: o.orDefaults(), registry: prometheus.NewRegistry(), flush: func(context.Context) error { return nil }}
	t.topics = newLabels(t.o.Topics)
	t.m = newMeasures()
	t.sources = newSources(t.o.Wait, t.m.scrapeFailures)
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts(buildInfo.opts()), buildInfo.labels)
	info.WithLabelValues(version.Number()).Set(1)
	errs := []error{
		t.registry.Register(info), t.registry.Register(t.sources),
		t.registry.Register(collectors.NewGoCollector()), t.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	}
	for _, c := range t.m.collectors() {
		errs = append(errs, t.registry.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("start telemetry: %w", err)
	}
	if endpoint(t.o, os.Getenv) {
		if err := t.trace(ctx); err != nil {
			return nil, fmt.Errorf("start telemetry: %w", err)
		}
	}
	return t, nil
}

// Handler serves the metrics. What it says is not for everybody: it names
// topics.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapes, Timeout: scrapeTime,
		ErrorLog: slog.NewLogLogger(t.o.Logger.Handler(), slog.LevelWarn),
	})
}

// Tracing reports whether there is somewhere to send traces.
func (t *Telemetry) Tracing() bool { return t.tracer != nil }

// Shutdown sends what is left of the traces, within the time of ctx.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, DefaultFlush)
	defer cancel()
	if err := t.flush(ctx); err != nil {
		return fmt.Errorf("flush traces: %w", err)
	}
	return nil
}

// measures are the metrics that grow as things happen.
type measures struct {
	publish, store, delivery       *prometheus.HistogramVec
	published, repeated, rings     *prometheus.CounterVec
	scrapeFailures, exportFailures *prometheus.CounterVec
	channel                        *channelMeasures
}

func newMeasures() measures {
	return measures{
		publish: publishSeconds.histograms(buckets()), store: storeSeconds.histograms(buckets()), delivery: deliverySeconds.histograms(buckets()),
		published: publishedEvents.counters(), repeated: repeatedEvents.counters(), rings: busRings.counters(),
		scrapeFailures: scrapeFailures.counters(), exportFailures: exportFailures.counters(),
		channel: newChannelMeasures(),
	}
}

func (m measures) collectors() []prometheus.Collector {
	all := []prometheus.Collector{m.publish, m.store, m.delivery, m.published, m.repeated, m.rings, m.scrapeFailures, m.exportFailures}
	return append(all, m.channel.collectors()...)
}
