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
	now = now.Add(keepTime - time.Second)
	if !kept(d, "5") {
		t.Error("forgotten before its time")
	}
	if now = now.Add(time.Second); kept(d, "5") || d.bytes != 0 {
		t.Errorf("%d bytes kept after their time", d.bytes)
	}
}
