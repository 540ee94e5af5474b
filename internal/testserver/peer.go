package testserver

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Ports are taken from below those that the kernel hands out by itself, so that
// one stays free while its server is restarted.
const (
	firstPort = 18_000
	lastPort  = 32_000
)

// freePort returns a port of 127.0.0.1 on which nobody listens.
func freePort(tb testing.TB) int {
	tb.Helper()
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // a moment
		if err != nil {
			continue
		}
		_ = l.Close()
		return port
	}
	tb.Fatal("find a free port: none of 100 was")
	return 0
}

// peer finds a program in PATH, or by the last of the files that match one of
// the patterns.
func peer(tb testing.TB, name string, patterns ...string) string {
	tb.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, p := range patterns {
		if found, err := filepath.Glob(p); err == nil && len(found) > 0 {
			return slices.MaxFunc(found, newer)
		}
	}
	if os.Getenv("OSSICLE_REQUIRE_PEERS") != "" {
		tb.Fatalf("%s is not installed, and OSSICLE_REQUIRE_PEERS is set", name)
	}
	tb.Skipf("%s is not installed", name)
	return ""
}

// newer compares paths by their first number that differs, as versions are.
func newer(a, b string) int {
	x, y := strings.FieldsFunc(a, noDigit), strings.FieldsFunc(b, noDigit)
	return slices.CompareFunc(x, y, func(m, n string) int {
		if len(m) != len(n) {
			return len(m) - len(n)
		}
		return strings.Compare(m, n)
	})
}

func noDigit(r rune) bool { return r < '0' || r > '9' }

// Shared is one server for the tests of a package, started when the first of
// them asks for it. It belongs into a variable of the test package, and Main
// into its TestMain.
type Shared[S interface{ stop() }] struct {
	start func(testing.TB) S

	mu      sync.Mutex
	running bool
	server  S
}

// Get returns the server.
func (s *Shared[S]) Get(tb testing.TB) S {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		s.server = s.start(tb)
		s.running = true
	}
	return s.server
}

// Main returns tests that stop the server when they have run, for
// goleak.VerifyTestMain.
func (s *Shared[S]) Main(m interface{ Run() int }) interface{ Run() int } { //nolint:ireturn // what it takes
	return &stopping[S]{m, s}
}

type stopping[S interface{ stop() }] struct {
	tests  interface{ Run() int }
	shared *Shared[S]
}

func (s *stopping[S]) Run() int {
	code := s.tests.Run()
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	if s.shared.running {
		s.shared.running = false
		s.shared.server.stop()
	}
	return code
}
