package fleet

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/worker"
)

// dialLevel bounds each level of a dial.
const dialLevel = 10 * time.Second

// channelDial looks at a gateway from a worker's side, level by level.
type channelDial struct {
	target *url.URL
	token  string
	checks []notice.Check
}

// DialDoctor dials a gateway as a worker does, and says what each level answers, up
// to the first that fails: name, TCP, TLS, the answer to the upgrade, subprotocol,
// initialize, session. It never answers initialize, so it takes nobody's place.
// Without a token it ends where one is asked for.
func DialDoctor(ctx context.Context, control, token string) []notice.Check {
	d := &channelDial{token: token}
	u, err := url.Parse(control)
	if err != nil || u.Scheme != "unix" && u.Host == "" || u.Scheme == "unix" && u.Path == "" {
		return []notice.Check{{Name: "address", Cause: fmt.Sprintf("%q is no control URL", control), Fix: "use wss://HOST/v1/worker, or unix:///PATH"}}
	}
	if d.target = u; !slices.Contains([]string{"wss", "ws", "unix"}, u.Scheme) {
		return []notice.Check{{Name: "address", Cause: fmt.Sprintf("workers dial wss, ws on loopback, or unix, not %q", u.Scheme), Fix: "use wss://HOST/v1/worker"}}
	}
	for _, level := range []func(context.Context) bool{d.reach, d.secure, d.upgrade} {
		ctx, cancel := context.WithTimeout(ctx, dialLevel)
		ok := level(ctx)
		cancel()
		if !ok {
			break
		}
	}
	return d.checks
}

func (d *channelDial) good(name, format string, args ...any) bool {
	d.checks = append(d.checks, notice.Check{Name: name, OK: true, Cause: fmt.Sprintf(format, args...)})
	return true
}

func (d *channelDial) bad(name, cause, fix string) bool {
	d.checks = append(d.checks, notice.Check{Name: name, Cause: cause, Fix: fix})
	return false
}

// reach resolves the name and connects.
func (d *channelDial) reach(ctx context.Context) bool {
	var dialer net.Dialer
	if d.target.Scheme == "unix" {
		conn, err := dialer.DialContext(ctx, "unix", d.target.Path)
		if err != nil {
			return d.bad("socket", err.Error(), "start the gateway: ossicle serve --worker-gateway")
		}
		return d.good("socket", "connected to %s", d.target.Path) && conn.Close() == nil
	}
	host, port := d.target.Hostname(), d.target.Port()
	if port == "" {
		port = map[string]string{"wss": "443", "ws": "80"}[d.target.Scheme]
	}
	loopback := host == "localhost" || net.ParseIP(host).IsLoopback()
	if d.target.Scheme == "ws" && !loopback {
		return d.bad("address", "workers send no token in the clear, but for loopback", "use wss://")
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: d.web()}); err == nil && proxy != nil {
		d.good("proxy", "the environment asks for the proxy %s", proxy.Host)
		host, port = proxy.Hostname(), proxy.Port()
	}
	if net.ParseIP(host) == nil {
		addrs, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			return d.bad("name", err.Error(), "check the name, and whether this place has DNS")
		}
		d.good("name", "%s is %s", host, strings.Join(addrs, ", "))
	}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return d.bad("tcp", err.Error(), "check the port, the gateway, and what stands between: firewalls, a NetworkPolicy that is not there yet")
	}
	return d.good("tcp", "connected to %s", conn.RemoteAddr()) && conn.Close() == nil
}

// web is the target as HTTP has it.
func (d *channelDial) web() *url.URL {
	u := *d.target
	u.Scheme = map[string]string{"wss": "https", "ws": "http", "unix": "http"}[u.Scheme]
	if d.target.Scheme == "unix" {
		u.Host, u.Path = "sandbox", worker.DialPath
	}
	return &u
}

// secure makes a TLS handshake where there is to be one.
func (d *channelDial) secure(ctx context.Context) bool {
	if d.target.Scheme != "wss" {
		return true
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: d.web()}); err == nil && proxy != nil {
		return true // behind the proxy; the upgrade makes it
	}
	port := d.target.Port()
	if port == "" {
		port = "443"
	}
	dialer := &tls.Dialer{Config: &tls.Config{ServerName: d.target.Hostname(), MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(d.target.Hostname(), port))
	if err != nil {
		return d.bad("tls", err.Error(), "check the certificate: its name, its date, and who signed it")
	}
	defer func() { _ = conn.Close() }()
	secured, ok := conn.(*tls.Conn)
	if !ok {
		return d.bad("tls", "there is no TLS connection", "")
	}
	state := secured.ConnectionState()
	leaf := state.PeerCertificates[0]
	return d.good("tls", "%s, certificate of %.80q until %s", tls.VersionName(state.Version), leaf.Subject.CommonName, leaf.NotAfter.Format(time.DateOnly))
}

// upgrade asks for the WebSocket and reads the host's first frame.
func (d *channelDial) upgrade(ctx context.Context) bool {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	if d.target.Scheme == "unix" {
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", d.target.Path)
		}
	}
	defer transport.CloseIdleConnections()
	o := &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Subprotocols: []string{worker.Subprotocol},
	}
	if d.token != "" {
		o.HTTPHeader = http.Header{"Authorization": {"Bearer " + d.token}}
	}
	ws, resp, err := websocket.Dial(ctx, d.web().String(), o) //nolint:bodyclose // the library closes it
	if err != nil {
		return d.refused(resp, err)
	}
	defer func() { _ = ws.CloseNow() }()
	if d.token == "" {
		return d.bad("upgrade", "101 without a token: this is no gateway, which asks for one", "use wss://HOST"+worker.DialPath)
	}
	d.good("upgrade", "101: the token is good")
	if got := ws.Subprotocol(); got != worker.Subprotocol {
		return d.bad("subprotocol", fmt.Sprintf("the host selected %.80q, a worker speaks %s", got, worker.Subprotocol), "this is no gateway, or a proxy strips Sec-WebSocket-Protocol")
	}
	d.good("subprotocol", "%s", worker.Subprotocol)
	ws.SetReadLimit(worker.MaxMessage)
	return d.initialize(ctx, ws)
}

