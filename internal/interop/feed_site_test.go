package interop

import (
	"bufio"
	"context"
	cryptorand "crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/process"
)

// chaosConfig has a topic of each policy, and little patience with the slow.
const chaosConfig = `feed:
  lag: 20
  topics:
    - topic: audit*
      auditable: true
    - topic: first*
      policy: drop-newest
`

// site is a feed: one replica or several behind nginx.
type site struct {
	token    string
	replicas []*replica
	front    string // where nginx listens, else the only replica
}

// newSite starts replicas with the given arguments.
func newSite(t testing.TB, n int, args ...string) *site {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	write(t, config, chaosConfig)
	secret := make([]byte, 32)
	_, _ = cryptorand.Read(secret)
	s := &site{token: base64.RawURLEncoding.EncodeToString(secret)}
	for i := range n {
		data := filepath.Join(dir, fmt.Sprintf("replica%d", i))
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(data, "token"), s.token+"\n")
		addr := fixedAddr(t)
		r := &replica{addr: addr, args: append([]string{program, "serve", "--config", config, "--listen", addr, "--data", data, "--json"}, args...)}
		s.replicas = append(s.replicas, r)
		t.Cleanup(r.kill)
		if err := r.start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.front = s.replicas[0].addr
	return s
}

// anywhere is the address of a replica, or of what is in front of them.
func (s *site) anywhere() string {
	if i := rand.IntN(len(s.replicas) + 1); i < len(s.replicas) {
		return s.replicas[i].addr
	}
	return s.front
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fixedAddr is a free address from below the ports that the kernel hands out, so
// that it stays free while its server is away.
func fixedAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 18_000+rand.IntN(14_000))
		if ln, err := net.Listen("tcp", addr); err == nil {
			_ = ln.Close()
			return addr
		}
	}
	t.Fatal("find a free port: none of 100 was")
	return ""
}

// replica is a server that is killed and started again.
type replica struct {
	addr string
	args []string

	mu      sync.Mutex
	running *process.Process
	readers sync.WaitGroup
}

// start starts the replica until it serves. One that gives up at once, because
// its database is away, is started again, as whatever supervises it would.
func (r *replica) start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for r.running == nil {
		p, err := process.Start(process.Options{Args: r.args, StderrLimit: 64 << 10})
		if err != nil {
			return err
		}
		said := make(chan bool, 1)
		r.readers.Go(func() {
			out := bufio.NewReader(p.Stdout)
			line, _ := out.ReadString('\n')
			said <- strings.Contains(line, `"url"`)
			_, _ = io.Copy(io.Discard, out)
		})
		select {
		case ready := <-said:
			if ready {
				r.running = p
				return nil
			}
			p.Kill()
		case <-ctx.Done():
			p.Kill()
			return fmt.Errorf("start replica: %w: %s", ctx.Err(), p.Stderr())
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("start replica: %w: %s", ctx.Err(), p.Stderr())
		}
	}
	return nil
}

// kill is what kill -9 does.
func (r *replica) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running != nil {
		r.running.Kill()
		r.running = nil
	}
	r.readers.Wait()
}

// said is the end of the log of the running replica.
func (r *replica) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		return ""
	}
	return r.running.Stderr()
}

const nginxConfig = `daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr error;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	upstream feed {
%[3]s	}
	server {
		listen %[2]s;
		location / {
			proxy_pass http://feed;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header Host $host;
			proxy_buffering off;
			proxy_connect_timeout 2s;
			proxy_read_timeout 60s;
		}
	}
}
`

// behindNginx puts a proxy in front of the replicas.
func (s *site) behindNginx(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	path, err := exec.LookPath("nginx")
	if err != nil {
		if path = "/usr/sbin/nginx"; !exists(path) {
			if os.Getenv("OSSICLE_REQUIRE_PEERS") != "" {
				t.Fatal("nginx is not installed; run make setup")
			}
			t.Skip("nginx is not installed; run make setup")
		}
	}
	var upstreams strings.Builder
	for _, r := range s.replicas {
		fmt.Fprintf(&upstreams, "\t\tserver %s max_fails=1 fail_timeout=1s;\n", r.addr)
	}
	addr := fixedAddr(t)
	config := filepath.Join(dir, "nginx.conf")
	write(t, config, fmt.Sprintf(nginxConfig, dir, addr, upstreams.String()))
	startServer(t, nil, path, "-c", config, "-p", dir)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // nothing tells when it listens
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			s.front = addr
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(errors.Join(errors.New("nginx does not listen"), err))
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
