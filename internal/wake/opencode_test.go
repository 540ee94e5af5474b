package wake

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// openCode is an OpenCode server with one session, "ses_1".
type openCode struct {
	*httptest.Server
	mode string

	mu        sync.Mutex
	prompts   []openCodePrompt
	listeners map[chan string]bool
}

func newOpenCode(t *testing.T, mode string) *openCode {
	t.Helper()
	h := &openCode{mode: mode, listeners: map[chan string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /session/{id}", h.session)
	mux.HandleFunc("GET /session/status", h.status)
	mux.HandleFunc("GET /event", h.events)
	mux.HandleFunc("POST /session/{id}/prompt_async", h.prompt)
	mux.HandleFunc("GET /session/{id}/message", h.messages)
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case mode == "password" && (user != "opencode" || password != "secret"):
			w.WriteHeader(http.StatusUnauthorized)
		case mode == "redirects":
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		case r.URL.Query().Get("directory") != "/p q":
			w.WriteHeader(http.StatusNotFound)
		default:
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *openCode) waker(t *testing.T) *OpenCode {
	t.Helper()
	w, err := NewOpenCode(h.URL+"/", "ses_1", &OpenCodeOptions{Directory: "/p q", Password: map[string]string{"password": "secret"}[h.mode]})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (h *openCode) session(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != "ses_1" || h.mode == "no session" {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = fmt.Fprint(w, `{"id":"ses_1"}`)
}

func (h *openCode) status(w http.ResponseWriter, _ *http.Request) {
	switch h.mode {
	case "busy":
		_, _ = fmt.Fprint(w, `{"ses_1":{"type":"busy"},"ses_2":{"type":"idle"}}`)
	case "odd":
		_, _ = fmt.Fprint(w, `<html>`)
	default:
		_, _ = fmt.Fprint(w, `{"ses_2":{"type":"busy"}}`)
	}
}

func (h *openCode) events(w http.ResponseWriter, r *http.Request) {
	events := make(chan string, 64)
	h.mu.Lock()
	h.listeners[events] = true
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.listeners, events)
		h.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, "data: {\"type\":\"server.connected\",\"properties\":{}}\n\n")
	w.(http.Flusher).Flush()
	for {
		select {
		case e := <-events:
			if e == "" {
				panic(http.ErrAbortHandler)
			}
			_, _ = fmt.Fprintf(w, "data: %s\n\n", e)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (h *openCode) emit(events ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		for _, e := range events {
			select {
			case l <- e:
			default: // it has ended and does not know yet
			}
		}
	}
}

func (h *openCode) prompt(w http.ResponseWriter, r *http.Request) {
	var p openCodePrompt
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil || r.Header.Get("Content-Type") != "application/json" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if h.mode == "refuses" {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprint(w, p.Parts[0].Text)
		return
	}
	if h.mode != "loses" {
		h.mu.Lock()
		h.prompts = append(h.prompts, p)
		h.mu.Unlock()
	}
	if h.mode == "loses" || h.mode == "drops answer" {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusNoContent)
	assistant := fmt.Sprintf(`{"type":"message.updated","properties":{"info":{"id":"msg_z","sessionID":"ses_1","role":"assistant","parentID":%q}}}`, p.MessageID)
	const idle = `{"type":"session.idle","properties":{"sessionID":"ses_1"}}`
	switch h.mode {
	case "swallows":
	case "dies":
		h.emit(assistant, "")
	case "fails":
		h.emit(assistant, `{"type":"session.error","properties":{"sessionID":"ses_1","error":{"data":{"message":"secret"}}}}`)
	case "delays":
		h.emit(assistant)
	default: // it repeats itself, and speaks of others
		h.emit(`not json`, idle, // of a turn before
			`{"type":"message.updated","properties":{"info":{"sessionID":"ses_1","role":"user","id":"x"}}}`,
			`{"type":"message.updated","properties":{"info":{"sessionID":"ses_1","role":"assistant","parentID":"msg_other"}}}`, idle,
			assistant, assistant,
			`{"type":"session.idle","properties":{"sessionID":"ses_2"}}`, `{"type":"session.error","properties":{"sessionID":"ses_2"}}`,
			`{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"busy"}}}`,
			`{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"idle"}}}`, idle)
	}
}

func (h *openCode) messages(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []string{`{"info":{"id":"msg_0","role":"user"}}`, `{"info":{"id":"msg_00","role":"assistant","parentID":"msg_0","time":{"completed":1}}}`}
	for _, p := range h.prompts {
		out = append(out, fmt.Sprintf(`{"info":{"id":%q,"role":"user"}}`, p.MessageID))
		switch h.mode {
		case "delays":
			out = append(out, fmt.Sprintf(`{"info":{"id":"y","role":"assistant","parentID":%q,"time":{"created":1}}}`, p.MessageID))
		case "good", "drops answer":
			out = append(out, fmt.Sprintf(`{"info":{"id":"y","role":"assistant","parentID":%q,"time":{"created":1,"completed":2}}}`, p.MessageID))
		}
	}
	_, _ = fmt.Fprintf(w, "[%s]", strings.Join(out, ","))
}

// D-15: prompt_async, and the turn as the event stream tells it.
func TestOpenCode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"good", "password"} {
		h := newOpenCode(t, mode)
		w := h.waker(t)
		if err := w.Reach(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		d := delivery("changed")
		o := wakeWith(t, w, d, 30*time.Second)
		equal(t, []any{o.proofs, o.state, o.err}, []any{states(notice.Notified, notice.Woken, notice.Woken), notice.Seen, error(nil)})
		p := h.prompts[0]
		equal(t, p.Parts, []openCodePart{{Type: "text", Text: d.Text}})
		if len(p.MessageID) != 30 || !strings.HasPrefix(p.MessageID, "msg_") {
			t.Errorf("message id %q", p.MessageID)
		}
	}
}

// Ids grow with time, as OpenCode orders messages by them, and are recognised.
func TestOpenCodeID(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1796040000123)
	a, b := openCodeID(now, "d_1"), openCodeID(now.Add(time.Millisecond), "d_0")
	if a >= b || a[16:] != openCodeID(now.Add(time.Hour), "d_1")[16:] || a[16:] == b[16:] {
		t.Errorf("got %s, %s", a, b)
	}
	// As the host's own: 48 bits of milliseconds times 4096.
	if want := fmt.Sprintf("%x", (1796040000123*4096)&0xffffffffffff); !strings.Contains(a, want) {
		t.Errorf("%s does not contain %s", a, want)
	}
}

// D-9: a server that is away, busy, refuses, swallows, delays, fails, dies,
// redirects.
func TestOpenCodeMisbehaves(t *testing.T) {
	t.Parallel()
	host := func(err error) bool { return errors.As(err, new(*notice.HostError)) }
	none := func(err error) bool { return err == nil }
	some := func(err error) bool { return err != nil && !host(err) }
	for mode, tt := range map[string]struct {
		proofs []notice.State
		state  notice.State
		err    func(error) bool
	}{
		"refuses":      {nil, "", host},
		"redirects":    {nil, "", host},
		"swallows":     {states(notice.Notified), notice.Notified, some}, // its time is up
		"delays":       {states(notice.Notified, notice.Woken), notice.Woken, some},
		"dies":         {states(notice.Notified, notice.Woken), notice.Woken, none},
		"fails":        {states(notice.Notified, notice.Woken), notice.Woken, host},
		"loses":        {nil, "", host},          // it says itself that it has nothing
		"drops answer": {nil, notice.Seen, none}, // it says itself that all is done
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			o := wakeWith(t, newOpenCode(t, mode).waker(t), delivery("secret"), limit(mode, "swallows", "delays"))
			if !tt.err(o.err) || o.err != nil && strings.Contains(o.err.Error(), "secret") {
				t.Errorf("got %v", o.err)
			}
			equal(t, []any{o.proofs, o.state}, []any{tt.proofs, tt.state})
		})
	}
	if err := newOpenCode(t, "busy").waker(t).Reach(t.Context(), "a"); !errors.As(err, new(*notice.BusyError)) {
		t.Errorf("got %v", err)
	}
	h := newOpenCode(t, "good")
	w := h.waker(t)
	h.Close()
	if err := w.Reach(t.Context(), "a"); err == nil || errors.As(err, new(*notice.BusyError)) {
		t.Errorf("got %v", err)
	}
	if o := wakeWith(t, w, delivery("x"), time.Second); o.err == nil || errors.Is(o.err, notice.ErrUncertain) {
		t.Errorf("got %v: nothing was sent", o.err)
	}
}

