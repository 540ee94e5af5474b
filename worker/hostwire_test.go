package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

func dialPeer(t *testing.T, r *rig, id string) *workertest.Peer {
	t.Helper()
	p, _, err := workertest.DialPeer(t.Context(), r.net, "t-"+id, worker.Subprotocol)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// CON-13, CON-4, VER-1: what an upgrade is answered, and that one
// without a token leaves no trace. Authentication comes before versions, so a
// probe learns nothing.
func TestUpgradeAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		mustCreate(t, r, "s1")
		over := mustCreate(t, r, "over")
		if _, err := over.Release(t.Context(), worker.ReasonExplicit); err != nil {
			t.Fatal(err)
		}
		before := len(r.audit.entries)
		for _, c := range []struct {
			token, proto string
			status       int
		}{
			{"bad", worker.Subprotocol, 401},
			{"", worker.Subprotocol, 401},
			{"bad", "agentfy.worker.v9", 401},
			{"t-over", worker.Subprotocol, 403},
			{"t-nobody", worker.Subprotocol, 403},
		} {
			_, resp, err := workertest.DialPeer(t.Context(), r.net, c.token, c.proto)
			if err == nil || resp.Status != c.status {
				t.Errorf("%+v: %v, %v", c, resp, err)
			}
			if err != nil && resp.Header.Get("WWW-Authenticate") != `Bearer realm="agentfy.worker"` {
				t.Errorf("%+v: nobody can tell who refuses: %v", c, resp.Header)
			}
		}
		post := httptest.NewRecorder()
		r.host.ServeHTTP(post, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/worker", nil))
		if post.Code != http.StatusMethodNotAllowed || post.Header().Get("Allow") != http.MethodGet {
			t.Errorf("POST: %d, Allow %q", post.Code, post.Header().Get("Allow"))
		}
		if n := len(r.audit.entries); n != before || len(r.host.Sessions()) != 1 {
			t.Errorf("refused upgrades left %d audit entries and %d sessions", n-before, len(r.host.Sessions()))
		}
		for _, protos := range [][]string{{"agentfy.worker.v2"}, {"other"}, nil} {
			id := fmt.Sprintf("v%d", len(protos))
			s := mustCreate(t, r, id+fmt.Sprint(protos))
			_, resp, err := workertest.DialPeer(t.Context(), r.net, "t-"+s.ID(), protos...)
			if err == nil || resp.Status != http.StatusUpgradeRequired || resp.Header.Get("Sec-WebSocket-Protocol") != worker.Subprotocol || resp.Header.Get("Upgrade") != "websocket" {
				t.Errorf("%v: %+v", protos, resp)
			}
			// VER-8: failed, with both versions on record.
			rec := s.Record()
			if rec.State != worker.StateFailed || rec.Failure != worker.FailureVersion || rec.Versions.Host != worker.Subprotocol || rec.Versions.Worker != strings.Join(protos, ", ") {
				t.Errorf("%v: %+v", protos, rec)
			}
		}
		p, resp, err := workertest.DialPeer(t.Context(), r.net, "t-s1", "agentfy.worker.v9", worker.Subprotocol)
		if err != nil || resp.Header.Get("Sec-WebSocket-Protocol") != worker.Subprotocol {
			t.Fatalf("%v %v", resp, err)
		}
		_ = p.WS.CloseNow()
	})
}

// INI-1, INI-10, CON-6: the host speaks first, at once, and its frames are the
// golden ones; tools/list comes after ready and not before.
func TestHostTranscript(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, func(o *worker.HostOptions) { o.Image = "api:7" })
		defer r.close()
		s := mustCreate(t, r, "ses_1")
		p := dialPeer(t, r, "ses_1")
		golden := func(name string, m workertest.Message) {
			t.Helper()
			want, err := os.ReadFile("testdata/frames/" + name + ".json")
			must(t, err)
			if strings.TrimSpace(string(want)) != m.Raw {
				t.Errorf("%s is %s", name, m.Raw)
			}
		}
		m, err := p.Read()
		must(t, err)
		golden("initialize", m)
		must(t, p.Send(workertest.Welcome(m.ID, "ses_1", "1.0.0", "i", 0)))
		m, err = p.Read()
		must(t, err)
		golden("initialized", m)
		must(t, p.Send(workertest.Ready("ses_1")))
		m, err = p.Read()
		must(t, err)
		golden("list", m)
		must(t, p.Send(workertest.Tools(m.ID, "exec", "file")))
		must(t, s.Running(t.Context()))
		must(t, p.Send(`{"jsonrpc":"2.0","id":42,"method":"agentfy/heartbeat","params":{"sessionId":"ses_1","idleSeconds":1,"execSeconds":2,"activeToolCalls":0,"workspaceBytes":5,"channelVersion":"1.0.0","later":true}}`))
		m, err = p.Read()
		must(t, err)
		golden("heartbeat_answer", m)
		go func() { _, _ = s.Release(t.Context(), worker.ReasonIdle) }()
		m, err = p.Read()
		must(t, err)
		if want := `{"jsonrpc":"2.0","id":3,"method":"agentfy/release","params":{"sessionId":"ses_1","reason":"idle","graceSeconds":30}}`; m.Raw != want {
			t.Errorf("release is %s", m.Raw)
		}
		must(t, p.Send(`{"jsonrpc":"2.0","id":3,"result":{"accepted":true,"outputsFlushed":true,"outputs":[{"type":"resource_link","uri":"store://art_88"}]}}`))
		if end := p.End(); end.Code != worker.CloseReleased {
			t.Errorf("a worker that does not close: %v", end)
		}
		if rec := s.Record(); !rec.OutputsFlushed || len(rec.Outputs) != 1 || rec.Outputs[0].URI != "store://art_88" {
			t.Errorf("%+v", rec)
		}
	})
}

