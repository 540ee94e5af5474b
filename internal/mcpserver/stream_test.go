package mcpserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func callFrame(t *testing.T) *frame {
	t.Helper()
	f, fault := parseFrame([]byte(legacyCall("7", "tools/call", "")))
	if fault != nil {
		t.Fatal(fault)
	}
	return &f
}

// B-005: a stream that is silent gets a comment line in every interval, also
// before the first event.
func TestSilentStreamsAreKeptAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := httptest.NewRecorder()
		s := newStreamWriter(rec, callFrame(t), 15*time.Second)
		s.Header().Set("Content-Type", eventStream)
		time.Sleep(31 * time.Second)
		_, _ = s.Write([]byte("event: message\ndata: {}\n\n"))
		time.Sleep(14 * time.Second) // the write began the interval anew
		_, _ = s.Write([]byte("event: message\ndata: {}\n\n"))
		time.Sleep(16 * time.Second)
		s.finish()
		time.Sleep(time.Minute)
		const alive, event = ": keep-alive\n\n", "event: message\ndata: {}\n\n"
		if diff := cmp.Diff(alive+alive+event+event+alive, rec.Body.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if ct := rec.Header().Get("Content-Type"); ct != eventStream || rec.Header().Get("X-Accel-Buffering") != "no" || !rec.Flushed {
			t.Errorf("header %v, flushed %v", rec.Header(), rec.Flushed)
		}
	})
}

// An error that wants a status of its own becomes an event where a comment line
// has begun the stream.
func TestLateErrorsAreEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := httptest.NewRecorder()
		s := newStreamWriter(rec, callFrame(t), 15*time.Second)
		time.Sleep(16 * time.Second)
		s.Header().Set("Content-Type", "application/json")
		s.WriteHeader(http.StatusBadRequest)
		_, _ = s.Write([]byte(`{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"x"}}`))
		s.finish()
		want := ": keep-alive\n\nevent: message\ndata: " + `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"x"}}` + "\n\n"
		if diff := cmp.Diff(want, rec.Body.String()); diff != "" || rec.Code != http.StatusOK {
			t.Errorf("status %d (-want +got):\n%s", rec.Code, diff)
		}
	})
}

// The answer to initialize bears a header, so nothing may begin it early; and a
// response that is no stream gets no comment lines.
func TestOnlyStreamsAreKeptAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _ := parseFrame([]byte(initializeCall("1", "2025-11-25")))
		for _, f := range []*frame{&f, nil} {
			rec := httptest.NewRecorder()
			s := newStreamWriter(rec, f, time.Second)
			time.Sleep(5 * time.Second)
			s.Header().Set("Content-Type", "application/json")
			s.Header().Set(headerSession, "id")
			_, _ = s.Write([]byte("{}"))
			time.Sleep(5 * time.Second)
			s.finish()
			if rec.Body.String() != "{}" || rec.Header().Get(headerSession) != "id" {
				t.Errorf("%v %q", rec.Header(), rec.Body)
			}
		}
	})
}

// deadlineWriter records deadlines, and blocks once to be past one.
type deadlineWriter struct {
	http.ResponseWriter
	log      []string
	deadline time.Time
	stuck    bool
}

func (w *deadlineWriter) SetWriteDeadline(d time.Time) error {
	w.deadline = d
	return nil
}

func (w *deadlineWriter) Write(b []byte) (int, error) {
	w.log = append(w.log, fmt.Sprintf("write by %v", time.Until(w.deadline)))
	if w.stuck {
		time.Sleep(time.Until(w.deadline))
		return 0, errors.New("deadline exceeded")
	}
	return w.ResponseWriter.Write(b)
}

func (w *deadlineWriter) Flush() {
	w.log = append(w.log, fmt.Sprintf("flush by %v", time.Until(w.deadline)))
}

// B-006, S18: each write has its own deadline, and none is left behind.
func TestEachWriteHasADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &deadlineWriter{ResponseWriter: httptest.NewRecorder()}
		s := newStreamWriter(w, callFrame(t), time.Minute)
		s.Header().Set("Content-Type", eventStream)
		_, _ = s.Write([]byte("data: {}\n\n"))
		_ = s.FlushError()
		time.Sleep(90 * time.Second)
		s.mu.Lock()
		if !w.deadline.IsZero() {
			t.Error("a deadline is left behind")
		}
		w.stuck = true
		s.mu.Unlock()
		if _, err := s.Write([]byte("data: {}\n\n")); err == nil {
			t.Error("a write to a peer that does not read succeeds")
		}
		s.finish()
		if diff := cmp.Diff([]string{"write by 10s", "flush by 10s", "write by 10s", "flush by 10s", "write by 10s"}, w.log); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestPlainErrorsBecomeJSONRPC(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status, wantStatus int
		text, want         string
	}{
		{400, 400, "bad thing", `{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"bad thing"}}`},
		{500, 500, "oh", `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"oh"}}`},
		{400, 200, `JSON RPC not handled: "x/y" unsupported`, `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"method \"x/y\" unsupported"}}`},
	} {
		rec := httptest.NewRecorder()
		s := newStreamWriter(rec, callFrame(t), -1)
		http.Error(s, tc.text, tc.status)
		s.finish()
		if diff := cmp.Diff(tc.want, rec.Body.String()); diff != "" || rec.Code != tc.wantStatus || rec.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d %s: %d %v (-want +got):\n%s", tc.status, tc.text, rec.Code, rec.Header(), diff)
		}
	}
}

// M-7: never code 0, never one of the codes that are no longer to be used.
func TestCodesOfFramesAreRepaired(t *testing.T) {
	t.Parallel()
	frame := func(code, message string) string {
		return `{"jsonrpc":"2.0","id":"a","error":{"code":` + code + `,"message":"` + message + `"}}`
	}
	for in, want := range map[string]string{
		frame("0", "x"):      frame("-32603", "x"),
		frame("-32004", "x"): frame("-32603", "x"),
		frame("-32602", "x"): frame("-32602", "x"),
		frame("4001", "x"):   frame("4001", "x"),
		"event: message\nid: 1_2\ndata: " + frame("0", "x") + "\n\n": "event: message\nid: 1_2\ndata: " + frame("-32603", "x") + "\n\n",
		// Of a tool, and not of us.
		`{"jsonrpc":"2.0","id":1,"result":{"error":{"code":0,"message":"x"}}}`: `{"jsonrpc":"2.0","id":1,"result":{"error":{"code":0,"message":"x"}}}`,
		`{"error":{"code":0`: `{"error":{"code":0`,
	} {
		if diff := cmp.Diff(want, string(repairFrame([]byte(in)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

func FuzzParseFrame(f *testing.F) {
	for _, seed := range []string{
		modernCall("1", "tools/list", ""), initializeCall(`"x"`, "2025-11-25"), `{"jsonrpc":"2.0","id":1,"result":{}}`, `[]`, `{"jsonrpc":"2.0","method":"x","params":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fr, fault := parseFrame(data)
		if fr.ID != nil && !validID(fr.ID) {
			t.Errorf("an id that cannot be echoed: %s", fr.ID)
		}
		if fault != nil {
			if out := appendErrorFrame(nil, fr.ID, fault); !strings.Contains(string(out), `"code":-32`) {
				t.Errorf("fault %s", out)
			}
			return
		}
		_ = fr.modern()
		if fr.method() == methodInitialize {
			if _, version := pinLegacy(fr.Params); version >= modernVersion {
				t.Errorf("a legacy session of %s", version)
			}
		}
	})
}
