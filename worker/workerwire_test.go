package worker_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

// scripted is a host that a test plays.
type scripted struct {
	*rig
	peers <-chan *workertest.Peer
}

func newScripted() *scripted {
	h, peers := workertest.Hosts()
	return &scripted{serveHandler(h), peers}
}

func serveHandler(h http.Handler) *rig {
	r := &rig{net: workertest.NewNet(), served: make(chan struct{})}
	r.host = worker.NewHost(tokens{}, nil, nil)
	r.server = &http.Server{Handler: h}
	go func() {
		defer close(r.served)
		_ = r.server.Serve(r.net)
	}()
	return r
}

// ERR-1, REL-8, RDY-2: calls before ready and after a release are refused with
// -32005, and the executors never see them.
func TestCallsOutsideRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newScripted()
		defer r.close()
		box := newToolbox()
		built, flush := make(chan struct{}), make(chan struct{})
		p := r.start("s1", box.server, func(_ *worker.Environment, o *worker.Options) {
			o.Executors.Prepare = func(context.Context) error { <-built; return nil }
			o.Executors.Flush = func(context.Context) (worker.Report, error) {
				<-flush
				return worker.Report{OutputsFlushed: true}, nil
			}
		})
		h := <-r.peers
		ask := func(what, text string, code int) {
			t.Helper()
			must(t, h.Send(text))
			for {
				m, err := h.Read()
				must(t, err)
				if m.Method != "" {
					continue
				}
				if m.Code() != code {
					t.Errorf("%s: %s", what, m.Raw)
				}
				return
			}
		}
		call := `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"exec","arguments":{}}}`
		ask("call before initialize", call, -32005)
		ask("list before initialize", `{"jsonrpc":"2.0","id":8,"method":"tools/list"}`, -32005)
		ask("release before initialize", `{"jsonrpc":"2.0","id":8,"method":"agentfy/release","params":{"sessionId":"s1","reason":"idle","graceSeconds":1}}`, -32005)
		ask("initialize", workertest.Initialize("s1", worker.ChannelVersion), 0)
		ask("second initialize", workertest.Initialize("s1", worker.ChannelVersion), -32600)
		must(t, h.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		ask("call before ready", call, -32005)
		close(built)
		ready, err := h.Until("notifications/agentfy/ready")
		must(t, err)
		if !strings.Contains(ready.Raw, `"tools":["exec","file"]`) { // RDY-3
			t.Errorf("ready is %s", ready.Raw)
		}
		ask("call before tools/list", call, -32005)
		must(t, h.Send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`))
		list, err := h.Until("")
		must(t, err)
		for _, field := range []string{"ttlMs", "cacheScope", "resultType"} { // INI-13
			if strings.Contains(list.Raw, field) {
				t.Errorf("tools/list has %s, which nobody promised: %s", field, list.Raw)
			}
		}
		ask("call", call, 0)
		if n := box.started.Load(); n != 1 {
			t.Errorf("the executors saw %d calls", n)
		}
		ask("unknown method", `{"jsonrpc":"2.0","id":3,"method":"no/such"}`, -32601)
		ask("unknown own method", `{"jsonrpc":"2.0","id":3,"method":"agentfy/done"}`, -32001) // SCO-6, VER-5
		ask("unknown own notification", `{"jsonrpc":"2.0","method":"notifications/agentfy/done"}`, -32001)
		ask("release of another session", `{"jsonrpc":"2.0","id":4,"method":"agentfy/release","params":{"sessionId":"s2","reason":"idle","graceSeconds":1}}`, -32002)
		ask("release of another shape", `{"jsonrpc":"2.0","id":4,"method":"agentfy/release","params":{"sessionId":"s1","reason":"bored","graceSeconds":1}}`, -32001)
		must(t, h.Send(`{"jsonrpc":"2.0","id":5,"method":"agentfy/release","params":{"sessionId":"s1","reason":"idle","graceSeconds":30}}`))
		ask("call after release", call, -32005)
		close(flush)
		report, err := h.Until("")
		must(t, err)
		if want := `{"jsonrpc":"2.0","id":5,"result":{"accepted":true,"outputsFlushed":true,"outputs":[]}}`; report.Raw != want {
			t.Errorf("report %s", report.Raw)
		}
		if end := h.End(); end.Code != worker.CloseReleased {
			t.Error(end)
		}
		if exit := p.wait(); exit.Code != worker.ExitReleased {
			t.Errorf("%+v", exit)
		}
	})
}

// INI-9, HB-1, HB-2, ONE-2, ONE-3: the frames of the worker, and one instance
// over all attempts.
func TestWorkerTranscript(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newScripted()
		defer r.close()
		p := r.start("s1", newToolbox().server, nil)
		instance := ""
		for attempt := range 3 {
			h := <-r.peers
			must(t, h.Send(workertest.Initialize("s1", "1.0.0")))
			m, err := h.Read()
			must(t, err)
			if attempt == 0 {
				_, rest, _ := strings.Cut(m.Raw, `"instanceId":"`)
				instance, _, _ = strings.Cut(rest, `"`)
			}
			want := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","serverInfo":{"name":"agentfy-worker","version":"img:2"},"capabilities":{"tools":{"listChanged":true},"logging":{}},"_meta":{"agentfy":{"sessionId":"s1","channelVersion":%q,"instanceId":%q,"attempt":%d}}}}`, worker.ChannelVersion, instance, attempt)
			if m.Raw != want || instance == "" {
				t.Errorf("attempt %d: %s", attempt, m.Raw)
			}
			if attempt < 2 {
				_ = h.WS.CloseNow()
				continue
			}
			must(t, h.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
			_, err = h.Until("notifications/agentfy/ready")
			must(t, err)
			must(t, h.Send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`))
			beat, err := h.Until("agentfy/heartbeat")
			must(t, err)
			// VER-3: the effective version, not its own.
			if !strings.Contains(beat.Raw, `"channelVersion":"1.0.0"`) || !strings.Contains(beat.Raw, `"idleSeconds":0`) {
				t.Errorf("heartbeat %s", beat.Raw)
			}
			must(t, h.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"continue":true,"idleBudgetSeconds":90,"execBudgetSeconds":900}}`, beat.ID)))
			before := time.Now()
			beat, err = h.Until("agentfy/heartbeat")
			must(t, err)
			if took := time.Since(before); took != 10*time.Second || !strings.Contains(beat.Raw, `"idleSeconds":10`) {
				t.Errorf("the next heartbeat after %v: %s", took, beat.Raw)
			}
			_ = h.WS.Close(4005, "")
		}
		if exit := p.wait(); exit.Code != worker.ExitReleased {
			t.Errorf("%+v", exit)
		}
	})
}

