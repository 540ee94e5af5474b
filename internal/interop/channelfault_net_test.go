package interop

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/worker"
)

// The two ends of the wire between this machine and a network namespace, from the
// range for tests of networks: 198.18.0.0/15, of which each process has four addresses.
var hereAddr, thereAddr = wireAddr(1), wireAddr(2)

func wireAddr(end int) string {
	n := os.Getpid()%(1<<15)*4 + end
	return net.IPv4(198, byte(18+n>>16), byte(n>>8), byte(n)).String()
}

// ip runs a command of iproute2.
func ip(t *testing.T, args ...string) error {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// wire makes a network namespace with a wire to us, or skips.
func wire(t *testing.T) (namespace string) {
	t.Helper()
	namespace = fmt.Sprintf("ossicle-%d", os.Getpid())
	here, there := fmt.Sprintf("osh%d", os.Getpid()), fmt.Sprintf("ost%d", os.Getpid())
	for _, step := range [][]string{
		{"netns", "add", namespace},
		{"link", "add", here, "type", "veth", "peer", "name", there, "netns", namespace},
		{"addr", "add", hereAddr + "/30", "dev", here},
		{"link", "set", here, "up"},
		{"-n", namespace, "addr", "add", thereAddr + "/30", "dev", there},
		{"-n", namespace, "link", "set", there, "up"},
		{"-n", namespace, "link", "set", "lo", "up"},
	} {
		if err := ip(t, step...); err != nil {
			_ = ip(t, "netns", "del", namespace)
			lacks(t, err.Error())
		}
	}
	t.Cleanup(func() {
		// The wire would go with its namespace, but some time later.
		if err := errors.Join(ip(t, "link", "del", here), ip(t, "netns", "del", namespace)); err != nil {
			t.Error(err)
		}
	})
	return namespace
}

// swallow drops every packet of one connection, both ways and without a word, as
// a middlebox does that has forgotten it.
func swallow(t *testing.T, namespace string, gatewayPort, workerPort int) {
	t.Helper()
	g, w := fmt.Sprint(gatewayPort), fmt.Sprint(workerPort)
	ours := []string{"rule", "add", "to", thereAddr, "ipproto", "tcp", "sport", g, "dport", w, "blackhole"}
	theirs := []string{"-n", namespace, "rule", "add", "to", hereAddr, "ipproto", "tcp", "sport", w, "dport", g, "blackhole"}
	for _, rule := range [][]string{ours, theirs} {
		if err := ip(t, rule...); err != nil {
			lacks(t, err.Error())
		}
	}
	t.Cleanup(func() { // theirs goes with its namespace
		ours[1] = "del"
		if err := ip(t, ours...); err != nil {
			t.Error(err)
		}
	})
}

// certify makes a certificate for the gateway's address, and a file of it for
// whoever is to trust it.
func certify(t *testing.T, dir string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(hereAddr)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// ports are those of the workers that are connected.
type ports struct {
	mu  sync.Mutex
	all []int
}

func (p *ports) see(c net.Conn, state http.ConnState) {
	if state == http.StateNew {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all = append(p.all, c.RemoteAddr().(*net.TCPAddr).Port)
	}
}

func (p *ports) list() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// trail keeps what is audited.
type trail struct {
	mu  sync.Mutex
	all []worker.AuditEntry
}

func (a *trail) Audit(e worker.AuditEntry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, e)
}

func (a *trail) list() []worker.AuditEntry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.all)
}

// A link that is half open: on a real wire, every packet of the worker's
// connection is dropped in both directions and nobody is told. The worker notices
// first; its redial is taken although the host believes in the old connection;
// the command that ran goes on and its one result comes.
//
// ONE-8, HB-11, CC-8.
func TestHalfOpenWire(t *testing.T) {
	t.Parallel()
	namespace := wire(t)
	profile := faultProfile()
	if !faultsWanted() {
		// The host bears one interval more than the worker: in that the worker has to
		// be back, and its first delay alone is up to a second.
		profile.Budgets.HeartbeatInterval, profile.Budgets.HeartbeatGrace = 5*time.Second, 15*time.Second
		profile.Budgets.ReconnectWindow = 30 * time.Second
	}
	f := newFaulty(t, profile)
	tokens, err := f.c.tokens()
	if err != nil {
		t.Fatal(err)
	}
	audit, seen := &trail{}, &ports{}
	host := worker.NewHost(tokens, nil, &worker.HostOptions{Audit: audit})
	defer host.Close()
	mux := http.NewServeMux()
	gateway.New(host, tokens, nil, nil).Mount(mux)
	cert, ca := certify(t, f.dir)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", hereAddr+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ConnState: seen.see}
	go func() { _ = server.ServeTLS(l, "", "") }()
	defer server.Close()
	s, err := host.Create(t.Context(), f.c.Session, f.c.Profile)
	if err != nil {
		t.Fatal(err)
	}
	f.prefix = []string{"ip", "netns", "exec", namespace}
	w := f.startWorker(t, "wss://"+l.Addr().String()+gateway.WorkerPath, "SSL_CERT_FILE="+ca)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	if err := s.Running(ctx); err != nil {
		t.Fatalf("%v; the worker: %s", err, w.output())
	}
	once, call := filepath.Join(f.dir, "once"), make(chan string, 1)
	length := f.c.Profile.Budgets.HeartbeatGrace + 2*time.Second
	go func() {
		res, err := s.CallTool(ctx, "exec", jsontext.Value(fmt.Sprintf(`{"command":"echo x >> %s; sleep %.1f; echo survived"}`, once, length.Seconds())), nil)
		if err != nil {
			call <- err.Error()
			return
		}
		call <- res.Content[0].(*mcp.TextContent).Text
	}()
	awaitFile(t, once)
	if got := seen.list(); len(got) != 1 {
		t.Fatalf("connections from %v", got)
	}
	swallow(t, namespace, l.Addr().(*net.TCPAddr).Port, seen.list()[0])
	cut := time.Now()
	if got := <-call; !strings.HasPrefix(got, "survived\n") {
		t.Errorf("%s; the worker: %s", got, w.output())
	}
	if text, _ := os.ReadFile(once); string(text) != "x\n" {
		t.Errorf("the command ran %d times", len(text)/2)
	}
	rec := s.Record()
	if rec.State != worker.StateRunning || rec.Attempt != 1 || rec.Failure != "" {
		t.Errorf("%s, attempt %d, %s after %v; the worker: %s", rec.State, rec.Attempt, rec.Failure, time.Since(cut), w.output())
	}
	if got := seen.list(); len(got) != 2 {
		t.Errorf("connections from %v", got)
	}
	// The host never saw the old connection end: it replaced one in which it
	// believed.
	bound := 0
	for _, e := range audit.list() {
		switch e.Event {
		case "bound":
			bound++
		case "lost", "failed", "stalled":
			t.Errorf("the host noticed by itself: %+v", e)
		}
	}
	if bound != 2 {
		t.Errorf("audited %+v", audit.list())
	}
}
