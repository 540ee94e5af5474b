package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// keptCall has a desk run one call of an id to its end, with a result of a size.
func keptCall(t *testing.T, d *desk, id string, size int, now time.Time) {
	t.Helper()
	f := frame{method: methodToolsCall, params: jsontext.Value(fmt.Sprintf(`{"name":"x","_meta":{"agentfy":{"callId":%q}}}`, id))}
	if got, _ := d.request(waiter{1, jsontext.Value("1")}, f, now); got != admitted {
		t.Fatalf("call %s: %d", id, got)
	}
	m := (<-d.port.in).(*jsonrpc.Request)
	if r := d.answered(&jsonrpc.Response{ID: m.ID, Result: make([]byte, size)}, now); r == nil {
		t.Fatal("the answer belongs to nothing")
	}
}

// Results are kept for a host that repeats a call, within three bounds: their
// number, their bytes, and their time. The oldest go first.
func TestKeptResults(t *testing.T) {
	t.Parallel()
	now := simStart
	newOne := func() *desk { return newDesk(newPort("s1", nil)) }
	kept := func(d *desk, id string) bool { d.expire(now); return d.calls[id] != nil }

	d := newOne()
	for i := range keepResults + 1 {
		keptCall(t, d, fmt.Sprint(i), 1, now)
	}
	if kept(d, "0") || !kept(d, "1") || len(d.kept) != keepResults || len(d.open) != 0 {
		t.Errorf("%d kept", len(d.kept))
	}
	d = newOne()
	for i := range 6 {
		keptCall(t, d, fmt.Sprint(i), 3<<20, now)
	}
	if kept(d, "0") || !kept(d, "1") || d.bytes > keepBytes {
		t.Errorf("%d bytes kept", d.bytes)
	}
	d.received([]string{"3", "nobody"})
	if kept(d, "3") || !kept(d, "4") || len(d.kept) != 4 || d.bytes != 4*3<<20 {
		t.Errorf("%d results, %d bytes kept after a receipt", len(d.kept), d.bytes)
	}
	now = now.Add(keepTime - time.Second)
	if !kept(d, "5") {
		t.Error("forgotten before its time")
	}
	if now = now.Add(time.Second); kept(d, "5") || d.bytes != 0 {
		t.Errorf("%d bytes kept after their time", d.bytes)
	}
}

// AMB-18: a call whose result is gone, for whichever reason, is not a new call when
// it is repeated. One that runs is not forgotten by a receipt.
func TestGoneResults(t *testing.T) {
	t.Parallel()
	now := simStart
	d := newDesk(newPort("s1", nil))
	repeat := func(id string) admission {
		f := frame{method: methodToolsCall, params: jsontext.Value(fmt.Sprintf(`{"name":"x","_meta":{"agentfy":{"callId":%q}}}`, id))}
		got, _ := d.request(waiter{2, jsontext.Value("9")}, f, now)
		return got
	}
	keptCall(t, d, "read", 1, now)
	d.received([]string{"read"})
	keptCall(t, d, "old", 1, now)
	now = now.Add(keepTime)
	for i := range keepResults + 1 {
		keptCall(t, d, fmt.Sprint(i), 1, now)
	}
	for _, id := range []string{"read", "old", "0"} {
		if got := repeat(id); got != forgotten {
			t.Errorf("call %s again: %d", id, got)
		}
	}
	if got := repeat("1"); got != replayed {
		t.Errorf("one that is kept: %d", got)
	}
	if repeat("new") != admitted {
		t.Error("a new call is not taken")
	}
	d.received([]string{"new"})
	if got := repeat("new"); got != joined {
		t.Errorf("one that runs: %d", got)
	}
	for i := range keepGone {
		keptCall(t, d, fmt.Sprint("x", i), 1, now)
	}
	if len(d.gone) != keepGone || len(d.buried) != keepGone {
		t.Errorf("%d ids remembered", len(d.gone))
	}
}
