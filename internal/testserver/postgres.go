package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/process"
)

const (
	postgresStart = time.Minute
	postgresReady = "database system is ready to accept" // connections, or of a standby read-only ones
)

// Postgres is a PostgreSQL server.
type Postgres struct {
	// DSN is that of the superuser in the database "postgres".
	DSN string
	// Port is the server's on 127.0.0.1. It stays the same when the server is
	// started again.
	Port int

	bin, dir string
	settings []string
	names    atomic.Int64

	mu      sync.Mutex
	running *process.Process
}

// PostgreSQL starts a server for one test. It does not wait for the disk, unless
// the settings say so ("fsync=on").
func PostgreSQL(tb testing.TB, settings ...string) *Postgres {
	tb.Helper()
	p := startPostgres(tb, settings)
	tb.Cleanup(p.stop)
	return p
}

// SharedPostgreSQL returns a server for the tests of a package.
func SharedPostgreSQL(settings ...string) *Shared[*Postgres] {
	return &Shared[*Postgres]{start: func(tb testing.TB) *Postgres {
		tb.Helper()
		return startPostgres(tb, settings)
	}}
}

func startPostgres(tb testing.TB, settings []string) *Postgres {
	tb.Helper()
	program, err := filepath.EvalSymlinks(peer(tb, "postgres", "/usr/lib/postgresql/*/bin/postgres"))
	if err != nil {
		tb.Fatal(err)
	}
	p := &Postgres{bin: filepath.Dir(program), settings: settings}      // the others are beside it
	if p.dir, err = os.MkdirTemp("", "ossicle-postgres-"); err != nil { //nolint:usetesting // the server runs as somebody else, who may not look in there
		tb.Fatal(err)
	}
	if err := p.initialise(); err != nil {
		p.stop()
		tb.Fatal(err)
	}
	p.Port = freePort(tb)
	p.DSN = p.dsn("postgres")
	if err := p.start(); err != nil {
		p.stop()
		tb.Fatal(err)
	}
	return p
}

// args are a command line that runs a program of PostgreSQL as somebody who is
// not root, which it insists on.
func (p *Postgres) args(program string, args ...string) []string {
	line := append([]string{filepath.Join(p.bin, program)}, args...)
	if os.Geteuid() != 0 {
		return line
	}
	u, err := p.user()
	if err != nil {
		return line
	}
	return append([]string{"setpriv", "--reuid=" + u.Uid, "--regid=" + u.Gid, "--clear-groups", "--pdeathsig=KILL", "--"}, line...)
}

func (p *Postgres) user() (*user.User, error) {
	if u, err := user.Lookup("postgres"); err == nil {
		return u, nil
	}
	return user.Lookup("nobody")
}

func (p *Postgres) initialise() error {
	if os.Geteuid() == 0 {
		u, err := p.user()
		if err != nil {
			return fmt.Errorf("find a user for postgres: %w", err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(p.dir, uid, gid); err != nil {
			return err
		}
	}
	_, err := p.run("initdb", "-D", p.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
	return err
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *Postgres) run(program string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), postgresStart) //nolint:usetesting // also called after the tests
	defer cancel()
	line := p.args(program, args...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return out, fmt.Errorf("run %s: %w", program, err)
	}
	return out, nil
}

// ready tells when the server says that it is.
type ready struct {
	mu   sync.Mutex
	text []byte
	said chan struct{}
}

func (r *ready) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.said:
	default:
		r.text = append(r.text, b...)
		if bytes.Contains(r.text, []byte(postgresReady)) {
			r.text = nil
			close(r.said)
		}
	}
	return len(b), nil
}

