// Package telemetry tells operators how the daemon does: metrics in the text
// format of Prometheus, and traces over OTLP when there is somewhere to send
// them. docs/reference/metrics.md lists the metrics.
//
// It looks at what the rooms count anyway, when it is asked, and measures times
// with decorators of their ports. Nothing of an event leaves the process this
// way but the name of its topic, and of those a bounded number. Without an
// endpoint for traces there is no tracer, and nothing that would cost time.
package telemetry
