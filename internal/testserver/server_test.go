package testserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// says sends a line to a server and returns the beginning of its answer.
func says(ctx context.Context, t *testing.T, addr, line string, config *tls.Config) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var conn net.Conn
	var err error
	if config != nil {
		conn, err = (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", addr)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := conn.Write([]byte(line)); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 5)
	if _, err := conn.Read(text); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestServers(t *testing.T) {
	t.Parallel()
	cert := NewCertificate(t)
	config := &tls.Config{RootCAs: cert.Pool, MinVersion: tls.VersionTLS12}
	for _, c := range []struct {
		name       string
		start      func(testing.TB) *Server
		line, want string
		config     *tls.Config
	}{
		{"redis", func(tb testing.TB) *Server { tb.Helper(); return Redis(tb) }, "PING\r\n", "+PONG", nil},
		{"redis, TLS", func(tb testing.TB) *Server { tb.Helper(); return RedisTLS(tb, cert) }, "PING\r\n", "+PONG", config},
		{"nats", func(tb testing.TB) *Server { tb.Helper(); return NATS(tb) }, "\r\n", "INFO ", nil},
		{"nats, TLS", func(tb testing.TB) *Server { tb.Helper(); return NATSTLS(tb, cert) }, "\r\n", "INFO ", nil},
		{"nginx", func(tb testing.TB) *Server {
			tb.Helper()
			addr := Addr(tb)
			return Nginx(tb, addr, "server { listen "+addr+"; return 204; }")
		}, "GET / HTTP/1.0\r\n\r\n", "HTTP/", nil},
		{"caddy", func(tb testing.TB) *Server {
			tb.Helper()
			addr := Addr(tb)
			return Caddy(tb, addr, "http://"+addr+" {\n\trespond 204\n}\n")
		}, "GET / HTTP/1.0\r\n\r\n", "HTTP/", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := c.start(t)
			for _, again := range []func(testing.TB){func(testing.TB) {}, s.Stop, s.Kill} {
				again(t)
				s.Start(t)
				if got := says(t.Context(), t, s.Addr, c.line, c.config); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			}
			s.Hang(t)
			s.Resume(t)
			if got := says(t.Context(), t, s.Addr, c.line, c.config); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// victimEnv has the test binary play one that starts a server and is killed.
const victimEnv = "TESTSERVER_VICTIM"

// No server outlives the test binary, nor do its workers.
func TestServersDieWithUs(t *testing.T) {
	t.Parallel()
	peer(t, "nginx", "/usr/sbin/nginx")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServerVictim$")
	cmd.Env = append(os.Environ(), victimEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "victim %s", &addr)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if addr == "" {
		t.Fatal("it did not start")
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(glance) { // the kernel tells nobody
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return // none of its processes has the socket
		}
		_ = conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("it lives on")
		}
	}
}

// TestServerVictim is the life of the binary that is killed.
func TestServerVictim(t *testing.T) {
	t.Parallel()
	if os.Getenv(victimEnv) == "" {
		t.Skip("the other half of TestServersDieWithUs")
	}
	addr := Addr(t)
	Nginx(t, addr, "server { listen "+addr+"; return 204; }")
	fmt.Println("victim", addr)
	select {}
}