// CON-9, CON-10, CON-11: the worker counts too.
func TestWorkerCountsBrokenFrames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newScripted()
		defer r.close()
		p := r.start("s1", newToolbox().server, nil)
		h := <-r.peers
		must(t, h.Host("s1"))
		for range worker.MaxBroken {
			must(t, h.Send(`{"jsonrpc":"2.0"}`))
		}
		answers := 0
		for {
			m, err := h.Read()
			if err != nil {
				var end workertest.Closed
				if !errors.As(err, &end) || end.Code != worker.CloseBadFrames {
					t.Error(err)
				}
				break
			}
			if m.Code() == -32600 {
				answers++
			}
		}
		if exit := p.wait(); exit.Code != worker.ExitConfig || answers != worker.MaxBroken {
			t.Errorf("%+v after %d answers", exit, answers)
		}
	})
}

// SG-4, SG-5: place 3 alone: a tool that samples gets an error, nothing of it
// leaves, and the channel goes on.
func TestWorkerBlocksRequestsOfTools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newScripted()
		defer r.close()
		p := r.start("s1", newToolbox().server, nil)
		h := <-r.peers
		must(t, h.Host("s1"))
		for _, args := range []string{`{"sample":true}`, `{"say":"still here"}`} {
			must(t, h.Send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"exec","arguments":`+args+`}}`))
			for {
				m, err := h.Read()
				must(t, err)
				if strings.Contains(m.Method, "sampling") {
					t.Fatalf("a request left the sandbox: %s", m.Raw)
				}
				if string(m.ID) != "7" || m.Method != "" {
					continue
				}
				if sampled := strings.Contains(args, "sample"); sampled != strings.Contains(m.Raw, `"isError":true`) {
					t.Errorf("%s: %s", args, m.Raw)
				}
				break
			}
		}
		_ = h.WS.Close(4005, "")
		p.wait()
	})
}

// Calls with an id: repeated while it runs it joins, repeated after it is
// answered from memory, with other arguments it is refused; the tool ran once
// (AMB-18).
func TestWorkerJoinsRepeatedCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newScripted()
		defer r.close()
		box := newToolbox()
		p := r.start("s1", box.server, nil)
		h := <-r.peers
		must(t, h.Host("s1"))
		call := func(id int, args string) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"exec","arguments":%s,"_meta":{"agentfy":{"callId":"c1"}}}}`, id, args)
		}
		must(t, h.Send(call(3, `{"say":"once","sleep":5}`)))
		synctest.Wait()
		_ = h.WS.CloseNow()
		h = <-r.peers
		must(t, h.Host("s1"))
		must(t, h.Send(call(4, `{"say":"once","sleep":5}`)))
		answer := func(id string) workertest.Message {
			t.Helper()
			for {
				m, err := h.Read()
				must(t, err)
				if m.Method == "" && string(m.ID) == id {
					return m
				}
			}
		}
		if m := answer("4"); !strings.Contains(m.Raw, "once") {
			t.Errorf("joined: %s", m.Raw)
		}
		must(t, h.Send(call(5, `{"say":"once","sleep":5}`)))
		if m := answer("5"); !strings.Contains(m.Raw, "once") {
			t.Errorf("replayed: %s", m.Raw)
		}
		must(t, h.Send(call(6, `{"say":"twice"}`)))
		if m := answer("6"); m.Code() != -32602 {
			t.Errorf("other arguments: %s", m.Raw)
		}
		if n := box.started.Load(); n != 1 {
			t.Errorf("the tool ran %d times", n)
		}
		_ = h.WS.Close(4005, "")
		p.wait()
	})
}

