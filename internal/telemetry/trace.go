package telemetry

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/version"
)

const (
	// spanQueue bounds the spans that wait to be sent. When it is full the next
	// ones are dropped.
	spanQueue  = 2048
	tracesPath = "/v1/traces"
)

// endpoint reports whether there is somewhere to send traces.
func endpoint(o Options, getenv func(string) string) bool {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return o.Endpoint != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != ""
}

// trace starts the export of spans.
func (t *Telemetry) trace(ctx context.Context) error {
	var o []otlptracehttp.Option
	if t.o.Endpoint != "" {
		u, err := url.Parse(t.o.Endpoint)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return errors.New("the endpoint for traces is not understood; write http://host:4318")
		}
		if strings.Trim(u.Path, "/") == "" {
			u.Path = tracesPath
		}
		o = append(o, otlptracehttp.WithEndpointURL(u.String()))
	}
	exporter, err := otlptracehttp.New(ctx, o...)
	if err != nil {
		return err
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", t.o.Service), attribute.String("service.version", version.Number())),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return errors.Join(err, exporter.Shutdown(ctx))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(about),
		sdktrace.WithBatcher(&reporting{exporter, t}, sdktrace.WithMaxQueueSize(spanQueue)))
	t.tracer = provider.Tracer("github.com/ossicle/ossicle")
	t.flush = provider.Shutdown
	return nil
}

// reporting says what became of an export to our log and metrics: the SDK would
// tell its own, which is global and writes to standard error.
type reporting struct {
	sdktrace.SpanExporter

	t *Telemetry
}

// ExportSpans implements sdktrace.SpanExporter.
func (r *reporting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := r.SpanExporter.ExportSpans(ctx, spans); err != nil {
		r.t.m.exportFailures.WithLabelValues().Inc()
		r.t.o.Logger.WarnContext(ctx, "traces cannot be exported", logattr.Err(err), logattr.Count(len(spans)))
	}
	return nil
}

// Middleware makes a span of every POST that next serves, under the one that the
// client names by W3C traceparent. Without traces it returns next as it is.
func (t *Telemetry) Middleware(next http.Handler) http.Handler {
	if t.tracer == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		name := r.Pattern // the route, not the path, of which there may be any number
		if name == "" {
			name = http.MethodPost
		}
		ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("http.request.method", r.Method), attribute.String("http.route", name)))
		defer span.End()
		seen := &statusWriter{ResponseWriter: w}
		next.ServeHTTP(seen, r.WithContext(ctx))
		if seen.status == 0 {
			seen.status = http.StatusOK
		}
		span.SetAttributes(attribute.Int("http.response.status_code", seen.status))
		if seen.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	})
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter

	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
