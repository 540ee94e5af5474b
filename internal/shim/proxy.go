package shim

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/observe"
)

const (
	headTime  = 10 * time.Second // reading the head of a request
	idleTime  = 2 * time.Minute  // of a connection between two requests
	dialTime  = 10 * time.Second // connecting to the server, with TLS
	maxIdle   = 64               // connections to the server that are kept
	graceTime = 2 * time.Second  // for what is under way at the end
)

// ErrTarget is wrapped by the error for a URL that cannot be relayed.
var ErrTarget = errors.New("it has to be an http or https URL")

// Proxy relays an MCP server on HTTP. It is an http.Handler.
type Proxy struct {
	target *url.URL
	seen   *observe.Observer
	o      ProxyOptions
	log    *slog.Logger
	next   http.Handler
	base   *http.Transport
}

// ProxyOptions refine a Proxy. The zero value is the default.
type ProxyOptions struct {
	// Prefix is a path that stands for the server's URL here, with its query: other
	// paths of the server are found below. Empty: each path is found under itself.
	Prefix string
	// Header is set on every request to the server, in place of what a client sends
	// under the same names.
	Header http.Header
	// Logger takes the log. Nil discards.
	Logger *slog.Logger
}

// NewProxy relays the server of a URL. The caller closes it.
func NewProxy(target string, seen *observe.Observer, o *ProxyOptions) (*Proxy, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("relay %s: %w", attach.NetworkTarget(target), ErrTarget)
	}
	p := &Proxy{target: u, seen: seen}
	if o != nil {
		p.o = *o
	}
	if p.log = p.o.Logger; p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.base = &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTime}).DialContext,
		TLSHandshakeTimeout: dialTime,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true, // bodies pass as they are
		MaxIdleConnsPerHost: maxIdle,
		IdleConnTimeout:     idleTime,
	}
	p.next = seen.Handler(&httputil.ReverseProxy{
		Rewrite: p.rewrite, ModifyResponse: p.place, Transport: p.base, FlushInterval: -1, BufferPool: &buffers{}, ErrorHandler: p.fail,
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	})
	return p, nil
}

// Path is the path, with the query, at which the server's URL is found here.
func (p *Proxy) Path() string {
	if p.o.Prefix != "" {
		return p.o.Prefix
	}
	return p.target.RequestURI()
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.next.ServeHTTP(w, r) }

// Close closes idle connections to the server.
func (p *Proxy) Close() { p.base.CloseIdleConnections() }

// rewrite sends the request to the server, as it is.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = p.target.Scheme, p.target.Host, p.target.Host
	r.Out.Header.Del("Accept-Encoding")
	// A page of our own origin is one of the server's, as our host is its.
	if u, err := url.Parse(r.In.Header.Get("Origin")); err == nil && u.Host != "" && u.Host == r.In.Host {
		r.Out.Header.Set("Origin", p.target.Scheme+"://"+p.target.Host)
	}
	r.Out.URL.RawQuery = r.In.URL.RawQuery // also where it is not well formed
	if r.Out.Body != nil && r.Out.ContentLength > 0 {
		r.Out.Body = &sized{r.Out.Body, r.Out.ContentLength}
	}
	if p.o.Prefix != "" {
		p.into(r.Out)
	}
	maps.Copy(r.Out.Header, p.o.Header)
	if p.target.User != nil && r.Out.Header.Get("Authorization") == "" {
		password, _ := p.target.User.Password()
		r.Out.SetBasicAuth(p.target.User.Username(), password)
	}
}

// sized is a body that ends where its length says, and asks no further. The
// transport looks once more for an end when the server may be answering already:
// then our own server has closed the body, and an answer under way would be cut off.
type sized struct {
	io.ReadCloser
	left int64 // bytes
}

// Read implements io.Reader.
func (b *sized) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}

// fail answers for a server that does not, and says so, unless it is the client
// that has gone.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		p.seen.Failed(Reason(err), err.Error())
		p.log.WarnContext(r.Context(), "server not reached", logattr.Reason(string(Reason(err))))
	}
	http.Error(w, "the server behind this relay could not be reached: "+Reason(err).Text(), http.StatusBadGateway)
}

// Reason says why a server could not be reached.
func Reason(err error) attach.Reason {
	var (
		timeout net.Error
		cert    *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		alert   tls.AlertError
	)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return attach.ReasonConnectRefused
	case errors.As(err, &cert), errors.As(err, &record), errors.As(err, &alert):
		return attach.ReasonTLS
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return attach.ReasonTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed),
		strings.Contains(err.Error(), "malformed HTTP"), strings.Contains(err.Error(), "server closed idle connection"):
		// It hung up, or spoke first: for that our side closes, also while the request is being written.
		return attach.ReasonProtocolError
	}
	return attach.ReasonUnreachable
}

// buffers are those with which bodies are copied.
type buffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if v, ok := b.pool.Get().(*[]byte); ok {
		return *v
	}
	return make([]byte, 32<<10)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(buf []byte) { b.pool.Put(&buf) }

// Serve relays on a listener of the loopback interface until ctx ends. Whoever is
// on this machine may come, but for web pages of elsewhere.
func (p *Proxy) Serve(ctx context.Context, ln net.Listener) error {
	server := &http.Server{
		Handler: guard(p), ReadHeaderTimeout: headTime, IdleTimeout: idleTime, Protocols: new(http.Protocols),
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve relay: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
	defer cancel()
	if server.Shutdown(grace) != nil { // streams do not end by themselves
		_ = server.Close()
	}
	<-ended
	p.Close()
	return nil
}

// guard keeps web pages out: by their Origin, and by a name of their own that
// stands for our address.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback(r.Host) || !ownOrigin(r.Header.Get("Origin")) {
			http.Error(w, "this relay is for programs on this machine", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func ownOrigin(origin string) bool {
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && loopback(u.Host)
}

func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
