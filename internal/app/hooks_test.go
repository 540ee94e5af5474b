package app

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

const hookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" //nolint:gosec // of a test

func standardHeader(id, body string) http.Header {
	at := fmt.Sprint(time.Now().Unix())
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(hookSecret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + at + "." + body))
	h := http.Header{}
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", at)
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return h
}

func gitHubHeader(id, kind, body string) http.Header {
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write([]byte(body))
	h := http.Header{}
	h.Set("X-Github-Delivery", id)
	h.Set("X-Github-Event", kind)
	h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	return h
}

// publisher appends to a store.
type publisher struct{ *feedtest.Memory }

func (p publisher) Publish(ctx context.Context, drafts []feed.Draft) ([]feed.Receipt, error) {
	clean, err := feed.Clean(drafts)
	if err != nil {
		return nil, err
	}
	return p.Append(ctx, clean)
}

// D-16: a signed webhook becomes an event or a notice, once however often it is
// sent; what is not signed, and what is for no hook, is told apart from neither.
func TestHooks(t *testing.T) {
	t.Parallel()
	store, inbox := feedtest.NewMemory(), notice.New(noticetest.NewStore(), nil)
	c := &config.Config{Feed: config.Feed{Hooks: map[string]config.Hook{
		"std":   {SecretEnv: "S", Topic: "a"},
		"hub":   {SecretEnv: "S", Topic: "git", Form: config.HookGitHub},
		"pager": {SecretEnv: "S", Agent: "oncall"},
	}}}
	if _, err := newHooks(t.Context(), c, func(string) string { return "" }, publisher{store}, inbox, nil); err == nil || !strings.Contains(err.Error(), "variable S") {
		t.Errorf("hooks without a secret: %v", err)
	}
	if _, err := newHooks(t.Context(), c, func(string) string { return "short" }, publisher{store}, inbox, nil); err == nil || strings.Contains(err.Error(), "short") {
		t.Errorf("a secret that can be guessed: %v", err)
	}
	h, err := newHooks(t.Context(), c, func(string) string { return hookSecret }, publisher{store}, inbox, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, r := range h.routes() {
		if !r.Open {
			t.Error("the route asks for a token, which senders of webhooks do not have")
		}
		mux.Handle(r.Pattern, r.Handler)
	}
	send := func(name, body string, header http.Header) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/hooks/"+name, strings.NewReader(body))
		r.Header = header
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const body = `{"type":"invoice.paid","data":{"n":1915883588174806058}}`
	for _, tc := range []struct {
		name   string
		body   string
		header http.Header
		want   int
	}{
		{"std", body, standardHeader("m1", body), http.StatusNoContent},
		{"std", body, standardHeader("m1", body), http.StatusNoContent},
		{"std", body, standardHeader("m1", body+" "), http.StatusUnauthorized},
		{"std", body, http.Header{}, http.StatusUnauthorized},
		{"none", body, standardHeader("m1", body), http.StatusUnauthorized},
		{"hub", body, standardHeader("m1", body), http.StatusUnauthorized},
		{"hub", body, gitHubHeader("g1", "push", body), http.StatusNoContent},
		{"hub", body, gitHubHeader("g2", feed.GapType, body), http.StatusNoContent},
		{"hub", body, gitHubHeader("g3", "p\x01ush", body), http.StatusNoContent},
		{"std", "no json", standardHeader("m2", "no json"), http.StatusBadRequest},
		{"std", `{"a":1,"a":2}`, standardHeader("m3", `{"a":1,"a":2}`), http.StatusBadRequest},
		{"hub", `{"a":"\ud800"}`, gitHubHeader("g4", "push", `{"a":"\ud800"}`), http.StatusBadRequest},
		{"std", strings.Repeat("x", feed.MaxData+1), http.Header{}, http.StatusRequestEntityTooLarge},
		{"pager", body, standardHeader("p1", body), http.StatusNoContent},
		{"pager", body, standardHeader("p1", body), http.StatusNoContent},
	} {
		if code, text := send(tc.name, tc.body, tc.header); code != tc.want {
			t.Errorf("%s: %d %s, want %d", tc.name, code, text, tc.want)
		}
	}
	_, unknown := send("none", body, http.Header{})
	if _, unsigned := send("std", body, http.Header{}); unknown != unsigned {
		t.Errorf("an unknown hook is told apart: %s and %s", unknown, unsigned)
	}
	page, err := store.Read(t.Context(), feed.Query{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range page.Events {
		got = append(got, e.Topic+" "+e.Type+" "+string(e.Data))
	}
	want := []string{"a invoice.paid " + body, "git push " + body, "git message " + body, "git message " + body}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("events %q, want %q", got, want)
	}
	pages, err := inbox.List(t.Context(), notice.Query{Agent: "oncall"})
	if err != nil || len(pages.Records) != 1 || pages.Records[0].Text != body || pages.Records[0].Title != "pager invoice.paid" {
		t.Errorf("notices %+v, %v", pages.Records, err)
	}
	store.Fail(fmt.Errorf("the disk is full"))
	if code, text := send("std", body, standardHeader("m9", body)); code != http.StatusServiceUnavailable || strings.Contains(text, "disk") {
		t.Errorf("a store that fails: %d %s", code, text)
	}
}
