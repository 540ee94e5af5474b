package wake

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/notice"
)

// Bounds of webhooks: Standard Webhooks (www.standardwebhooks.com) recommends
// secrets of 24 to 64 bytes and to refuse what is older than five minutes.
const (
	secretPrefix  = "whsec_"
	minSecret     = 24
	maxSecret     = 64
	hookTolerance = 5 * time.Minute
	maxRetryAfter = time.Hour
)

// WebhookOptions adjust a Webhook.
type WebhookOptions struct {
	// AllowPrivate lets the receiver be at any address, also by plain http.
	// Without it only public addresses are dialled, over TLS.
	AllowPrivate bool
	// transport, for tests, changes how it connects.
	transport func(*http.Transport)
}

// Webhook posts deliveries to a URL, signed as Standard Webhooks says
// (specification D-15). The signature is over the very bytes that are sent and
// is made anew for each attempt. The address is checked when it is dialled, so
// that no name can lead elsewhere later; redirects are not followed and proxies
// not used. Any answer of 2xx proves notice.Notified: that somebody took it.
type Webhook struct {
	url     string
	secrets [][]byte
	client  *http.Client
	gone    atomic.Bool // the receiver said 410
}

var (
	_ notice.Waker  = (*Webhook)(nil)
	_ notice.Doctor = (*Webhook)(nil)
)

// NewWebhook returns an adapter of a receiver. While a secret is being changed
// there are two; each signs.
func NewWebhook(rawURL string, secrets []string, o *WebhookOptions) (*Webhook, error) {
	var opts WebhookOptions
	if o != nil {
		opts = *o
	}
	u, err := url.Parse(rawURL)
	switch {
	case err != nil || u.Host == "":
		return nil, errors.New("check webhook: it is no URL")
	case u.Scheme != "https" && (u.Scheme != "http" || !opts.AllowPrivate):
		return nil, errors.New("check webhook: its URL is not https")
	case len(secrets) == 0:
		return nil, errors.New("check webhook: it has no secret")
	}
	w := &Webhook{url: rawURL}
	for _, s := range secrets {
		key, err := parseSecret(s)
		if err != nil {
			return nil, err
		}
		w.secrets = append(w.secrets, key)
	}
	dialer := &net.Dialer{Timeout: httpTimeout}
	if !opts.AllowPrivate {
		dialer.Control = publicOnly
	}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, TLSHandshakeTimeout: httpTimeout}
	if opts.transport != nil {
		opts.transport(transport)
	}
	w.client = &http.Client{
		Transport: transport, Timeout: httpTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w, nil
}

func parseSecret(s string) ([]byte, error) {
	text, ok := strings.CutPrefix(s, secretPrefix)
	if !ok {
		return nil, errors.New("check webhook secret: it does not begin with whsec_")
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) < minSecret || len(key) > maxSecret {
		return nil, errors.New("check webhook secret: it is not 24 to 64 bytes in base64")
	}
	return key, nil
}

// Name implements notice.Waker.
func (w *Webhook) Name() string { return "webhook" }

// Reach implements notice.Waker. Only an attempt can tell more.
func (w *Webhook) Reach(context.Context, string) error {
	if w.gone.Load() {
		return errors.New("reach webhook: the receiver said that it is gone for good")
	}
	return nil
}

// webhookBody is what a receiver gets. Its notices have no texts of their own:
// Text is made for a model, theirs are not.
type webhookBody struct {
	Type      string      `json:"type"`
	Timestamp time.Time   `json:"timestamp"`
	Data      webhookData `json:"data"`
}

type webhookData struct {
	Agent    string          `json:"agent"`
	Delivery string          `json:"delivery"`
	Attempt  int             `json:"attempt"`
	Text     string          `json:"text"`
	Notices  []webhookNotice `json:"notices"`
}

type webhookNotice struct {
	ID        string    `json:"id"`
	Source    string    `json:"source"`
	Title     string    `json:"title"`
	URI       string    `json:"uri,omitzero"`
	CreatedAt time.Time `json:"created_at"`
}

// WebhookType is the type of the event that receivers get.
const WebhookType = "ossicle.notices"

