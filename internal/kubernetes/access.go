package kubernetes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Where a pod finds its service account, and how large the files may be.
const (
	accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	maxFile    = 1 << 20
	maxBearer  = 64 << 10
)

// access is how to speak to a cluster: where it is and who we are.
type access struct {
	base      *url.URL
	namespace string // that the configuration names; may be empty
	tls       *tls.Config
	proxy     *url.URL // nil: that of the environment
	// bearer returns the token for one request; nil is none. It is asked each time:
	// tokens of pods are replaced while they run.
	bearer func(ctx context.Context) (string, error)
	// forget drops what bearer keeps, after the cluster refused it; nil is nothing.
	forget func()
}

// transport is what connects. Half-open connections are found by pings of HTTP/2,
// which no handler of ours has to send.
func (a *access) transport() *http.Transport {
	proxy := http.ProxyFromEnvironment
	if a.proxy != nil {
		proxy = http.ProxyURL(a.proxy)
	}
	return &http.Transport{
		Proxy:                 proxy,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:       a.tls,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 0, // each request has its deadline
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       90 * time.Second,
	}
}

// podAccess is that of a pod's service account. dir is accountDir, and getenv the
// environment.
func podAccess(dir string, getenv func(string) (string, bool)) (*access, error) {
	host, _ := getenv("KUBERNETES_SERVICE_HOST")
	port, _ := getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, ErrNoCluster
	}
	ca, err := readFile(filepath.Join(dir, "ca.crt"), maxFile)
	if err != nil {
		return nil, fmt.Errorf("read service account: %w", err)
	}
	conf, err := trust(ca)
	if err != nil {
		return nil, fmt.Errorf("read service account: %w", err)
	}
	namespace, err := readFile(filepath.Join(dir, "namespace"), maxFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read service account: %w", err)
	}
	return &access{
		base:      &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)},
		namespace: strings.TrimSpace(string(namespace)), tls: conf,
		bearer: bearerFile(filepath.Join(dir, "token")),
	}, nil
}

// trust is a configuration that trusts the given certificates and no others.
func trust(ca []byte) (*tls.Config, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the certificate authority is no PEM certificate")
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// bearerFile reads a token from a file, each time.
func bearerFile(path string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		b, err := readFile(path, maxBearer)
		if err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		token := strings.TrimSpace(string(b))
		if !validBearer(token) {
			return "", fmt.Errorf("read token: %s holds none", path)
		}
		return token, nil
	}
}

// validBearer reports whether a token can stand in a header. The error of one that
// cannot must not repeat it.
func validBearer(s string) bool {
	return s != "" && len(s) <= maxBearer && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// readFile reads a file of a bounded size.
func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return b, err
}

// checkBase refuses addresses to which credentials must not go.
func (a *access) check() error {
	switch {
	case a.base.Host == "" || a.base.User != nil || a.base.RawQuery != "" || a.base.Fragment != "":
		return errors.New("the address of the API server wants a host, and neither user nor query")
	case a.base.Scheme == "https":
		return nil
	case a.base.Scheme != "http":
		return fmt.Errorf("the address of the API server has the scheme %q; use https", a.base.Scheme)
	case isLoopback(a.base.Hostname()):
		return nil
	}
	return errors.New("the address of the API server is not encrypted; use https")
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
