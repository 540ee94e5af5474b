package feedserver_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"
)

// way is a protocol by which a stream can come.
type way struct {
	name     string
	tls      bool
	http2    bool
	standard bool // also where connections could be taken over
}

var ways = []way{
	{name: "HTTP1"},
	{name: "HTTPS1", tls: true},
	{name: "HTTP1Standard", standard: true},
	{name: "HTTPS1Standard", tls: true, standard: true},
	{name: "H2C", http2: true},
	{name: "H2", tls: true, http2: true},
}

// byEachWay runs a test by every way, on a site of its own.
func byEachWay(t *testing.T, set func() setup, test func(t *testing.T, s *site)) {
	t.Helper()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			test(t, newSiteBy(t, w, set()))
		})
	}
}

func newSiteBy(t testing.TB, w way, set setup) *site {
	t.Helper()
	set.feed.Standard = w.standard
	if w.tls {
		config, err := selfSigned()
		if err != nil {
			t.Fatal(err)
		}
		set.http.TLS = config
	}
	s := newSite(t, set)
	s.direct = !w.standard && !w.http2
	s.c = s.client(w)
	return s
}

// client returns a client that buffers little. Its connections end before the
// server does.
func (s *site) client(w way) *http.Client {
	var mu sync.Mutex
	var conns []net.Conn
	dialer := net.Dialer{Control: smallBuffer}
	transport := &http.Transport{
		Protocols: new(http.Protocols), DisableCompression: true, ExpectContinueTimeout: 10 * time.Second,
		HTTP2:           &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 128 << 10},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // our own server
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err == nil {
				mu.Lock()
				conns = append(conns, conn)
				mu.Unlock()
			}
			return conn, err
		},
	}
	transport.Protocols.SetHTTP1(!w.http2)
	transport.Protocols.SetHTTP2(w.http2)
	transport.Protocols.SetUnencryptedHTTP2(w.http2 && !w.tls)
	s.t.Cleanup(func() {
		transport.CloseIdleConnections()
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	return &http.Client{Transport: transport}
}

// smallBuffer has a client's kernel take little that the client does not read.
func smallBuffer(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10) })
}
