package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/ossicle/ossicle/feed"
)

// Publisher measures a publisher: how long it takes, and what came of it.
func (t *Telemetry) Publisher(next feed.Publisher) feed.Publisher { return &publisher{t, next} }

type publisher struct {
	t    *Telemetry
	next feed.Publisher
}

// Publish implements feed.Publisher.
func (p *publisher) Publish(ctx context.Context, drafts []feed.Draft) ([]feed.Receipt, error) {
	end := func(error) {}
	if p.t.tracer != nil {
		ctx, end = p.t.span(ctx, "feed publish", trace.SpanKindProducer,
			attribute.String("messaging.system", "ossicle"), attribute.String("messaging.operation.type", "send"),
			attribute.String("messaging.destination.name", p.t.destination(drafts)), attribute.Int("messaging.batch.message_count", len(drafts)))
	}
	begun := time.Now()
	receipts, err := p.next.Publish(ctx, drafts)
	p.t.m.publish.WithLabelValues(outcome(err)).Observe(time.Since(begun).Seconds())
	end(err)
	if err == nil {
		p.t.count(drafts, receipts)
	}
	return receipts, err
}

// destination is the topic of drafts that have one in common.
func (t *Telemetry) destination(drafts []feed.Draft) string {
	for _, d := range drafts {
		if d.Topic != drafts[0].Topic {
			return "several"
		}
	}
	if len(drafts) == 0 || feed.CheckTopic(drafts[0].Topic) != nil {
		return "none"
	}
	return t.topics.of(drafts[0].Topic)
}

func (t *Telemetry) count(drafts []feed.Draft, receipts []feed.Receipt) {
	for i, r := range receipts {
		switch {
		case r.Repeated:
			t.m.repeated.WithLabelValues().Inc()
		case i < len(drafts):
			t.m.published.WithLabelValues(t.topics.of(drafts[i].Topic)).Inc()
		}
	}
}

// outcome tells the publisher's faults from ours.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	var invalid *feed.InvalidError
	var batch *feed.BatchError
	var full *feed.TopicsError
	if errors.As(err, &invalid) || errors.As(err, &batch) || errors.As(err, &full) {
		return "refused"
	}
	return "failed"
}

// Store measures a store. Its spans are parts of others: what happens on its own
// account, such as reading the log on, makes none.
func (t *Telemetry) Store(next feed.Store) feed.Store { return &store{t, next} }

type store struct {
	t    *Telemetry
	next feed.Store
}

// timed times a call.
func timed[T any](ctx context.Context, s *store, operation string, call func(ctx context.Context) (T, error)) (T, error) {
	end := func(error) {}
	if s.t.tracer != nil && trace.SpanFromContext(ctx).IsRecording() {
		ctx, end = s.t.span(ctx, "feed store "+operation, trace.SpanKindInternal)
	}
	begun := time.Now()
	v, err := call(ctx)
	result := "ok"
	if err != nil {
		result = "failed"
	}
	s.t.m.store.WithLabelValues(operation, result).Observe(time.Since(begun).Seconds())
	end(err)
	return v, err
}

// Append implements feed.Store.
func (s *store) Append(ctx context.Context, drafts []feed.Draft) ([]feed.Receipt, error) {
	return timed(ctx, s, "append", func(ctx context.Context) ([]feed.Receipt, error) { return s.next.Append(ctx, drafts) })
}

// Read implements feed.Store.
func (s *store) Read(ctx context.Context, q feed.Query) (feed.Page, error) {
	return timed(ctx, s, "read", func(ctx context.Context) (feed.Page, error) { return s.next.Read(ctx, q) })
}

// Topics implements feed.Store.
func (s *store) Topics(ctx context.Context) ([]feed.Topic, error) {
	return timed(ctx, s, "topics", s.next.Topics)
}

// Trim implements feed.Store.
func (s *store) Trim(ctx context.Context, topic string, keep feed.Retention) (bool, error) {
	return timed(ctx, s, "trim", func(ctx context.Context) (bool, error) { return s.next.Trim(ctx, topic, keep) })
}

// Forget implements feed.Store.
func (s *store) Forget(ctx context.Context, spare []string, empty time.Duration) (time.Duration, error) {
	return timed(ctx, s, "forget", func(ctx context.Context) (time.Duration, error) { return s.next.Forget(ctx, spare, empty) })
}

// Bus counts the rings of a bus. If the bus is Ailing, the metrics tell its
// state together with what the hub says of it.
func (t *Telemetry) Bus(next feed.Bus) feed.Bus {
	ailing, _ := next.(Ailing)
	t.sources.mu.Lock()
	defer t.sources.mu.Unlock()
	t.sources.bus = ailing
	return &bus{t, next}
}

type bus struct {
	t    *Telemetry
	next feed.Bus
}

// Ring implements feed.Bus.
func (b *bus) Ring(ctx context.Context, p feed.Position) error {
	err := b.next.Ring(ctx, p)
	kind := "sent"
	if err != nil {
		kind = "failed"
	}
	b.t.m.rings.WithLabelValues(kind).Inc()
	return err
}

// Listen implements feed.Bus.
func (b *bus) Listen(ctx context.Context, ring func()) error {
	heard := b.t.m.rings.WithLabelValues("heard")
	return b.next.Listen(ctx, func() {
		heard.Inc()
		ring()
	})
}

// Health implements Ailing; a bus that is not is well as far as it knows.
func (b *bus) Health() feed.Health {
	if a, ok := b.next.(Ailing); ok {
		return a.Health()
	}
	return feed.Health{}
}

// ObserveDelivery takes the latency of a delivery, for feedserver.Options.
func (t *Telemetry) ObserveDelivery(d time.Duration) {
	t.m.delivery.WithLabelValues().Observe(d.Seconds())
}

// span begins a span, where there are traces. Whoever gets end calls it.
func (t *Telemetry) span(ctx context.Context, name string, kind trace.SpanKind, attrs ...attribute.KeyValue) (_ context.Context, end func(error)) {
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
	return ctx, func(err error) {
		if err != nil {
			// The text of an error may repeat what a publisher has sent.
			span.SetStatus(codes.Error, outcome(err))
		}
		span.End()
	}
}
