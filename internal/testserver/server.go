package testserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/process"
)

const (
	// patience bounds the wait for a server to listen, and for it to end.
	patience = 30 * time.Second
	// glance is the pause between two looks whether a server listens, which
	// nothing tells of.
	glance = 5 * time.Millisecond
)

// Server is a program that listens on a port of 127.0.0.1. Its zero value is not
// useful; the functions of this package return it.
type Server struct {
	// Addr is host:port, and stays the same when the server is started again.
	Addr string

	args []string
	env  []string
	dir  string

	mu      sync.Mutex
	running *process.Process
}

// serve starts a program that will listen on addr, and kills it when the test
// ends.
func serve(tb testing.TB, addr, dir string, env []string, args ...string) *Server {
	tb.Helper()
	s := &Server{Addr: addr, args: args, env: env, dir: dir}
	s.Start(tb)
	tb.Cleanup(func() { s.halt(syscall.SIGKILL) })
	return s
}

// freeAddr returns an address on which nobody listens.
func freeAddr(tb testing.TB) (addr, port string) {
	tb.Helper()
	port = strconv.Itoa(freePort(tb))
	return net.JoinHostPort("127.0.0.1", port), port
}

// Address is Addr, for those who take any server.
func (s *Server) Address() string { return s.Addr }

// Start starts the server again, and returns when it listens.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return
	}
	p, err := process.Start(process.Options{Args: s.args, Env: s.env, Dir: s.dir})
	if err != nil {
		tb.Fatal(err)
	}
	if err := listening(p, s.Addr); err != nil {
		p.Kill()
		tb.Fatalf("start %s: %v: %s", s.args[0], err, p.Stderr())
	}
	s.running = p
}

// listening returns when somebody listens on addr, or the process has ended.
func listening(p *process.Process, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience) //nolint:usetesting // also for servers that outlive a test
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.Done():
			return fmt.Errorf("it ended: %w", p.Wait())
		case <-ctx.Done():
			return err
		case <-time.After(glance):
		}
	}
}

// halt ends the server by a signal to the program alone, then whatever is left.
func (s *Server) halt(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return
	}
	_ = syscall.Kill(s.running.Pid(), signal)
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-s.running.Done():
	case <-limit.C:
	}
	s.running.Kill()
	s.running = nil
}

// Stop ends the server in good order.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.halt(syscall.SIGTERM)
}

// Kill ends the server as a crash does.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	s.halt(syscall.SIGKILL)
}

// Hang has the server do nothing, with its connections open, until Resume.
func (s *Server) Hang(tb testing.TB) {
	tb.Helper()
	s.signal(tb, syscall.SIGSTOP)
	for deadline := time.Now().Add(patience); !s.stopped(tb); time.Sleep(glance) {
		if time.Now().After(deadline) {
			tb.Fatalf("%s does not hang", s.args[0])
		}
	}
}

// stopped reports whether every thread has taken notice of SIGSTOP.
func (s *Server) stopped(tb testing.TB) bool {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.running.Pid()))
	must(tb, err)
	for _, path := range threads {
		if stat, err := os.ReadFile(path); err == nil && !strings.Contains(string(stat), ") T ") {
			return false
		}
	}
	return true
}

// Resume ends Hang.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	s.signal(tb, syscall.SIGCONT)
}

// signal sends a signal to the program.
func (s *Server) signal(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		tb.Fatalf("%s does not run", s.args[0])
	}
	if err := syscall.Kill(s.running.Pid(), signal); err != nil {
		tb.Fatal(err)
	}
}
