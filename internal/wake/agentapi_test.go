package wake

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// terminal is an agentapi server. got is the last message that it took.
func terminal(t *testing.T, mode string, got *string) *AgentAPI {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		status := "stable"
		if mode == "running" {
			status = "running"
		}
		_, _ = fmt.Fprintf(w, `{"status":%q,"agent_type":"claude"}`, status)
	})
	mux.HandleFunc("POST /message", func(w http.ResponseWriter, r *http.Request) {
		var m struct{ Type, Content string }
		_ = json.NewDecoder(r.Body).Decode(&m)
		if mode == "refuses" || m.Type != "user" {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = fmt.Fprint(w, m.Content)
			return
		}
		*got = m.Content
		if mode == "drops answer" {
			panic(http.ErrAbortHandler)
		}
		_, _ = fmt.Fprintf(w, `{"ok":%v}`, mode != "swallows")
	})
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		if mode == "no events" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, "event: message_update\ndata: {\"status\":\"stable\"}\n\nevent: status_change\ndata: {\"status\":\"running\"}\n\nevent: status_change\ndata: odd\n\n")
		switch mode {
		case "dies":
			return
		case "delays":
		default:
			_, _ = fmt.Fprint(w, "event: status_change\ndata: {\"status\":\"stable\"}\n\n")
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	w, err := NewAgentAPI(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if mode == "away" {
		s.Close()
	}
	return w
}

// D-15, D-9.
func TestAgentAPI(t *testing.T) {
	t.Parallel()
	none := func(err error) bool { return err == nil }
	host := func(err error) bool { return errors.As(err, new(*notice.HostError)) }
	uncertain := func(err error) bool { return errors.Is(err, notice.ErrUncertain) }
	other := func(err error) bool { return err != nil && !host(err) && !uncertain(err) }
	for mode, tt := range map[string]struct {
		proofs []notice.State
		state  notice.State
		err    func(error) bool
	}{
		"good":         {states(notice.Woken), notice.Seen, none},
		"no events":    {states(notice.Woken), notice.Woken, none},
		"dies":         {states(notice.Woken), notice.Woken, none},
		"delays":       {states(notice.Woken), notice.Woken, other},
		"swallows":     {nil, "", host},
		"refuses":      {nil, "", host},
		"drops answer": {nil, "", uncertain},
		"away":         {nil, "", other},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var got string
			d := delivery("secret")
			o := wakeWith(t, terminal(t, mode, &got), d, limit(mode, "delays"))
			if !tt.err(o.err) || o.err != nil && strings.Contains(o.err.Error(), "secret") {
				t.Errorf("got %v", o.err)
			}
			equal(t, []any{o.proofs, o.state}, []any{tt.proofs, tt.state})
			if mode == "good" {
				equal(t, got, d.Text)
			}
		})
	}
}

func TestAgentAPIReach(t *testing.T) {
	t.Parallel()
	var got string
	if err := terminal(t, "good", &got).Reach(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	running := terminal(t, "running", &got)
	if err := running.Reach(t.Context(), "a"); !errors.As(err, new(*notice.BusyError)) {
		t.Errorf("got %v", err)
	}
	if checks := running.Doctor(t.Context()); !checks[0].OK {
		t.Errorf("got %+v", checks)
	}
	if checks := Examine(t.Context(), terminal(t, "away", &got)); checks[0].OK || !strings.Contains(checks[0].Fix, "agentapi server") {
		t.Errorf("got %+v", checks)
	}
	if _, err := NewAgentAPI("localhost:3284"); err == nil {
		t.Error("an address without a scheme was taken")
	}
}

// D-17.
func TestAgentAPIHostile(t *testing.T) {
	t.Parallel()
	var got string
	w := terminal(t, "good", &got)
	for _, h := range noticetest.Corpus(t) {
		d := deliveryOf(notice.Notice{ID: "n1", Agent: "a", Source: notice.SourceFeed, Title: h.Text, Text: h.Text})
		if o := wakeWith(t, w, d, 30*time.Second); o.err != nil {
			t.Fatalf("%s: %v", h.Name, o.err)
		}
		equal(t, got, d.Text)
		noticetest.Bearable(t, got, 1)
	}
}