// CON-8, CON-9, CON-10, CON-11: each broken frame is answered, good ones in
// between do not reset the count, and an error without an id is never answered.
func TestHostCountsBrokenFrames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		s := mustCreate(t, r, "s1")
		p := dialPeer(t, r, "s1")
		must(t, p.Serve("s1", "1.0.0", "i", 0, "exec", "file"))
		broken := []string{`not json`, `{"jsonrpc":"2.0","id":7}`, `[]`, "\xff", `{"jsonrpc":"2.0","method":"a"}{}`, `{"jsonrpc":"2.0","id":"k","method":"x","method":"y"}`, `{"jsonrpc":"2.0","id":1.5,"method":"a"}`, `{}`, `7`}
		for i, text := range broken {
			must(t, p.Send(text))
			m, err := p.Read()
			must(t, err)
			if c := m.Code(); c != -32700 && c != -32600 {
				t.Errorf("%q was answered %s", text, m.Raw)
			}
			must(t, p.Send(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"yours"}}`))
			must(t, p.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)))
			if m, err = p.Read(); err != nil || string(m.Result) != "{}" {
				t.Fatalf("ping: %s %v", m.Raw, err)
			}
		}
		must(t, p.WS.Write(t.Context(), websocket.MessageBinary, []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)))
		if m, err := p.Read(); err != nil || m.Code() != -32600 {
			t.Errorf("the tenth: %s %v", m.Raw, err)
		}
		if end := p.End(); end.Code != worker.CloseBadFrames {
			t.Error(end)
		}
		if rec := s.Record(); rec.Failure != worker.FailureFrames {
			t.Errorf("%+v", rec)
		}
	})
}

// SG-1, SG-3, SG-7, ERR-1: place 2 of the guard alone, against a worker that has
// no place 3 and ignores place 1.
func TestSamplingGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		mustCreate(t, r, "s1")
		p := dialPeer(t, r, "s1")
		ask := func(text string, code int) {
			t.Helper()
			must(t, p.Send(text))
			m, err := p.Read()
			must(t, err)
			if m.Code() != code {
				t.Errorf("%s was answered %s, want %d", text, m.Raw, code)
			}
		}
		m, err := p.Read() // also before the handshake is over
		must(t, err)
		ask(`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}`, -32003)
		must(t, p.Send(workertest.Welcome(m.ID, "s1", "1.0.0", "i", 0)))
		_, err = p.Read()
		must(t, err)
		ask(`{"jsonrpc":"2.0","id":1,"method":"\u0073ampling/createMessage","params":{}}`, -32003)
		ask(`{"jsonrpc":"2.0","id":"x","method":"Sampling/CreateMessage"}`, -32003)
		ask(`{"jsonrpc":"2.0","id":1,"method":"sampling/"}`, -32003)
		ask(`{"jsonrpc":"2.0","id":1,"method":"ping","method":"sampling/createMessage"}`, -32600)
		ask(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create"}`, -32004)
		ask(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`, -32004)
		ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, -32004)
		ask(`{"jsonrpc":"2.0","id":1,"method":"agentfy/ready"}`, -32001)
		ask(`{"jsonrpc":"2.0","id":1,"method":"agentfy/done"}`, -32001)
		ask(`{"jsonrpc":"2.0","method":"notifications/agentfy/done"}`, -32001)
		if n := r.audit.count("sampling_blocked"); n != 4 {
			t.Errorf("%d audit entries about sampling, want 4", n)
		}
		_ = p.WS.CloseNow()
	})
}

// SG-6: a result that asks for input is refused before anything reads it.
func TestSmuggledRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		s := mustCreate(t, r, "s1")
		p := dialPeer(t, r, "s1")
		must(t, p.Serve("s1", "1.0.0", "i", 0, "exec", "file"))
		must(t, s.Running(t.Context()))
		for _, result := range []string{
			`{"resultType":"input_required","inputRequests":{"a":{"method":"sampling/createMessage","params":{}}}}`,
			`{"content":[],"\u0069nputRequests":{"a":{"method":"sampling/createMessage"}}}`,
		} {
			go func() {
				m, err := p.Until("tools/call")
				if err == nil {
					_ = p.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
				}
			}()
			_, err := s.CallTool(t.Context(), "exec", nil, nil)
			var remote *worker.RemoteError
			if !errors.As(err, &remote) || remote.Code != worker.CodeSamplingDisabled {
				t.Errorf("%s: %v", result, err)
			}
		}
		if n := r.audit.count("sampling_blocked"); n != 2 {
			t.Errorf("%d audit entries", n)
		}
		_ = p.WS.CloseNow()
	})
}

// IDN-2, IDN-3, VER-2, VER-6: refusals after an upgrade are an error with both
// values and a close code whose reason says it too.
func TestHostRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		code   int
		close  worker.CloseCode
		reason []string
	}{
		"session": {workertest.Welcome(jsontext.Value("1"), "s2", "1.0.0", "i", 0), -32002, worker.CloseSession, []string{"SESSION_MISMATCH"}},
		"mcp":     {strings.Replace(workertest.Welcome(jsontext.Value("1"), "s1", "1.0.0", "i", 0), worker.MCPVersion, "2024-11-05", 1), -32001, worker.CloseVersion, []string{"2024-11-05", worker.MCPVersion}},
		"major":   {workertest.Welcome(jsontext.Value("1"), "s1", "2.0.0", "i", 0), -32001, worker.CloseVersion, []string{"2.0.0", worker.ChannelVersion}},
		"shape":   {`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","_meta":{"agentfy":{"sessionId":7}}}}`, -32001, worker.CloseVersion, nil},
		"error":   {`{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"CHANNEL_VERSION_MISMATCH","data":{"expected":"2.0.0","got":"1.1.0"}}}`, 0, worker.CloseVersion, []string{"2.0.0", "1.1.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(nil, nil)
				defer r.close()
				s := mustCreate(t, r, "s1")
				p := dialPeer(t, r, "s1")
				_, err := p.Read()
				must(t, err)
				must(t, p.Send(c.answer))
				if c.code != 0 {
					m, err := p.Read()
					must(t, err)
					if m.Code() != c.code || string(m.ID) != "null" || (name != "shape" && (!strings.Contains(m.Raw, "expected") || !strings.Contains(m.Raw, "got"))) {
						t.Errorf("error %s", m.Raw)
					}
				}
				end := p.End()
				for _, part := range c.reason {
					if !strings.Contains(end.Reason, part) {
						t.Errorf("the reason %q does not say %s", end.Reason, part)
					}
				}
				if rec := s.Record(); end.Code != c.close || rec.State != worker.StateFailed {
					t.Errorf("%v, %s", end, rec.State)
				}
			})
		})
	}
}

