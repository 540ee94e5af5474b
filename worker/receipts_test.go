package worker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

// AMB-18: the host says of each result that it has it, once its caller does, to a
// worker that knows what that means; of a call whose id is the caller's, when the
// caller says so. What a worker no longer keeps is an unknown outcome.
func TestHostReceipts(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.1.0", worker.ChannelVersion} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(nil, nil)
				defer r.close()
				s := mustCreate(t, r, "s1")
				p := dialPeer(t, r, "s1")
				must(t, p.Serve("s1", version, "i", 0, "exec", "file"))
				must(t, s.Running(t.Context()))
				result := make(chan error, 1)
				var receipts []string
				until := func(ok func(workertest.Message) bool) workertest.Message {
					for {
						m, err := p.Read()
						must(t, err)
						if ok(m) {
							return m
						}
						if m.Method == "notifications/agentfy/received" {
							receipts = append(receipts, string(m.Params))
						}
					}
				}
				call := func(answer string, o *worker.CallOptions) error {
					go func() {
						_, err := s.CallTool(t.Context(), "exec", nil, o)
						result <- err
					}()
					m := until(func(m workertest.Message) bool { return m.Method == "tools/call" })
					must(t, p.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, answer)))
					return <-result
				}
				const fine = `"result":{"content":[]}`
				must(t, call(fine, &worker.CallOptions{ID: "mine"}))
				must(t, call(fine, nil))
				s.Received("mine")
				gone := call(`"error":{"code":-32006,"message":"RESULT_GONE"}`, &worker.CallOptions{ID: "again"})
				if !errors.Is(gone, worker.ErrUnknownOutcome) {
					t.Errorf("a result that is gone: %v", gone)
				}
				must(t, p.Send(`{"jsonrpc":"2.0","id":99,"method":"ping"}`)) // what it says ends with the answer
				until(func(m workertest.Message) bool { return string(m.ID) == "99" })
				_ = p.WS.CloseNow()
				got := strings.Join(receipts, "")
				if version == "1.1.0" && got != "" || version != "1.1.0" && (len(receipts) != 2 || !strings.Contains(receipts[0], `["c2-`) || receipts[1] != `{"callIds":["mine"]}`) {
					t.Errorf("receipts %s", got)
				}
			})
		})
	}
}

// AMB-18: a call that is repeated after its result was received does not run again;
// the worker says so in the terms of the version that both speak.
func TestWorkerForgetsReceived(t *testing.T) {
	t.Parallel()
	for version, code := range map[string]int{"1.1.0": -32603, worker.ChannelVersion: -32006} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newScripted()
				defer r.close()
				box := newToolbox()
				p := r.start("s1", box.server, nil)
				h := <-r.peers
				must(t, h.HostOf("s1", version))
				call := func(id int, callID string) {
					must(t, h.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"exec","arguments":{"say":"x"},"_meta":{"agentfy":{"callId":%q}}}}`, id, callID)))
				}
				answer := func(id string) string {
					t.Helper()
					for {
						m, err := h.Read()
						must(t, err)
						if m.Method == "" && (string(m.ID) == id || string(m.ID) == "null") {
							return m.Raw
						}
					}
				}
				for i := range 66 { // two more than are kept
					call(100+i, fmt.Sprint("c", i))
					_ = answer(jsontext.Int(int64(100 + i)).String())
				}
				call(7, "c0")
				if got := answer("7"); !strings.Contains(got, fmt.Sprintf(`"code":%d`, code)) {
					t.Errorf("pushed out: %s", got)
				}
				must(t, h.Send(`{"jsonrpc":"2.0","method":"notifications/agentfy/received","params":{"callIds":["c65","c64"]}}`))
				if version == "1.1.0" {
					if got := answer("null"); !strings.Contains(got, "-32001") {
						t.Errorf("receipts that were not promised: %s", got)
					}
				}
				call(8, "c65")
				got := answer("8")
				if version == "1.1.0" && !strings.Contains(got, `"text":"x"`) || version != "1.1.0" && !strings.Contains(got, "-32006") {
					t.Errorf("received: %s", got)
				}
				if n := box.started.Load(); n != 66 {
					t.Errorf("%d runs", n)
				}
				_ = h.WS.Close(4005, "")
				p.wait()
			})
		})
	}
}
