package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// postgresEnv has the test binary play one that starts a server and is killed.
const postgresEnv = "TESTSERVER_POSTGRES"

func TestPostgres(t *testing.T) {
	t.Parallel()
	p := PostgreSQL(t)
	one, other := p.Database(t), p.Database(t)
	if one == other {
		t.Fatal("two databases with one name")
	}
	p.SQL(t, one, `CREATE TABLE x (n int)`, `INSERT INTO x VALUES (1), (2)`)
	if got := p.SQL(t, one, `SELECT n, n + 1 FROM x ORDER BY n`); got != "1|2\n2|3" {
		t.Errorf("%q", got)
	}
	for _, again := range []func(testing.TB){p.Restart, func(tb testing.TB) { p.Kill(tb); p.Start(tb) }} {
		again(t)
		if got := p.SQL(t, one, `SELECT count(*) FROM x`); got != "2" {
			t.Errorf("%q", got)
		}
	}
	if got := p.SQL(t, p.Copy(t, one), `SELECT count(*) FROM x`); got != "2" {
		t.Errorf("copy: %q", got)
	}
	if out := p.Tool(t, "pg_dump", "-d", one); !strings.Contains(string(out), "CREATE TABLE public.x") {
		t.Errorf("%s", out)
	}
}

// A server must not outlive the test binary.
func TestPostgresDiesWithUs(t *testing.T) {
	t.Parallel()
	peer(t, "postgres", "/usr/lib/postgresql/*/bin/postgres")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPostgresVictim$")
	cmd.Env = append(os.Environ(), postgresEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var dir string
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "victim %d %s", &pid, &dir)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if pid == 0 {
		t.Fatal("it did not start")
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for deadline := time.Now().Add(30 * time.Second); !gone(pid); { // the kernel tells nobody but its parent
		if time.Now().After(deadline) {
			t.Fatalf("server %d lives on", pid)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || (err == nil && strings.Contains(string(stat), ") Z "))
}

// TestPostgresVictim is the life of the binary that is killed.
func TestPostgresVictim(t *testing.T) {
	t.Parallel()
	if os.Getenv(postgresEnv) == "" {
		t.Skip("the other half of TestPostgresDiesWithUs")
	}
	p := PostgreSQL(t)
	fmt.Println("victim", p.running.Pid(), p.dir)
	select {}
}