// ONE-4, RC-7: the tool set is replaced, by a change that the worker announces
// and by a reconnect.
func TestToolSetIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		profile := worker.Light()
		profile.Tools = nil
		s, err := r.host.Create(t.Context(), "s1", profile)
		must(t, err)
		p := dialPeer(t, r, "s1")
		must(t, p.Serve("s1", "1.0.0", "i", 0, "a", "b"))
		must(t, s.Running(t.Context()))
		names := func() (out string) {
			for _, tool := range s.Tools() {
				out += tool.Name
			}
			return out
		}
		if got := names(); got != "ab" {
			t.Errorf("tools %s", got)
		}
		must(t, p.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
		m, err := p.Until("tools/list")
		must(t, err)
		must(t, p.Send(workertest.Tools(m.ID, "b", "c")))
		synctest.Wait()
		if got := names(); got != "bc" {
			t.Errorf("tools %s after a change", got)
		}
		q := dialPeer(t, r, "s1")
		must(t, q.Serve("s1", "1.0.0", "i", 1, "d"))
		if end := p.End(); end.Code != worker.CloseSuperseded {
			t.Error(end)
		}
		synctest.Wait()
		if got := names(); got != "d" || s.Record().State != worker.StateRunning {
			t.Errorf("tools %s after a reconnect", got)
		}
		_ = q.WS.CloseNow()
	})
}