// start runs the server until it is ready. After a crash the processes of the
// one before may still hold its memory: then another try.
func (p *Postgres) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != nil {
		return nil
	}
	args := []string{
		"-D", p.data(), "-p", strconv.Itoa(p.Port), "-k", p.dir, "-h", "127.0.0.1",
		"-c", "fsync=off", "-c", "dynamic_shared_memory_type=mmap", "-c", "max_connections=200", "-c", "shared_buffers=64MB", "-c", "lc_messages=C",
	}
	for _, s := range p.settings {
		args = append(args, "-c", s)
	}
	deadline := time.Now().Add(postgresStart)
	for {
		r := &ready{said: make(chan struct{})}
		server, err := process.Start(process.Options{Args: p.args("postgres", args...), Env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}, Dir: "/", Stderr: r})
		if err != nil {
			return err
		}
		limit := time.NewTimer(time.Until(deadline))
		select {
		case <-r.said:
			limit.Stop()
			p.running = server
			return nil
		case <-limit.C:
			server.Kill()
			return fmt.Errorf("start postgres: it is not ready after %v: %s", postgresStart, server.Stderr())
		case <-server.Done():
			limit.Stop()
			if !strings.Contains(server.Stderr(), "shared memory block") {
				return fmt.Errorf("start postgres: %s", server.Stderr())
			}
			time.Sleep(20 * time.Millisecond) // real processes are going away; nothing tells of it
		}
	}
}

// halt ends the server by a signal, which reaches the postmaster alone.
func (p *Postgres) halt(signal syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return
	}
	_ = syscall.Kill(p.running.Pid(), signal)
	limit := time.NewTimer(postgresStart)
	defer limit.Stop()
	select {
	case <-p.running.Done():
	case <-limit.C:
	}
	p.running.Kill()
	p.running = nil
}

func (p *Postgres) stop() {
	p.halt(syscall.SIGQUIT)
	// Children of a killed postmaster may still write.
	for range 100 {
		if os.RemoveAll(p.dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Stop ends the server in good order; open connections are cut.
func (p *Postgres) Stop(tb testing.TB) {
	tb.Helper()
	p.halt(syscall.SIGINT)
}

// Kill ends the server as a crash does.
func (p *Postgres) Kill(tb testing.TB) {
	tb.Helper()
	p.halt(syscall.SIGKILL)
}

// Start starts the server again, on the same port.
func (p *Postgres) Start(tb testing.TB) {
	tb.Helper()
	if err := p.start(); err != nil {
		tb.Fatal(err)
	}
}

// Restart is Stop and Start.
func (p *Postgres) Restart(tb testing.TB) {
	tb.Helper()
	p.Stop(tb)
	p.Start(tb)
}

func (p *Postgres) dsn(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: "127.0.0.1:" + strconv.Itoa(p.Port), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Database makes an empty database and returns its DSN.
func (p *Postgres) Database(tb testing.TB) string {
	tb.Helper()
	name := "test" + strconv.FormatInt(p.names.Add(1), 10)
	p.SQL(tb, p.DSN, "CREATE DATABASE "+name)
	return p.dsn(name)
}

// Copy makes a copy of a database to which nobody is connected, and returns its
// DSN.
func (p *Postgres) Copy(tb testing.TB, dsn string) string {
	tb.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	name := "test" + strconv.FormatInt(p.names.Add(1), 10)
	p.SQL(tb, p.DSN, "CREATE DATABASE "+name+" TEMPLATE "+strings.TrimPrefix(u.Path, "/"))
	return p.dsn(name)
}

// SQL runs statements with psql, each in a transaction of its own, and returns
// what they print: rows on lines, columns separated by "|".
func (p *Postgres) SQL(tb testing.TB, dsn string, statements ...string) string {
	tb.Helper()
	args := []string{"-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", dsn}
	for _, s := range statements {
		args = append(args, "-c", s)
	}
	return strings.TrimSuffix(string(p.Tool(tb, "psql", args...)), "\n")
}

// Tool runs a program of the server's version, such as pg_dump, and returns its
// standard output.
func (p *Postgres) Tool(tb testing.TB, program string, args ...string) []byte {
	tb.Helper()
	out, err := p.run(program, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}