func webhookPayload(d notice.Delivery, now time.Time) ([]byte, error) {
	body := webhookBody{Type: WebhookType, Timestamp: now.UTC(), Data: webhookData{Agent: d.Agent, Delivery: d.ID, Attempt: d.Attempt, Text: d.Text}}
	for _, n := range d.Notices {
		body.Data.Notices = append(body.Data.Notices, webhookNotice{
			ID: n.ID, Source: string(n.Source), Title: notice.Plain(n.Title, 128), URI: notice.Plain(n.Meta[notice.MetaURI], 512), CreatedAt: n.CreatedAt,
		})
	}
	return json.Marshal(body)
}

// Wake implements notice.Waker.
func (w *Webhook) Wake(ctx context.Context, d notice.Delivery, _ func(notice.State)) (notice.State, error) {
	now := time.Now()
	payload, err := webhookPayload(d, now)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(payload))
	if err != nil {
		return "", fmt.Errorf("post webhook: %w", withoutURL(err))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", version.Name+"/"+version.Number())
	w.sign(req.Header, d.ID, now, payload)
	res, err := send(w.client, req)
	if err != nil {
		return "", fmt.Errorf("post webhook: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	switch code := res.StatusCode; {
	case code/100 == 2:
		return notice.Notified, nil
	case code == http.StatusGone:
		w.gone.Store(true)
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		if after, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && after >= 0 {
			wait := min(time.Duration(after)*time.Second, maxRetryAfter)
			return "", &notice.BusyError{Reason: "the receiver said so", Retry: max(wait, time.Second)}
		}
	}
	return "", &notice.HostError{Op: "post webhook", Code: res.StatusCode}
}

// sign sets the headers of Standard Webhooks.
func (w *Webhook) sign(h http.Header, id string, now time.Time, payload []byte) {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	var signatures []string
	for _, key := range w.secrets {
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(signature(key, id, timestamp, payload)))
	}
	// The standard writes them in lower case; HTTP does not care.
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", timestamp)
	h.Set("Webhook-Signature", strings.Join(signatures, " "))
}

func signature(key []byte, id, timestamp string, payload []byte) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, payload)
	return mac.Sum(nil)
}

// VerifyWebhook checks the signature and the age of a webhook that somebody
// sent, over the bytes as they came. The id, unique per message and the same in
// each attempt, is in the header webhook-id.
func VerifyWebhook(h http.Header, payload []byte, secret string, now time.Time) error {
	key, err := parseSecret(secret)
	if err != nil {
		return err
	}
	id, timestamp := h.Get("Webhook-Id"), h.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || id == "" {
		return errors.New("verify webhook: it has no id or no timestamp")
	}
	if age := now.Sub(time.Unix(seconds, 0)).Abs(); age > hookTolerance {
		return errors.New("verify webhook: its timestamp is not of the present")
	}
	want := signature(key, id, timestamp, payload)
	for s := range strings.FieldsSeq(h.Get("Webhook-Signature")) {
		text, ok := strings.CutPrefix(s, "v1,")
		if !ok {
			continue
		}
		if got, err := base64.StdEncoding.DecodeString(text); err == nil && subtle.ConstantTimeCompare(got, want) == 1 {
			return nil
		}
	}
	return errors.New("verify webhook: no signature fits")
}

// privateNets are the ranges, beyond those that net/netip knows, that lead to
// somewhere in a house: shared and reserved ones, and those that carry an IPv4
// address inside.
var privateNets = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

func public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	for _, p := range privateNets {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// errPrivate says that an address was not dialled.
var errPrivate = errors.New("its address is not public; allow private addresses if that is meant")

// publicOnly runs after the name was resolved and before the socket connects.
func publicOnly(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !public(to.Addr()) {
		return errPrivate
	}
	return nil
}

// Doctor implements notice.Doctor. It sends nothing: it connects.
func (w *Webhook) Doctor(ctx context.Context) []notice.Check {
	if err := w.Reach(ctx, ""); err != nil {
		return []notice.Check{bad("receiver", err.Error(), "set the webhook up anew")}
	}
	ctx, cancel := context.WithTimeout(ctx, httpTimeout)
	defer cancel()
	u, err := url.Parse(w.url)
	if err != nil {
		return []notice.Check{bad("receiver", "its URL cannot be read", "give another")}
	}
	port := u.Port()
	if port == "" {
		port = u.Scheme
	}
	transport, _ := w.client.Transport.(*http.Transport)
	conn, err := transport.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return []notice.Check{bad("receiver", err.Error(), "check its address, and that it runs")}
	}
	_ = conn.Close()
	return []notice.Check{ok("receiver")}
}