// A cancellation by the id of the wire reaches the tool.
func TestWorkerCancelsCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newScripted()
		defer r.close()
		box := newToolbox()
		p := r.start("s1", box.server, nil)
		h := <-r.peers
		must(t, h.Host("s1"))
		must(t, h.Send(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"exec","arguments":{"sleep":60}}}`))
		synctest.Wait()
		must(t, h.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`))
		synctest.Wait()
		if n := box.stopped.Load(); n != 1 {
			t.Errorf("%d calls stopped", n)
		}
		_ = h.WS.Close(4005, "")
		p.wait()
	})
}

// CON-5, EX-3, EX-4, VER-1, VER-7, VER-9: what HTTP answers mean to the worker,
// with both versions in the reason of a version refusal.
func TestDialAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		header http.Header
		exit   worker.ExitCode
		dials  bool // more than once
		says   string
	}{
		"401":         {status: 401, exit: worker.ExitNoPerm},
		"403":         {status: 403, exit: worker.ExitNoPerm},
		"426":         {status: 426, header: http.Header{"Sec-Websocket-Protocol": {"agentfy.worker.v3, agentfy.worker.v2"}}, exit: worker.ExitConfig, says: "agentfy.worker.v2"},
		"426 proxy":   {status: 426, exit: worker.ExitTempFail, dials: true},
		"302":         {status: 302, header: http.Header{"Location": {"http://elsewhere/"}}, exit: worker.ExitConfig},
		"404":         {status: 404, exit: worker.ExitConfig},
		"400":         {status: 400, exit: worker.ExitConfig},
		"200":         {status: 200, exit: worker.ExitConfig},
		"503":         {status: 503, header: http.Header{"Retry-After": {"7"}}, exit: worker.ExitTempFail, dials: true},
		"500":         {status: 500, exit: worker.ExitTempFail, dials: true},
		"429":         {status: 429, exit: worker.ExitTempFail, dials: true},
		"408":         {status: 408, exit: worker.ExitTempFail, dials: true},
		"425":         {status: 425, exit: worker.ExitTempFail, dials: true},
		"no protocol": {status: 101, exit: worker.ExitConfig, says: worker.Subprotocol},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int64
				r := serveHandler(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
					requests.Add(1)
					if q.Header.Get("Authorization") != "Bearer t-s1" || q.Header.Get("Sec-WebSocket-Protocol") != worker.Subprotocol {
						t.Errorf("headers %v", q.Header)
					}
					if c.status == 101 {
						ws, err := websocket.Accept(w, q, &websocket.AcceptOptions{Subprotocols: []string{"other"}})
						if err == nil {
							_, _, _ = ws.Read(q.Context())
						}
						return
					}
					maps.Copy(w.Header(), c.header)
					w.WriteHeader(c.status)
				}))
				defer r.close()
				begun := time.Now()
				exit := r.start("s1", newToolbox().server, nil).wait()
				if exit.Code != c.exit || (requests.Load() > 1) != c.dials || !strings.Contains(exit.Reason, c.says) {
					t.Errorf("%+v after %d requests", exit, requests.Load())
				}
				if c.says != "" && !strings.Contains(exit.Reason, worker.Subprotocol) {
					t.Errorf("the reason lacks a version: %s", exit.Reason)
				}
				// EX-5, DL-9: silence ends with the window and never as disagreement.
				if took := time.Since(begun); c.dials && took != 60*time.Second {
					t.Errorf("gave up after %v", took)
				}
				if name == "503" && requests.Load() > 9 {
					t.Errorf("%d requests although the host asked for 7 s", requests.Load())
				}
			})
		})
	}
}

