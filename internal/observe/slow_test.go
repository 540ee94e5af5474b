package observe_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/internal/observe"
)

// A request without an answer is told once, unless it asks for a stream; one
// that is answered in time, or whose connection ends, is not.
//
//
func TestSlowRequests(t *testing.T) {
	t.Parallel()
	const after = 10 * time.Second
	ask := func(id int, method string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`+"\n", id, method)
	}
	for name, tc := range map[string]struct {
		play func(p *observe.Pipe)
		want int32
	}{
		"hangs":    {func(p *observe.Pipe) { p.Client([]byte(ask(1, "initialize"))) }, 1},
		"two hang": {func(p *observe.Pipe) { p.Client([]byte(ask(1, "initialize") + ask(2, "ping"))) }, 2},
		"same id":  {func(p *observe.Pipe) { p.Client([]byte(ask(1, "initialize") + ask(1, "ping"))) }, 1},
		"a stream": {func(p *observe.Pipe) { p.Client([]byte(ask(1, "subscriptions/listen"))) }, 0},
		"a notice": {func(p *observe.Pipe) { p.Client([]byte(`{"jsonrpc":"2.0","method":"x"}` + "\n")) }, 0},
		"answered": {func(p *observe.Pipe) {
			p.Client([]byte(ask(1, "initialize")))
			time.Sleep(after - 1)
			p.Server([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n"))
		}, 0},
		"refused": {func(p *observe.Pipe) {
			p.Client([]byte(ask(1, "initialize")))
			p.Server([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":1}}` + "\n"))
		}, 0},
		"went away": {func(p *observe.Pipe) { p.Client([]byte(ask(1, "initialize"))); p.Close() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var slow atomic.Int32
				o := observe.New((&seen{}).sink, &observe.Options{Server: "m", Slow: func() { slow.Add(1) }, SlowAfter: after})
				defer o.Close()
				tc.play(o.Pipe("1"))
				time.Sleep(3 * after)
				if got := slow.Load(); got != tc.want {
					t.Errorf("told %d times, want %d", got, tc.want)
				}
			})
		})
	}
}