// D-4: after a crash the server is asked what it has.
func TestOpenCodeCheck(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]notice.State{"good": notice.Seen, "delays": notice.Woken, "swallows": notice.Notified, "loses": notice.Persisted} {
		h := newOpenCode(t, mode)
		w := h.waker(t)
		d := delivery("x")
		wakeWith(t, w, d, limit(mode, "swallows", "delays"))
		got, err := w.Check(t.Context(), d)
		equal(t, []any{got, err}, []any{want, error(nil)})
		other := d
		other.ID = "d_other"
		got, err = w.Check(t.Context(), other)
		equal(t, []any{got, err}, []any{notice.Persisted, error(nil)})
		h.Close()
		if _, err := w.Check(t.Context(), d); err == nil {
			t.Error("a server that is away knows something")
		}
	}
}

func TestOpenCodeDoctor(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"good": "", "busy": "", "no session": "has no session", "odd": "not what was expected"} {
		checks := Examine(t.Context(), newOpenCode(t, mode).waker(t))
		last := checks[len(checks)-1]
		if last.OK != (want == "") || !strings.Contains(last.Cause, want) || !last.OK && last.Fix == "" {
			t.Errorf("%s: got %+v", mode, checks)
		}
	}
	h := newOpenCode(t, "password")
	w := h.waker(t)
	w.api.header = http.Header{}
	if checks := w.Doctor(t.Context()); checks[0].OK || !strings.Contains(checks[0].Fix, "password") {
		t.Errorf("got %+v", checks)
	}
	h.Close()
	if checks := w.Doctor(t.Context()); checks[0].OK || !strings.Contains(checks[0].Fix, "opencode serve") {
		t.Errorf("got %+v", checks)
	}
	for _, bad := range []string{"", "host", "ftp://x", "http://"} {
		if _, err := NewOpenCode(bad, "s", nil); err == nil {
			t.Errorf("%q is an address", bad)
		}
	}
}

// D-17.
func TestOpenCodeHostile(t *testing.T) {
	t.Parallel()
	h := newOpenCode(t, "good")
	w := h.waker(t)
	for i, text := range noticetest.Corpus(t) {
		d := deliveryOf(notice.Notice{ID: "n1", Agent: "a", Source: notice.SourceFeed, Title: text.Text, Text: text.Text})
		if o := wakeWith(t, w, d, 30*time.Second); o.err != nil {
			t.Fatalf("%s: %v", text.Name, o.err)
		}
		equal(t, h.prompts[i].Parts[0].Text, d.Text)
		noticetest.Bearable(t, h.prompts[i].Parts[0].Text, 1)
	}
}
