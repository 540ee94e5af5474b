package interop

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/testserver"
	"github.com/ossicle/ossicle/sse"
)

const (
	proxyPage = "operations/proxies.md"
	// proxyHost is the name in the page's configurations.
	proxyHost = "feed.example.com"
	// proxyIdle is what their idle timeouts become: short, and much longer than a
	// beat, for busy machines.
	proxyIdle = 5 * beat
)

// fenced returns the blocks of a page in a language.
func fenced(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// proxied is a feed behind a proxy.
type proxied struct {
	t         *testing.T
	log       *feedLog
	upstreams []*upstream
	addr      string // of the proxy
	url       string
	client    *http.Client
	access    string // the proxy's log of requests
	gets      int    // requests to read events
}

// fill puts real addresses and files in place of those of a block, and starts the
// upstreams that it names.
func (p *proxied) fill(block string) string {
	p.t.Helper()
	p.log, p.addr = newFeedLog(p.t), testserver.Addr(p.t)
	addrs := map[string]string{}
	block = regexp.MustCompile(`\b[0-9.]+:7717\b`).ReplaceAllStringFunc(block, func(named string) string {
		if addrs[named] == "" {
			u := newUpstream(p.t, p.log, testserver.Addr(p.t), proxyHost)
			p.upstreams, addrs[named] = append(p.upstreams, u), u.addr
		}
		return addrs[named]
	})
	if len(p.upstreams) == 0 {
		p.t.Fatalf("there is no upstream in\n%s", block)
	}
	return block
}

// reach makes a client that finds the proxy under its name.
func (p *proxied) reach(scheme string, cert *testserver.Certificate) {
	p.url = scheme + "://" + proxyHost
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, p.addr)
		},
		ForceAttemptHTTP2: true,
	}
	if cert != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: cert.Pool, MinVersion: tls.VersionTLS12}
	}
	p.client = &http.Client{Transport: transport}
	p.t.Cleanup(transport.CloseIdleConnections)
}

func behindNginx(t *testing.T, block string) *proxied {
	t.Helper()
	p := &proxied{t: t, access: filepath.Join(t.TempDir(), "access.log")}
	block = p.fill(block)
	cert := testserver.NewCertificate(t, proxyHost)
	scheme := "http"
	if strings.Contains(block, "443 ssl") {
		scheme = "https"
	}
	for _, pair := range [][2]string{
		{"listen 443 ssl http2;", "listen " + p.addr + " ssl http2;"},
		{"listen 80;", "listen " + p.addr + ";"},
		{"/etc/ssl/feed.pem", cert.CertFile},
		{"/etc/ssl/feed.key", cert.KeyFile},
		{"/var/log/nginx/feed.log", p.access},
		{"proxy_read_timeout 60s;", fmt.Sprintf("proxy_read_timeout %dms;", proxyIdle.Milliseconds())},
		{"proxy_send_timeout 60s;", fmt.Sprintf("proxy_send_timeout %dms;", proxyIdle.Milliseconds())},
	} {
		block = strings.ReplaceAll(block, pair[0], pair[1])
	}
	if !strings.Contains(block, p.addr) || !strings.Contains(block, fmt.Sprintf("proxy_read_timeout %dms", proxyIdle.Milliseconds())) {
		t.Fatalf("not filled in:\n%s", block)
	}
	testserver.Nginx(t, p.addr, block)
	p.reach(scheme, cert)
	return p
}

func behindCaddy(t *testing.T, block string) *proxied {
	t.Helper()
	p := &proxied{t: t}
	block = p.fill(block)
	cert := testserver.NewCertificate(t, proxyHost)
	_, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		t.Fatal(err)
	}
	filled := strings.Replace(block, proxyHost+" {", fmt.Sprintf("%s:%s {\n\tbind 127.0.0.1\n\ttls %s %s", proxyHost, port, cert.CertFile, cert.KeyFile), 1)
	if filled == block {
		t.Fatalf("not filled in:\n%s", block)
	}
	testserver.Caddy(t, p.addr, filled)
	p.reach("https", cert)
	return p
}

