package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// dialer opens connections to the control URL.
type dialer struct {
	target string
	token  func() (string, error)
	client *http.Client
}

// newDialer returns a dialer through transport; nil is one of its own. A control
// URL unix:///path dials that socket and asks for DialPath.
func newDialer(control string, token func() (string, error), transport http.RoundTripper) (*dialer, func(), error) {
	u, err := url.Parse(control)
	if err != nil {
		return nil, nil, &ConfigError{EnvControlURL + " is not a URL"}
	}
	d := &dialer{target: control, token: token}
	done := func() {}
	if transport == nil {
		own := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: writeTimeout, DisableKeepAlives: true}
		if u.Scheme == "unix" {
			path := u.Path
			own.Proxy = nil
			own.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				var nd net.Dialer
				return nd.DialContext(ctx, "unix", path)
			}
		}
		transport, done = own, own.CloseIdleConnections
	}
	if u.Scheme == "unix" {
		d.target = "ws://sandbox" + DialPath
	}
	d.client = &http.Client{
		Transport: transport,
		// A redirect would carry the token to somewhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return d, done, nil
}

// dial makes one attempt within limit.
func (d *dialer) dial(ctx context.Context, limit time.Duration) (*websocket.Conn, dialOutcome) {
	token, err := d.token()
	if err != nil {
		return nil, dialOutcome{exit: ExitConfig, why: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, d.target, &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPClient:      d.client,
		HTTPHeader:      http.Header{"Authorization": {"Bearer " + token}},
		Subprotocols:    []string{Subprotocol},
		CompressionMode: websocket.CompressionDisabled,
	})
	if err == nil {
		if ws.Subprotocol() == Subprotocol {
			return ws, dialOutcome{}
		}
		_ = ws.CloseNow()
		return nil, dialOutcome{exit: ExitConfig, why: fmt.Sprintf("worker speaks %s, the host selected %q", Subprotocol, ws.Subprotocol())}
	}
	if resp == nil {
		return nil, dialOutcome{retry: true, why: "no connection: " + dialCause(err)}
	}
	return nil, classify(resp.StatusCode, resp.Header)
}

// dialCause is the last cause of a failed dial: the ones around it repeat the
// URL, which may say more than a log should.
func dialCause(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Error()
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}

// classify says what an HTTP answer other than the right 101 means. 426 is a
// refusal only with the host's majors: a proxy that strips Upgrade answers 426
// too, and it may be replaced.
func classify(status int, h http.Header) dialOutcome {
	why := fmt.Sprintf("the host answered HTTP %d", status)
	majors := h.Values("Sec-WebSocket-Protocol")
	switch {
	case status == http.StatusSwitchingProtocols && len(majors) > 0 && !slices.Contains(majors, Subprotocol):
		return dialOutcome{exit: ExitConfig, why: fmt.Sprintf("worker speaks %s, the host selected %.100q", Subprotocol, strings.Join(majors, ", "))}
	case status == http.StatusSwitchingProtocols:
		return dialOutcome{retry: true, why: "the host's upgrade is broken"}
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return dialOutcome{exit: ExitNoPerm, why: why}
	case status == http.StatusUpgradeRequired && len(majors) > 0:
		return dialOutcome{exit: ExitConfig, why: fmt.Sprintf("worker speaks %s, the host speaks %.100q", Subprotocol, strings.Join(majors, ", "))}
	case status >= 500, status == http.StatusUpgradeRequired, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return dialOutcome{retry: true, after: retryAfterOf(h), why: why}
	}
	return dialOutcome{exit: ExitConfig, why: why}
}

// retryAfterOf reads Retry-After in seconds; a date is not worth a clock.
func retryAfterOf(h http.Header) time.Duration {
	n, err := strconv.ParseUint(strings.TrimSpace(h.Get("Retry-After")), 10, 16)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}
