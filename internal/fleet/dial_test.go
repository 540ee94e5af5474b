package fleet_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/fleet/fleettest"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/worker"
)

// verdict is the last check, in a word.
func verdict(checks []notice.Check) (name string, ok bool, cause string) {
	last := checks[len(checks)-1]
	return last.Name, last.OK, last.Cause
}

// Every answer that a worker can get has a verdict of its own.
func TestDialDoctorVerdicts(t *testing.T) {
	t.Parallel()
	speak := func(subprotocol, frame string, code websocket.StatusCode) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			o := &websocket.AcceptOptions{}
			if subprotocol != "" {
				o.Subprotocols = []string{subprotocol}
			}
			ws, err := websocket.Accept(w, r, o)
			if err != nil {
				return
			}
			defer func() { _ = ws.CloseNow() }()
			if code != 0 {
				_ = ws.Close(code, "no")
				return
			}
			_ = ws.Write(r.Context(), websocket.MessageText, []byte(frame))
			_, _, _ = ws.Read(r.Context())
		}
	}
	initialize := func(session, channel string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"gw","version":"7"},` +
			`"_meta":{"agentfy":{"sessionId":"` + session + `","channelVersion":"` + channel + `","profile":"light"}}}}`
	}
	answer := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
		}
	}
	token := "h.eyJzdWIiOiJzMSJ9.s" // sub s1
	for _, tc := range []struct {
		name    string
		handler http.HandlerFunc
		token   string
		level   string
		ok      bool
		cause   string
	}{
		{"no token", answer(401, "WWW-Authenticate", `Bearer realm="agentfy.worker"`), "", "upgrade", true, "asks for a token"},
		{"bad token", answer(401, "WWW-Authenticate", `Bearer realm="agentfy.worker"`), token, "upgrade", false, "the token is not good"},
		{"over", answer(403, "WWW-Authenticate", `Bearer realm="agentfy.worker"`), token, "upgrade", false, "session of the token is over"},
		{"another login", answer(401, "WWW-Authenticate", "Bearer"), "", "upgrade", false, "is no gateway"},
		{"a login in front", answer(401, "WWW-Authenticate", `Basic realm="intranet"`), token, "upgrade", false, "is no gateway"},
		{"forbidden by another", answer(403), token, "upgrade", false, "is no gateway"},
		{"lets anybody in", speak(worker.Subprotocol, "", 0), "", "upgrade", false, "101 without a token"},
		{"other major", answer(426, "Sec-WebSocket-Protocol", "agentfy.worker.v9"), token, "upgrade", false, `the host speaks "agentfy.worker.v9"`},
		{"stripped", answer(426), token, "upgrade", false, "a proxy strips the upgrade"},
		{"draining", answer(503, "Retry-After", "1"), token, "upgrade", false, `Retry-After "1"`},
		{"bad gateway", answer(502), token, "upgrade", false, "no gateway behind it"},
		{"redirect", answer(302, "Location", "https://else.example/"), token, "upgrade", false, "follow no redirect"},
		{"not found", answer(404), token, "upgrade", false, "this is no gateway"},
		{"no subprotocol", speak("", "", 0), token, "subprotocol", false, `selected ""`},
		{"closed", speak(worker.Subprotocol, "", 4002), token, "initialize", false, "closed with 4002"},
		{"another frame", speak(worker.Subprotocol, `{"method":"hello"}`, 0), token, "initialize", false, "first frame is"},
		{"version", speak(worker.Subprotocol, initialize("s1", "one"), 0), token, "initialize", false, `channel "one"`},
		{"another session", speak(worker.Subprotocol, initialize("s2", "1.0.0"), 0), token, "session", false, `the host says "s2"`},
		{"no JWT", speak(worker.Subprotocol, initialize("s1", "1.0.0"), 0), "opaque", "session", false, "is no JWT"},
		{"good", speak(worker.Subprotocol, initialize("s1", "1.0.0"), 0), token, "session", true, `"s1", as the token says`},
	} {
		server := httptest.NewServer(tc.handler)
		checks := fleet.DialDoctor(t.Context(), strings.Replace(server.URL, "http", "ws", 1)+"/v1/worker", tc.token)
		server.Close()
		if level, ok, cause := verdict(checks); level != tc.level || ok != tc.ok || !strings.Contains(cause, tc.cause) {
			t.Errorf("%s: %s %t %q, want %s %t %q", tc.name, level, ok, cause, tc.level, tc.ok, tc.cause)
		}
	}
	for _, tc := range []struct{ url, level, cause string }{
		{"ftp://x/", "address", "workers dial"},
		{"wss://", "address", "no control URL"},
		{"ws://192.0.2.1/x", "address", "in the clear"},
		{"ws://127.0.0.1:1/", "tcp", "refused"},
		{"unix:///nowhere/gw.sock", "socket", "no such file"},
	} {
		if level, ok, cause := verdict(fleet.DialDoctor(t.Context(), tc.url, "")); ok || level != tc.level || !strings.Contains(cause, tc.cause) {
			t.Errorf("%s: %s %t %q", tc.url, level, ok, cause)
		}
	}
	secured := httptest.NewUnstartedServer(answer(404))
	secured.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	secured.StartTLS()
	t.Cleanup(secured.Close)
	if level, ok, _ := verdict(fleet.DialDoctor(t.Context(), strings.Replace(secured.URL, "https", "wss", 1)+"/", "")); ok || level != "tls" {
		t.Errorf("a certificate that nobody signed: %s %t", level, ok)
	}
}

// A look from outside takes no worker's place, also before there is one.
func TestDialDoctorHarmsNobody(t *testing.T) {
	t.Parallel()
	g := mustOpen(t, t.TempDir(), nil)
	look := func(id string) (string, bool, string) {
		token, err := g.Keys().Tokens().Issue(id, worker.Light().TokenLife())
		if err != nil {
			t.Fatal(err)
		}
		return verdict(fleet.DialDoctor(t.Context(), "unix://"+g.Socket(), token))
	}
	running := fleettest.Start(t, g.Fleet, "one", "slow")
	if level, ok, cause := look("one"); level != "session" || !ok {
		t.Errorf("%s %t %s", level, ok, cause)
	}
	if res, err := running.CallTool(t.Context(), "exec", nil, nil); err != nil || res.IsError || running.Record().Attempt != 0 {
		t.Errorf("the session was disturbed: %+v, %v", running.Record(), err)
	}
	g.boxes.Late = true
	two, err := g.Start(t.Context(), "two", "slow", "")
	if err != nil {
		t.Fatal(err)
	}
	if level, ok, cause := look("two"); level != "session" || !ok {
		t.Errorf("%s %t %s", level, ok, cause)
	}
	if err := g.boxes.Come("two"); err != nil {
		t.Fatal(err)
	}
	fleettest.Await(t, two)
	if level, ok, cause := look("nobody"); ok || level != "upgrade" || !strings.Contains(cause, "session of the token is over") {
		t.Errorf("a session that is none: %s %t %s", level, ok, cause)
	}
	// Without a token the gateway is told from another server that asks for one.
	if level, ok, cause := verdict(fleet.DialDoctor(t.Context(), "unix://"+g.Socket(), "")); !ok || level != "upgrade" || !strings.Contains(cause, "the gateway is there") {
		t.Errorf("no token: %s %t %s", level, ok, cause)
	}
}
