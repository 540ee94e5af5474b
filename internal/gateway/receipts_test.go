package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

// AMB-18: a result that went through another gateway is acknowledged to the worker
// with the next call that goes there; one whose id is the caller's is not.
func TestReceiptsOfOtherGateways(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.join(t)
	token, err := f.tokens.Issue("s1", time.Hour)
	must(t, err)
	s, err := a.host.Create(t.Context(), "s1", worker.Light())
	must(t, err)
	ws, _, err := websocket.Dial(t.Context(), strings.Replace(a.server.URL, "http", "ws", 1)+gateway.WorkerPath, &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{worker.Subprotocol},
	})
	must(t, err)
	defer func() { _ = ws.CloseNow() }()
	p := &workertest.Peer{WS: ws}
	must(t, p.Serve("s1", worker.ChannelVersion, "i", 0, "exec", "file"))
	must(t, s.Running(patient(t)))
	var receipts []string
	for i, id := range []string{"", "mine", "", "mine too"} {
		done := make(chan error, 1)
		go func() {
			_, err := f.calls.CallRaw(patient(t), "s1", "exec", say(fmt.Sprint(i), 0), &worker.CallOptions{ID: id})
			done <- err
		}()
		for {
			m, err := p.Read()
			must(t, err)
			if m.Method == "notifications/agentfy/received" {
				receipts = append(receipts, string(m.Params))
			}
			if m.Method == "tools/call" {
				must(t, p.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)))
				break
			}
		}
		must(t, <-done)
	}
	if got := strings.Join(receipts, " "); len(receipts) != 2 || strings.Contains(got, "mine") || strings.Count(got, `","`) != 0 || receipts[0] == receipts[1] {
		t.Errorf("receipts %s", got)
	}
}
