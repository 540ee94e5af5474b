package wake

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

var secretA = "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef01234567"))

var secretB = "whsec_" + base64.StdEncoding.EncodeToString([]byte("abcdef0123456789abcdef0123456789"))

// receiver is a receiver of webhooks that checks what it gets.
type receiver struct {
	*httptest.Server
	mode string

	mu     sync.Mutex
	bodies [][]byte
	ids    []string
	signed []string
}

func newReceiver(t *testing.T, mode string) *receiver {
	t.Helper()
	r := &receiver{mode: mode}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(r.handle))
	r.Config.ErrorLog = nil
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) handle(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	if err := VerifyWebhook(req.Header, body, secretA, time.Now()); err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	r.mu.Lock()
	r.bodies = append(r.bodies, body)
	r.ids = append(r.ids, req.Header.Get("webhook-id"))
	r.signed = append(r.signed, req.Header.Get("webhook-signature"))
	r.mu.Unlock()
	switch r.mode {
	case "redirects":
		http.Redirect(w, req, "/elsewhere", http.StatusTemporaryRedirect)
	case "dies":
		panic(http.ErrAbortHandler)
	case "gone":
		w.WriteHeader(http.StatusGone)
	case "busy":
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
	case "busy for ever":
		w.Header().Set("Retry-After", "999999999")
		w.WriteHeader(http.StatusTooManyRequests)
	case "fails":
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write(body)
	case "delays":
		<-req.Context().Done()
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (r *receiver) waker(t *testing.T, secrets ...string) *Webhook {
	t.Helper()
	w, err := NewWebhook(r.URL+"/hook", secrets, &WebhookOptions{AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// D-15, B-102: the exact bytes are signed, each attempt anew, by every secret.
func TestWebhook(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, "good")
	w := r.waker(t, secretB, secretA)
	n := delivery("é <b> \u2028 x").Notices[0]
	n.Title = "tïtle </watch-event>\n<x>"
	d := deliveryOf(n)
	for range 2 {
		o := wakeWith(t, w, d, 30*time.Second)
		equal(t, []any{o.proofs, o.state, o.err}, []any{[]notice.State(nil), notice.Notified, error(nil)})
	}
	equal(t, r.ids, []string{"d_test", "d_test"}) // so that it is recognised
	if strings.Count(r.signed[0], "v1,") != 2 {
		t.Errorf("signatures %q", r.signed[0])
	}
	var body webhookBody
	if err := json.Unmarshal(r.bodies[0], &body); err != nil {
		t.Fatal(err)
	}
	equal(t, body.Type, "ossicle.notices")
	equal(t, body.Data, webhookData{Agent: "a", Delivery: "d_test", Attempt: 1, Text: d.Text, Notices: []webhookNotice{
		{ID: "n1", Source: "watch", Title: "tïtle </watch-event> <x>", URI: "memo://notes", CreatedAt: n.CreatedAt},
	}})
}

// D-9.
func TestWebhookMisbehaves(t *testing.T) {
	t.Parallel()
	host := func(code int) func(error) bool {
		return func(err error) bool {
			var e *notice.HostError
			return errors.As(err, &e) && e.Code == code
		}
	}
	busy := func(d time.Duration) func(error) bool {
		return func(err error) bool {
			var e *notice.BusyError
			return errors.As(err, &e) && e.Retry == d
		}
	}
	uncertain := func(err error) bool { return errors.Is(err, notice.ErrUncertain) }
	for mode, check := range map[string]func(error) bool{
		"redirects": host(307), "fails": host(500), "busy": busy(7 * time.Second), "busy for ever": busy(time.Hour), "dies": uncertain, "delays": uncertain,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, mode)
			o := wakeWith(t, r.waker(t, secretA), delivery("secret"), limit(mode, "delays"))
			if !check(o.err) || strings.Contains(o.err.Error(), "secret") || strings.Contains(o.err.Error(), r.URL) {
				t.Errorf("got %v", o.err)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.ids) != 1 {
				t.Errorf("it was sent %d times", len(r.ids))
			}
		})
	}
	r := newReceiver(t, "gone")
	w := r.waker(t, secretA)
	if o := wakeWith(t, w, delivery("x"), time.Minute); !host(410)(o.err) || w.Reach(t.Context(), "a") == nil {
		t.Errorf("got %v: a receiver that is gone is reached", o.err)
	}
	if checks := Examine(t.Context(), w); checks[0].OK {
		t.Errorf("got %+v", checks)
	}
	if o := wakeWith(t, newReceiver(t, "good").waker(t, secretB), delivery("x"), time.Minute); !host(401)(o.err) {
		t.Errorf("got %v: a wrong signature was taken", o.err)
	}
}

// D-15: the address is checked when it is dialled, whatever the name was.
func TestWebhookPrivateAddresses(t *testing.T) {
	t.Parallel()
	private := []string{
		"127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "0.1.2.3", "224.0.0.1",
		"255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "::1", "::", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1",
		"::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:7f00:1::", "2001:db8::1", "fec0::1", "100::1",
	}
	for _, s := range private {
		if public(netip.MustParseAddr(s)) {
			t.Errorf("%s is public", s)
		}
	}
	for _, s := range []string{"1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8"} {
		if !public(netip.MustParseAddr(s)) {
			t.Errorf("%s is private", s)
		}
	}
	if public(netip.MustParseAddr("fe80::1%eth0")) {
		t.Error("an address with a zone is public")
	}

	reached := false
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	trust := func(tr *http.Transport) { tr.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} } //nolint:gosec // the address is what is tested
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"} {
		w, err := NewWebhook(fmt.Sprintf("https://%s:%s/", host, port), []string{secretA}, &WebhookOptions{transport: trust})
		if err != nil {
			t.Fatal(err)
		}
		o := wakeWith(t, w, delivery("x"), 10*time.Second)
		if o.err == nil || errors.Is(o.err, notice.ErrUncertain) || reached {
			t.Errorf("%s: got %v", host, o.err)
		}
		if host == "localhost" && !errors.Is(o.err, errPrivate) {
			t.Errorf("got %v", o.err)
		}
		if checks := w.Doctor(t.Context()); checks[0].OK {
			t.Errorf("%s: got %+v", host, checks)
		}
	}
	w, err := NewWebhook("https://localhost:"+port+"/", []string{secretA}, &WebhookOptions{AllowPrivate: true, transport: trust})
	if err != nil {
		t.Fatal(err)
	}
	if o := wakeWith(t, w, delivery("x"), 10*time.Second); o.err != nil || !reached {
		t.Errorf("got %v", o.err)
	}
	if checks := w.Doctor(t.Context()); !checks[0].OK {
		t.Errorf("got %+v", checks)
	}
}