// refused says what an answer other than 101 means to a worker.
func (d *channelDial) refused(resp *http.Response, err error) bool {
	if resp == nil {
		return d.bad("upgrade", err.Error(), "what listens there speaks no HTTP, or TLS is expected")
	}
	what := fmt.Sprintf("HTTP %d", resp.StatusCode)
	majors := resp.Header.Get("Sec-WebSocket-Protocol")
	ours := strings.Contains(resp.Header.Get("WWW-Authenticate"), `realm="`+worker.Realm+`"`)
	switch {
	case !ours && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden):
		return d.bad("upgrade", what+" by something that is no gateway: it does not name "+worker.Realm, "use wss://HOST"+worker.DialPath+", and let what stands in front pass it on without a login of its own; a worker exits 77")
	case resp.StatusCode == http.StatusUnauthorized && d.token == "":
		return d.good("upgrade", "%s: the gateway is there and asks for a token; --token-file goes on from here", what)
	case resp.StatusCode == http.StatusUnauthorized:
		return d.bad("upgrade", what+": the token is not good: expired, of another gateway, or signed with a key that is gone", "start a new sandbox; a worker exits 77")
	case resp.StatusCode == http.StatusForbidden:
		return d.bad("upgrade", what+": the session of the token is over", "start a new sandbox; a worker exits 77")
	case resp.StatusCode == http.StatusUpgradeRequired && majors != "":
		return d.bad("upgrade", fmt.Sprintf("%s: the host speaks %.80q, we speak %s", what, majors, worker.Subprotocol), "use an image of the worker that the host knows; a worker exits 78")
	case resp.StatusCode == http.StatusUpgradeRequired:
		return d.bad("upgrade", what+" without the host's versions: a proxy strips the upgrade", "let it pass Upgrade and Connection on; a worker tries again")
	case resp.StatusCode == http.StatusServiceUnavailable:
		return d.bad("upgrade", fmt.Sprintf("%s, Retry-After %.20q: the gateway drains or has too many handshakes, or what stands in front has none now", what, resp.Header.Get("Retry-After")), "try again; a worker does")
	case resp.StatusCode >= http.StatusInternalServerError:
		return d.bad("upgrade", what+": what stands in front has no gateway behind it", "look there; a worker tries again")
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest:
		return d.bad("upgrade", fmt.Sprintf("%s to %.200q: workers follow no redirect", what, resp.Header.Get("Location")), "give the address itself")
	}
	return d.bad("upgrade", what+": this is no gateway, or not its path", "use wss://HOST"+worker.DialPath+"; a worker exits 78")
}

// initialize reads the host's first frame and compares it with the token.
func (d *channelDial) initialize(ctx context.Context, ws *websocket.Conn) bool {
	_, text, err := ws.Read(ctx)
	if closed := websocket.CloseStatus(err); closed != -1 {
		return d.bad("initialize", fmt.Sprintf("the host closed with %d: %v", closed, worker.CloseCode(closed).Policy().Meaning), "")
	}
	if err != nil {
		return d.bad("initialize", "nothing came: "+err.Error(), "what stands between does not pass WebSocket frames on")
	}
	var m struct {
		Method string `json:"method"`
		Params struct {
			MCP  string `json:"protocolVersion"`
			Info struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"clientInfo"`
			Meta struct {
				Agentfy struct {
					Session string         `json:"sessionId"`
					Channel string         `json:"channelVersion"`
					Profile string         `json:"profile"`
					Budgets worker.Budgets `json:"budgets"`
				} `json:"agentfy"`
			} `json:"_meta"`
		} `json:"params"`
	}
	if err := json.Unmarshal(text, &m); err != nil || m.Method != "initialize" {
		return d.bad("initialize", fmt.Sprintf("the first frame is %.100q", text), "this is no gateway of "+worker.Subprotocol)
	}
	a := m.Params.Meta.Agentfy
	if _, err := worker.ParseVersion(a.Channel); err != nil || m.Params.MCP != worker.MCPVersion {
		return d.bad("initialize", fmt.Sprintf("channel %.40q with MCP %.40q; we speak %s with %s", a.Channel, m.Params.MCP, worker.ChannelVersion, worker.MCPVersion), "a worker answers with what it speaks, and the host decides")
	}
	d.good("initialize", "%.40q %.40q, channel %s, MCP %s, profile %.40q, idle %s, at most %s",
		m.Params.Info.Name, m.Params.Info.Version, a.Channel, m.Params.MCP, a.Profile, a.Budgets.Idle, a.Budgets.MaxExec)
	sub, err := subjectOf(d.token)
	switch {
	case err != nil:
		return d.bad("session", err.Error(), "")
	case sub != a.Session:
		return d.bad("session", fmt.Sprintf("the host says %.80q, the token %.80q", a.Session, sub), "the host and whoever issued the token do not agree; a worker exits 77")
	}
	return d.good("session", "%.80q, as the token says; nothing was answered, so its worker keeps it", sub)
}

// subjectOf reads whom a token is for. Whether it is good the host has said.
func subjectOf(token string) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("the token is no JWT, so whom it is for is not known")
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Subject string `json:"sub"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &claims)
	}
	if err != nil || claims.Subject == "" {
		return "", errors.New("the token does not say whom it is for")
	}
	return claims.Subject, nil
}