// A host whose initialize shares a segment with its 101 (AMB-37).
func TestInitializeInOneSegmentWithUpgrade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := workertest.NewNet()
		defer n.Close()
		r := &rig{net: n}
		p := r.start("s1", newToolbox().server, nil)
		c, err := n.Accept()
		must(t, err)
		br := bufio.NewReader(c)
		req, err := http.ReadRequest(br)
		must(t, err)
		sum := sha1.Sum([]byte(req.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		text := workertest.Initialize("s1", worker.ChannelVersion)
		frame := append([]byte{0x81, 126, byte(len(text) >> 8), byte(len(text))}, text...)
		upgrade := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: " + worker.Subprotocol +
			"\r\nSec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n"
		begun := time.Now()
		_, err = c.Write(append([]byte(upgrade), frame...))
		must(t, err)
		if _, err := br.Peek(2); err != nil || time.Since(begun) != 0 {
			t.Errorf("no answer at once: %v after %v", err, time.Since(begun))
		}
		_ = c.Close()
		p.stop()
		p.wait()
	})
}

// ENV-5, IDN-2: SESSION_ID is echoed; a token that cannot be read ends with 78
// and never shows the token.
func TestWorkerWithoutToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newScripted()
		defer r.close()
		exit := r.start("s1", newToolbox().server, func(e *worker.Environment, _ *worker.Options) {
			e.Token = func() (string, error) { return "", &worker.ConfigError{Reason: "no token"} }
		}).wait()
		if exit.Code != worker.ExitConfig || r.net.Dials() != 0 {
			t.Errorf("%+v after %d dials", exit, r.net.Dials())
		}
	})
}

// Tools that ignore their end do not keep the process.
func TestStubbornTool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newScripted()
		defer r.close()
		server := mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil)
		release := make(chan struct{})
		mcp.AddTool(server, &mcp.Tool{Name: "exec"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			<-release
			return &mcp.CallToolResult{}, nil, nil
		})
		p := r.start("s1", server, nil)
		h := <-r.peers
		must(t, h.Host("s1"))
		must(t, h.Send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"exec","arguments":{}}}`))
		synctest.Wait()
		p.stop() // as SIGTERM
		if end := h.End(); end.Code != 1001 {
			t.Error(end)
		}
		if exit := p.wait(); exit.Code != worker.ExitTempFail {
			t.Errorf("%+v", exit)
		}
		close(release)
	})
}

// A control URL of a Unix socket, which is how a sandbox without a network
// reaches its host.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", dir+"/gw.sock")
	must(t, err)
	host := worker.NewHost(tokens{}, nil, nil)
	defer host.Close()
	mux := http.NewServeMux()
	mux.Handle(worker.DialPath, host) // and nothing else: the path of the URL is the socket's
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	s, err := host.Create(t.Context(), "s1", worker.Light())
	must(t, err)
	e := env("s1")
	e.ControlURL = "unix://" + dir + "/gw.sock"
	done := make(chan worker.Exit, 1)
	go func() { done <- worker.New(newToolbox().server, e, nil).Run(context.WithoutCancel(t.Context())) }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must(t, s.Running(ctx))
	if _, err := s.Release(ctx, worker.ReasonExplicit); err != nil {
		t.Fatal(err)
	}
	if exit := <-done; exit.Code != worker.ExitReleased {
		t.Errorf("%+v", exit)
	}
}
