package postgres

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/process"
	"github.com/ossicle/ossicle/internal/testserver"
)

// pooler starts PgBouncer in transaction mode in front of a database.
func pooler(t *testing.T, dsn string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if os.Getenv("OSSICLE_REQUIRE_PEERS") != "" {
			t.Fatal("pgbouncer is not installed, and OSSICLE_REQUIRE_PEERS is set")
		}
		t.Skip("pgbouncer is not installed")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	addr := testserver.Addr(t)
	_, port, _ := net.SplitHostPort(addr)
	dir := t.TempDir()
	config := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%s user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\nunix_socket_dir =\n"+
		"auth_type = any\npool_mode = transaction\ndefault_pool_size = 5\nmax_client_conn = 100\n", u.Port(), port)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	readable(t, file)
	args := []string{program, file}
	if os.Geteuid() == 0 {
		args = []string{"setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--pdeathsig=KILL", "--", program, file}
	}
	p, err := process.Start(process.Options{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	u.Host = addr
	for deadline := time.Now().Add(30 * time.Second); ; { // it says nowhere else that it is ready
		if c, err := net.Dial("tcp", u.Host); err == nil {
			_ = c.Close()
			return u.String()
		}
		select {
		case <-p.Done():
			t.Fatalf("pgbouncer ended: %v: %s", p.Wait(), p.Stderr())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("pgbouncer is not ready: %s", p.Stderr())
		}
		rest(t.Context(), nil, 10*time.Millisecond)
	}
}

// F-8: a pooler in transaction mode, on which LISTEN succeeds and nothing ever
// comes, is told apart and named; with the server's own address beside it
// everything works.
func TestPooler(t *testing.T) {
	t.Parallel()
	direct := fresh(t)
	through := pooler(t, direct)
	if _, err := Open(t.Context(), through, nil); !errors.Is(err, ErrDeaf) || !strings.Contains(err.Error(), "PgBouncer") {
		t.Fatalf("%v", err)
	}
	o := &Options{Direct: direct}
	r := newRig(t, direct, nil)
	r.exec(incidents)
	r.db = openAt(t, through, o)
	r.install(Capture{Table: "incidents", Columns: []string{"id"}})
	r.run(r.db)
	s := r.follow(openAt(t, through, o))
	for i := range 10 {
		r.exec(`INSERT INTO incidents VALUES ($1)`, i)
		if got := take(t, s, 1); got[0].Key != fmt.Sprint(i) {
			t.Fatalf("%+v", got)
		}
		d := feed.Draft{Topic: "b.c", Type: "up", Key: "ü", Data: []byte(`{"n":1.50}`), IdempotencyKey: "k"}
		receipts, err := r.db.Feed().Append(t.Context(), []feed.Draft{d})
		if err != nil || receipts[0].Repeated != (i > 0) {
			t.Fatalf("%+v, %v", receipts, err)
		}
		if i == 0 {
			if err := r.db.Bus().Ring(t.Context(), feed.Position{}); err != nil {
				t.Fatal(err)
			}
			take(t, s, 1)
		}
	}
	f, err := feed.ParseFilter("b*")
	if err != nil {
		t.Fatal(err)
	}
	if page, err := r.db.Feed().Read(t.Context(), feed.Query{Filter: f}); err != nil || len(page.Events) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	if _, err := r.db.Feed().Trim(t.Context(), "incidents", feed.Retention{Count: 1, Age: time.Hour}); err != nil {
		t.Error(err)
	}
	if topics, err := r.db.Feed().Topics(t.Context()); err != nil || len(topics) != 2 || topics[1].Count != 1 {
		t.Errorf("%+v, %v", topics, err)
	}
	if captures, err := r.db.Captures(t.Context()); err != nil || len(captures) != 1 {
		t.Errorf("%+v, %v", captures, err)
	}
	// Who only looks needs no address but the pooler's, however many have looked before
	// on the connection that it gives them.
	for range 5 {
		looks := openAt(t, through, &Options{Existing: true})
		if captures, err := looks.Captures(t.Context()); err != nil || len(captures) != 1 {
			t.Errorf("through the pooler alone: %+v, %v", captures, err)
		}
		if _, err := looks.Outbox(nil).Lag(t.Context()); err != nil {
			t.Errorf("through the pooler alone: %v", err)
		}
	}
}

// A server that does not fit is refused with the reason.
func TestUnfit(t *testing.T) {
	t.Parallel()
	pg := server.Get(t)
	pg.SQL(t, pg.DSN, `DROP DATABASE IF EXISTS latin`, `CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`)
	if _, err := Open(t.Context(), strings.Replace(pg.DSN, "/postgres?", "/latin?", 1), nil); !errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), "LATIN1") {
		t.Errorf("%v", err)
	}
	dsn := pg.Database(t)
	openAt(t, dsn, nil)
	pg.SQL(t, dsn, `INSERT INTO ossicle.schema_version (version_id, is_applied) VALUES (999, true)`)
	if _, err := Open(t.Context(), dsn, nil); !errors.Is(err, ErrNewer) {
		t.Errorf("%v", err)
	}
	if _, err := Open(t.Context(), "postgres://u:secret@127.0.0.1:1/x?sslmode=nope", nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
	if _, err := Open(t.Context(), "postgres://u:secret@127.0.0.1:1/x", nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}