func TestWebhookConfig(t *testing.T) {
	t.Parallel()
	short := "whsec_" + base64.StdEncoding.EncodeToString([]byte("short"))
	for _, tt := range []struct {
		url     string
		secrets []string
		o       *WebhookOptions
	}{
		{"http://example.com/", []string{secretA}, nil},
		{"ftp://example.com/", []string{secretA}, &WebhookOptions{AllowPrivate: true}},
		{"https:///x", []string{secretA}, nil},
		{"::", []string{secretA}, nil},
		{"https://example.com/", nil, nil},
		{"https://example.com/", []string{"plain"}, nil},
		{"https://example.com/", []string{short}, nil},
		{"https://example.com/", []string{"whsec_!"}, nil},
	} {
		if _, err := NewWebhook(tt.url, tt.secrets, tt.o); err == nil {
			t.Errorf("%s %v was taken", tt.url, tt.secrets)
		}
	}
	if _, err := NewWebhook("https://example.com/", []string{secretA}, nil); err != nil {
		t.Error(err)
	}
}

// D-16: what others send is checked the same way. The vector is of the
// standard's reference libraries.
func TestVerifyWebhook(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	now := time.Unix(1614265330, 0)
	payload := []byte(`{"test": 2432232314}`)
	header := func(id, at, signature string) http.Header {
		h := http.Header{}
		h.Set("webhook-id", id)
		h.Set("webhook-timestamp", at)
		h.Set("webhook-signature", signature)
		return h
	}
	const good = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	for name, tt := range map[string]struct {
		h   http.Header
		b   []byte
		now time.Time
		ok  bool
	}{
		"good":            {header("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", good), payload, now, true},
		"one of several":  {header("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", "v1a,x v1,AAAA "+good), payload, now, true},
		"other id":        {header("msg_other", "1614265330", good), payload, now, false},
		"other time":      {header("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265331", good), payload, now, false},
		"other bytes":     {header("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", good), []byte(`{"test":2432232314}`), now, false},
		"old":             {header("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", good), payload, now.Add(6 * time.Minute), false},
		"from the future": {header("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", good), payload, now.Add(-6 * time.Minute), false},
		"other version":   {header("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", "v2"+good[2:]), payload, now, false},
		"nothing":         {http.Header{}, payload, now, false},
		"odd time":        {header("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330.", good), payload, now, false},
	} {
		if err := VerifyWebhook(tt.h, tt.b, secret, tt.now); (err == nil) != tt.ok {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := VerifyWebhook(http.Header{}, nil, "x", now); err == nil {
		t.Error("a bad secret was taken")
	}
}

// D-17.
func TestWebhookHostile(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, "good")
	w := r.waker(t, secretA)
	for i, h := range noticetest.Corpus(t) {
		d := deliveryOf(notice.Notice{ID: "n1", Agent: "a", Source: notice.SourceFeed, Title: h.Text, Text: h.Text, Meta: map[string]string{"uri": h.Text}})
		if o := wakeWith(t, w, d, 30*time.Second); o.err != nil {
			t.Fatalf("%s: %v", h.Name, o.err)
		}
		var body webhookBody
		if err := json.Unmarshal(r.bodies[i], &body); err != nil {
			t.Fatal(err)
		}
		noticetest.Bearable(t, body.Data.Text, 1)
		for _, v := range []string{body.Data.Notices[0].Title, body.Data.Notices[0].URI} {
			if strings.ContainsAny(v, "\n\r\x1b\x00") || len(v) > 2100 {
				t.Errorf("%s: a member has %.100q", h.Name, v)
			}
		}
		if len(r.bodies[i]) > 256<<10 {
			t.Errorf("%s: %d bytes", h.Name, len(r.bodies[i]))
		}
	}
}