// A call over a lost connection: a worker that knows call ids gets it again with
// the same id; of one that does not, nobody invents an outcome (AMB-18).
func TestCallAcrossReconnect(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.0.0", worker.ChannelVersion} {
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
				go func() {
					_, err := s.CallTool(t.Context(), "exec", nil, nil)
					result <- err
				}()
				first, err := p.Until("tools/call")
				must(t, err)
				_ = p.WS.CloseNow()
				if version == "1.0.0" {
					if err := <-result; !errors.Is(err, worker.ErrUnknownOutcome) || strings.Contains(first.Raw, "callId") {
						t.Errorf("%v after %s", err, first.Raw)
					}
					return
				}
				q := dialPeer(t, r, "s1")
				must(t, q.Serve("s1", version, "i", 1, "exec", "file"))
				again, err := q.Until("tools/call")
				must(t, err)
				if string(again.Params) != string(first.Params) || !strings.Contains(first.Raw, "callId") {
					t.Errorf("first %s, again %s", first.Raw, again.Raw)
				}
				must(t, q.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, again.ID)))
				must(t, <-result)
				_ = q.WS.CloseNow()
			})
		})
	}
}

// CON-9, ONE-6: an answer counts only from the connection that was asked: a
// stranger with the token cannot answer for the worker.
func TestAnswerFromStranger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		s := mustCreate(t, r, "s1")
		p := dialPeer(t, r, "s1")
		must(t, p.Serve("s1", worker.ChannelVersion, "i", 0, "exec", "file"))
		must(t, s.Running(t.Context()))
		text := make(chan string, 1)
		go func() {
			res, err := s.CallTool(t.Context(), "exec", nil, nil)
			if err != nil {
				text <- err.Error()
				return
			}
			text <- textOf(res)
		}()
		call, err := p.Until("tools/call")
		must(t, err)
		answer := `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q}]}}`
		q := dialPeer(t, r, "s1")
		must(t, q.Send(fmt.Sprintf(answer, call.ID, "from a stranger")))
		// Progress that nobody asked for goes nowhere.
		_, id, _ := strings.Cut(call.Raw, `"callId":"`)
		id, _, _ = strings.Cut(id, `"`)
		for _, from := range []*workertest.Peer{p, q} {
			must(t, from.Send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%q,"progress":1}}`, id)))
		}
		synctest.Wait()
		must(t, p.Send(fmt.Sprintf(answer, call.ID, "from the worker")))
		if got := <-text; got != "from the worker" {
			t.Errorf("the call returned %q", got)
		}
		_ = q.WS.CloseNow()
		_ = p.WS.CloseNow()
	})
}

// A message larger than the contract allows ends the session on both sides; it
// is not a loss after which the same message would come again (AMB-17).
func TestOversizeMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		s := mustCreate(t, r, "s1")
		p := dialPeer(t, r, "s1")
		must(t, p.Serve("s1", "1.0.0", "i", 0, "exec", "file"))
		fits := `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"`
		fits += strings.Repeat("x", worker.MaxMessage-len(fits)-3) + `"}}`
		must(t, p.Send(fits))
		synctest.Wait()
		if rec := s.Record(); rec.State != worker.StateRunning {
			t.Fatalf("4 MiB: %s", rec.State)
		}
		go func() { _ = p.Send(fits + " ") }()
		if end := p.End(); end.Code != 1009 {
			t.Error(end)
		}
		synctest.Wait()
		if rec := s.Record(); rec.Failure != worker.FailureFrames {
			t.Errorf("%s %s", rec.State, rec.Failure)
		}
	})
}

// CON-12: pings come from the host's side too, every 30 s, and a worker that
// only answers pings is still ended at 40 s.
func TestPingsAreNoLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil, nil)
		defer r.close()
		s := mustCreate(t, r, "s1")
		pings := 0
		ws, _, err := websocket.Dial(t.Context(), "ws://memory/", &websocket.DialOptions{ //nolint:bodyclose // the library closes it
			HTTPClient: &http.Client{Transport: r.net.Transport()}, HTTPHeader: http.Header{"Authorization": {"Bearer t-s1"}}, Subprotocols: []string{worker.Subprotocol},
			OnPingReceived: func(context.Context, []byte) bool { pings++; return true },
		})
		must(t, err)
		p := &workertest.Peer{WS: ws}
		must(t, p.Serve("s1", "1.0.0", "i", 0, "exec", "file"))
		must(t, s.Running(t.Context()))
		begun := time.Now()
		if end := p.End(); end.Code != worker.CloseHeartbeat || time.Since(begun) != 40*time.Second || pings != 1 {
			t.Errorf("%v after %v and %d pings", end, time.Since(begun), pings)
		}
	})
}
