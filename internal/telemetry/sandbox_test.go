package telemetry

import (
	"testing"
	"time"

	"github.com/ossicle/ossicle/worker"
)

// Each thing that a host tells of the channel is in the metric that names it, and
// a close code that a worker made up is no label.
func TestChannelMetrics(t *testing.T) {
	t.Parallel()
	tel := newTelemetry(t, nil)
	if _, there := scrape(t, tel)[sandboxBroken.name]; there {
		t.Error("a process without a gateway has metrics of one")
	}
	tel.Sandboxes(func() map[string]int { return map[string]int{"running": 3, "detached": 1} })
	if value(t, scrape(t, tel), sandboxBroken) != 0 || value(t, scrape(t, tel), sandboxHandshakes) != 0 {
		t.Error("counters do not begin at zero")
	}
	for _, o := range []worker.Observation{
		{Kind: worker.ObservedHandshake, Duration: time.Second},
		{Kind: worker.ObservedHandshake, Duration: time.Second, Again: true},
		{Kind: worker.ObservedBack, Duration: 50 * time.Second},
		{Kind: worker.ObservedBeat, Duration: time.Millisecond},
		{Kind: worker.ObservedBroken},
		{Kind: worker.ObservedClosed, Code: worker.CloseSuperseded, Ours: true},
		{Kind: worker.ObservedClosed, Code: worker.CloseReleased},
		{Kind: worker.ObservedClosed, Code: 1006},
		{Kind: worker.ObservedClosed, Code: 4711},
		{Kind: worker.ObservedClosed, Code: 3999},
		{Kind: worker.ObservedEnded, Reported: true, Flushed: true},
		{Kind: worker.ObservedEnded, Reported: true},
		{Kind: worker.ObservedEnded},
		{Kind: worker.ObservedEnded, Failure: worker.FailureHeartbeat},
	} {
		tel.ObserveChannel(o)
	}
	got := scrape(t, tel)
	for _, tc := range []struct {
		m      metric
		want   float64
		labels []string
	}{
		{sandboxSessions, 3, []string{"state=running"}},
		{sandboxSessions, 1, []string{"state=detached"}},
		{sandboxHandshakes, 2, nil},
		{sandboxReconnects, 1, nil},
		{sandboxDetached, 1, nil},
		{sandboxBeatLag, 1, nil},
		{sandboxBroken, 1, nil},
		{sandboxSuperseded, 1, nil},
		{sandboxCloses, 1, []string{"by=host", "code=4009"}},
		{sandboxCloses, 1, []string{"by=worker", "code=4005"}},
		{sandboxCloses, 1, []string{"by=worker", "code=1006"}},
		{sandboxCloses, 2, []string{"by=worker", "code=other"}},
		{sandboxEnded, 3, []string{"outcome=released"}},
		{sandboxEnded, 1, []string{"outcome=heartbeat_lost"}},
		{sandboxFlush, 1, []string{"result=flushed"}},
		{sandboxFlush, 1, []string{"result=lost"}},
		{sandboxFlush, 1, []string{"result=unreported"}},
	} {
		if v := value(t, got, tc.m, tc.labels...); v != tc.want {
			t.Errorf("%s%v is %g, want %g", tc.m.name, tc.labels, v, tc.want)
		}
	}
}