// do sends a request through the proxy.
func (p *proxied) do(ctx context.Context, method, path, last, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if !strings.Contains(path, "ticket=") {
		req.Header.Set("Authorization", "Bearer "+p.log.token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	if method == http.MethodGet {
		p.gets++
	}
	return p.client.Do(req)
}

// call sends a request and returns the body of the answer.
func (p *proxied) call(method, path, body string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	res, err := p.do(ctx, method, path, "", body)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		p.t.Fatalf("%s %s: %s, %v: %s", method, path, res.Status, err, b)
	}
	return string(b)
}

// events is a stream through the proxy.
type events struct {
	p      *proxied
	res    *http.Response
	reader *sse.Reader
	close  func()
}

// open opens a stream and returns when it has begun. While the proxy has nobody
// to pass the request on to, it asks again.
func (p *proxied) open(last, query string) *events {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	timer := time.AfterFunc(patience, cancel)
	for {
		res, err := p.do(ctx, http.MethodGet, "/v1/events?topic=builds"+query, last, "") //nolint:bodyclose // by events.close
		if err != nil {
			p.t.Fatal(err)
		}
		if res.StatusCode >= http.StatusBadGateway {
			_ = res.Body.Close()
			time.Sleep(20 * time.Millisecond) // nothing tells when the upstream is back
			continue
		}
		e := &events{p: p, res: res, reader: sse.NewReader(res.Body, 0), close: func() { timer.Stop(); cancel(); _ = res.Body.Close() }}
		e.reader.All = true
		p.t.Cleanup(e.close)
		if res.StatusCode != http.StatusOK {
			b, _ := io.ReadAll(res.Body)
			p.t.Fatalf("%s: %s", res.Status, b)
		}
		if first, err := e.reader.Next(); err != nil || first.Retry == "" {
			p.t.Fatalf("the stream begins with %+v, %v", first, err)
		}
		return e
	}
}

// id waits for the next event and returns its id.
func (e *events) id() (int64, string) {
	e.p.t.Helper()
	for {
		next, err := e.reader.Next()
		if err != nil {
			e.p.t.Fatalf("next event: %v", err)
		}
		if next.Data == nil {
			continue
		}
		var f feed.Event
		if err := json.Unmarshal(next.Data, &f); err != nil || next.Type == feed.GapType {
			e.p.t.Fatalf("%s %s: %v", next.Type, next.Data, err)
		}
		return f.ID, next.ID
	}
}

// until waits for an event. Those before it may come first: which upstream the
// stream is at, and how far that had read the log, is the proxy's choice.
func (e *events) until(want int64) (last string) {
	e.p.t.Helper()
	for {
		id, last := e.id()
		if id == want {
			return last
		}
		if id > want {
			e.p.t.Fatalf("event %d without %d", id, want)
		}
	}
}

// F-32: each configuration on the page does what the page says.
func TestProxies(t *testing.T) {
	t.Parallel()
	for language, start := range map[string]func(*testing.T, string) *proxied{"nginx": behindNginx, "caddyfile": behindCaddy} {
		blocks := fenced(t, proxyPage, language)
		if len(blocks) < 2 {
			t.Errorf("%d blocks of %s on the page", len(blocks), language)
		}
		for i, block := range blocks {
			t.Run(fmt.Sprint(language, i+1), func(t *testing.T) {
				t.Parallel()
				p := start(t, block)
				streams(p)
				outlives(p)
				resumes(p)
				polls(p)
				if strings.Contains(block, "access_log") {
					logged(p)
				}
			})
		}
	}
}

// streams: the first bytes come at once, and so do events; HTTP/2 where there is
// TLS.
func streams(p *proxied) {
	p.t.Helper()
	begun := time.Now()
	e := p.open("", "")
	defer e.close()
	if d := time.Since(begun); d > beat {
		p.t.Logf("the first bytes took %v", d) // also a busy machine can do that
	}
	if secure := e.res.TLS != nil; (e.res.ProtoMajor == 2) != secure {
		p.t.Errorf("%s, TLS %v", e.res.Proto, secure)
	}
	if kind := e.res.Header.Get("Content-Type"); kind != "text/event-stream" || e.res.Header.Get("Content-Encoding") != "" {
		p.t.Errorf("headers %v", e.res.Header)
	}
	for i := range 3 {
		// The next one is published after this one was read: nothing that is behind it
		// can have pushed it out.
		p.call(http.MethodPost, "/v1/topics/builds/events", fmt.Sprintf(`{"data":%d}`, i))
		if id, _ := e.id(); id != int64(i+1) {
			p.t.Errorf("event %d, want %d", id, i+1)
		}
	}
}

// outlives: a stream on which nothing happens is not cut by an idle timeout,
// because there are heartbeats.
func outlives(p *proxied) {
	p.t.Helper()
	e := p.open("", "")
	defer e.close()
	time.Sleep(proxyIdle * 3 / 2) // real proxies, in real time
	e.until(p.upstreams[0].publish(p.t, 0))
}

// resumes: a stream whose upstream goes away ends, and goes on where it was when
// the client comes back: at another upstream, or at the same one later.
func resumes(p *proxied) {
	p.t.Helper()
	e := p.open("", "")
	defer e.close()
	last := e.until(p.upstreams[0].publish(p.t, 1))
	for _, u := range p.upstreams {
		u.stop()
	}
	for err := error(nil); err == nil; {
		_, err = e.reader.Next()
	}
	back := p.upstreams[len(p.upstreams)-1] // the others stay away
	back.start(p.t)
	want := back.publish(p.t, 2)
	again := p.open(last, "")
	defer again.close()
	if id, _ := again.id(); id != want {
		p.t.Errorf("event %d, want %d", id, want)
	}
	want = back.publish(p.t, 3)
	if id, _ := again.id(); id != want {
		p.t.Errorf("event %d, want %d", id, want)
	}
}

// polls: the way around proxies that buffer.
func polls(p *proxied) {
	p.t.Helper()
	back := p.upstreams[len(p.upstreams)-1]
	at := back.hub.Stats().Head
	var publishing sync.WaitGroup
	publishing.Go(func() {
		time.Sleep(beat / 4) // so that the poll most often waits
		back.publish(p.t, 4)
	})
	defer publishing.Wait()
	if body := p.call(http.MethodGet, "/v1/events?topic=builds&wait=30s&last_event_id="+at.String(), ""); !strings.Contains(body, fmt.Sprintf(`"id":%d`, at.ID+1)) {
		p.t.Errorf("polled %s", body)
	}
	if body := p.call(http.MethodGet, "/v1/events?topic=builds&wait=0s&last_event_id="+at.Epoch+"-0", ""); !strings.Contains(body, `"id":1,`) {
		p.t.Errorf("polled %s", body)
	}
}

// logged: a browser's ticket lets in, and is not in the proxy's log.
func logged(p *proxied) {
	p.t.Helper()
	var got struct {
		Ticket string `json:"ticket"`
	}
	if err := json.Unmarshal([]byte(p.call(http.MethodPost, "/v1/tickets", `{"topics":["builds"]}`)), &got); err != nil {
		p.t.Fatal(err)
	}
	read := func() string {
		p.t.Helper()
		text, err := os.ReadFile(p.access)
		if err != nil {
			p.t.Fatal(err)
		}
		return string(text)
	}
	p.open("", "&ticket="+got.Ticket).close()
	for deadline := time.Now().Add(patience); strings.Count(read(), `"GET /v1/events"`) < p.gets; time.Sleep(10 * time.Millisecond) { // nginx logs when it likes
		if time.Now().After(deadline) {
			p.t.Fatalf("not everything of %d requests is logged:\n%s", p.gets, read())
		}
	}
	if text := read(); strings.Contains(text, got.Ticket[:20]) || strings.Contains(text, "ticket=") {
		p.t.Errorf("the ticket is in the log:\n%s", text)
	}
}
