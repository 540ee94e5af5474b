//go:build linux

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const startPatience = 30 * time.Second

// product is something that is compared.
type product interface {
	name() string
	// build makes the program in a directory. Products may share one.
	build(ctx context.Context, bin string) error
	// command starts a server on addr that keeps its files in dir. A certificate
	// means TLS.
	command(bin, dir string, addr netip.AddrPort, tls *certificate) (*exec.Cmd, error)
	// ready is called once the server takes connections.
	ready(ctx context.Context, dir string) error
	// subscribe is the request of a subscriber, from now on or from a position.
	subscribe(addr netip.AddrPort, since string) []byte
	publish(ctx context.Context, addr netip.AddrPort, payload string) (*http.Request, error)
	// position is where to resume with so many events missed, given the stream of
	// somebody who has seen all events. None means that the product does not resume.
	position(stream string, events, missed int) string
}

// tuned is a product that takes other settings for a scene, or another place for
// its files than beside the programs.
type tuned interface {
	tune(scene string) (as product, place string)
}

// server is a product that runs.
type server struct {
	product
	cmd    *exec.Cmd
	addr   netip.AddrPort
	dir    string
	client *http.Client
	log    *os.File
}

// start runs a product in a fresh directory below base, or below bin.
func start(ctx context.Context, p product, bin, base string, cert *certificate) (s *server, err error) {
	if base == "" {
		base = bin
	}
	dir, err := os.MkdirTemp(base, "ossicle-bench")
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := ln.Addr().(*net.TCPAddr).AddrPort()
	if err := ln.Close(); err != nil {
		return nil, err
	}
	cmd, err := p.command(bin, dir, addr, cert)
	if err != nil {
		return nil, err
	}
	s = &server{product: p, cmd: cmd, addr: addr, dir: dir}
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = s.log, s.log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = s.complain(err)
			s.stop()
		}
	}()
	deadline := time.Now().Add(startPatience)
	for {
		conn, err := net.DialTimeout("tcp", addr.String(), time.Second)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, fmt.Errorf("wait for %s: %w", p.name(), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.client = &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
		Timeout:   time.Minute,
	}
	return s, p.ready(ctx, dir)
}

// complain adds to an error what the server said last.
func (s *server) complain(err error) error {
	said, _ := os.ReadFile(s.log.Name())
	return fmt.Errorf("%w; the server says: %s", err, said[max(0, len(said)-1000):])
}

func (s *server) stop() {
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = s.log.Close()
	_ = os.RemoveAll(s.dir)
}

func (s *server) usage() (usage, error) { return usageOf(s.cmd.Process.Pid) }

// send publishes the event with that number, and stamps it right before.
func (s *server) send(ctx context.Context, number, size int) error {
	req, err := s.publish(ctx, s.addr, payload(number, size))
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	text, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if resp.StatusCode >= 300 {
		err = errors.Join(err, fmt.Errorf("publish: %s: %.200s", resp.Status, text))
	}
	return err
}

// payload is a JSON object of size bytes that says when it was made.
func payload(number, size int) string {
	head := fmt.Sprintf(`{"t":%d,"n":%d,"p":"`, time.Now().UnixNano(), number)
	pad := make([]byte, max(0, size-len(head)-len(`"}`)))
	for i := range pad {
		pad[i] = 'x'
	}
	return head + string(pad) + `"}`
}

// goBuild runs the go command in a directory.
func goBuild(ctx context.Context, dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w: %.500s", args[0], err, out)
	}
	return nil
}

// certificate is one for 127.0.0.1 on disk.
type certificate struct {
	cert, key string // paths
	pool      *x509.CertPool
}

func newCertificate(dir string) (*certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	c := &certificate{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), x509.NewCertPool()}
	c.pool.AddCert(parsed)
	return c, errors.Join(
		os.WriteFile(c.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(c.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600),
	)
}
