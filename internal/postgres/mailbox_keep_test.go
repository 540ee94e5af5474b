package postgres

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/ossicle/ossicle/mailbox"
)

// schemaAt makes the schema of an earlier version.
func schemaAt(t *testing.T, dsn string, version int64) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	old := stdlib.OpenDB(*config)
	conn, err := old.Conn(t.Context())
	if err == nil {
		err = errors.Join(makeSchema(t.Context(), conn), conn.Close())
	}
	sources, err2 := fs.Sub(migrations, "migrations")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, old, sources, goose.WithTableName("ossicle.schema_version"), goose.WithDisableGlobalRegistry(true))
	if err == nil {
		_, err = p.UpTo(t.Context(), version)
	}
	if err != nil {
		t.Fatal(err)
	}
	return old
}

// Processes of before, which are at work when the schema changes, lose nothing of what
// they are about, and the change is not lost to them: it queues where they do.
func TestMailboxChangesUnderWriters(t *testing.T) {
	t.Parallel()
	pg := server.Get(t)
	dsn := pg.Database(t)
	old := schemaAt(t, dsn, 4)
	defer func() { _ = old.Close() }()
	writer, err := old.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Rollback() }()
	write := func(query string) {
		t.Helper()
		if _, err := writer.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	write(`INSERT INTO ossicle.mailbox (session) VALUES ('s') ON CONFLICT DO NOTHING`)
	write(`SELECT 1 FROM ossicle.mailbox WHERE session = 's' FOR UPDATE`)
	opened := make(chan error, 1)
	go func() {
		db, err := Open(t.Context(), dsn, nil)
		if err == nil {
			db.Close()
		}
		opened <- err
	}()
	deadline := time.Now().Add(30 * time.Second)
	for waiting := false; !waiting; time.Sleep(5 * time.Millisecond) { // the server tells nobody who waits
		err := old.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'ossicle.mailbox'::regclass)`).Scan(&waiting)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the change does not wait for the writer: %v", err)
		}
	}
	write(`INSERT INTO ossicle.mailbox_agent (session, id, harness, substrate, run, status, registered, seen) VALUES ('s', 'a', '', '', '', 'active', 1, 1)`)
	write(`INSERT INTO ossicle.mailbox_signal (session, seq, id, time, sender, recipient, type, priority, depth, reply_to, metadata, content)
		VALUES ('s', 1, 's1', 1, 'a', 'b', 'inform', '', 0, '', '', 'x')`)
	if err := writer.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("bring the schema up to date: %v", err)
	}
	var size, waiting int
	if err := old.QueryRowContext(t.Context(), `SELECT size, waiting FROM ossicle.mailbox_signal, ossicle.mailbox_agent`).Scan(&size, &waiting); err != nil || size != 1 || waiting != 1 {
		t.Errorf("size %d, waiting %d, %v", size, waiting, err)
	}
}

// A database of before there were bounds is taken up where it lies: nothing is
// lost, what was read counts as done when its sender reaches the bound, and only
// then is anything removed.
func TestMailboxOfBefore(t *testing.T) {
	t.Parallel()
	pg := server.Get(t)
	dsn, session := pg.Database(t), newMailboxSession()
	old := schemaAt(t, dsn, 4)
	now := time.Now()
	_, err := old.ExecContext(t.Context(), `WITH
		s AS (INSERT INTO ossicle.mailbox (session, signals, notes) VALUES ($1, 3, 1)),
		a AS (INSERT INTO ossicle.mailbox_agent (session, id, harness, substrate, run, status, registered, seen) VALUES
			($1, 'a', '', '', $3, 'active', $2, $2), ($1, 'b', '', '', $3, 'active', $2, $2)),
		g AS (INSERT INTO ossicle.mailbox_signal (session, seq, id, time, sender, recipient, type, priority, depth, reply_to, metadata, content) VALUES
			($1, 1, 's1', $2, 'a', 'b', 'inform', '', 0, '', '{"é":1}', 'één'), ($1, 2, 's2', $2, 'a', '*', 'inform', '', 0, '', '', 'x'),
			($1, 3, 's3', $2, 'b', 'a', 'inform', '', 0, '', '', 'x')),
		r AS (INSERT INTO ossicle.mailbox_read (session, seq, agent, at) VALUES ($1, 1, 'b', $2))
		INSERT INTO ossicle.mailbox_note (session, seq, time, author, text) VALUES ($1, 1, $2, 'a', 'één')`, session, now.UnixNano(), runHash("r"))
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	db := openAt(t, dsn, nil)
	m := db.Mailbox(session, &mailbox.Retention{Count: 2, Bytes: -1, Age: time.Hour})
	holds := func(what string, want [5]int64) {
		t.Helper()
		var got [5]int64
		err := db.pool.QueryRow(t.Context(), `SELECT a.waiting, a.waiting_bytes, m.done, m.done_bytes, m.note_bytes
			FROM ossicle.mailbox m JOIN ossicle.mailbox_agent a USING (session) WHERE a.id = 'a'`).Scan(&got[0], &got[1], &got[2], &got[3], &got[4])
		if err != nil || got != want {
			t.Errorf("%s: %v, want %v, %v", what, got, want, err)
		}
	}
	holds("before anything is written", [5]int64{2, 14, 0, 0, 5})
	who := mailbox.Identity{Agent: "a", Run: "r"}
	send := func(id string, at time.Time) {
		t.Helper()
		if _, err := m.Send(t.Context(), who, mailbox.Signal{ID: id, Time: at, Recipient: "b", Type: mailbox.Inform, Content: "y"}, mailbox.Limits{}, at); err != nil {
			t.Fatal(err)
		}
	}
	send("s4", now)
	holds("the read one is done", [5]int64{2, 2, 1, 13, 5})
	if _, err := m.Ack(t.Context(), mailbox.Identity{Agent: "b", Run: "r"}, []string{"s4"}, now); err != nil {
		t.Fatal(err)
	}
	send("s5", now.Add(time.Hour))
	holds("what is done and old is gone", [5]int64{2, 2, 0, 0, 5})
	if p, err := m.Read(t.Context(), mailbox.Selection{Agent: "b", All: true}); err != nil || len(p.Signals) != 2 || p.Signals[0].ID != "s2" || p.Missed != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

// Sessions that nobody has used for long are removed with all that they have, a
// bounded number at a time; none that is young or was used since.
func TestRemoveMailboxes(t *testing.T) {
	t.Parallel()
	db := openAt(t, fresh(t), nil)
	now := time.Now()
	begin := func(id string, seen time.Time) {
		t.Helper()
		m := db.Mailbox(id, nil)
		for _, agent := range []string{"a", "b"} {
			if _, err := m.Register(t.Context(), mailbox.Registration{Agent: agent, Run: "r"}, seen.Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		s, err := m.Send(t.Context(), mailbox.Identity{Agent: "a", Run: "r"}, mailbox.Signal{ID: "s", Recipient: "b", Content: "x"}, mailbox.Limits{}, seen)
		if err == nil {
			_, err = m.Ack(t.Context(), mailbox.Identity{Agent: "b", Run: "r"}, []string{s.ID}, seen.Add(-time.Hour))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	long := now.Add(-90 * 24 * time.Hour)
	const first, second, third, used = "20250101_000000_00000001", "20250102_000000_00000002", "20250103_000000_00000003", "20250104_000000_00000004"
	young := mailbox.NewSessionID(now)
	for _, id := range []string{third, second, first} {
		begin(id, long.Add(-time.Millisecond))
	}
	begin(used, long)
	begin(young, long.Add(-time.Hour))     // by a clock that is wrong
	ahead := now.Add(365 * 24 * time.Hour) // by a clock that is wrong, too: that of who removes
	if removed, err := db.RemoveMailboxes(t.Context(), ahead, 300*24*time.Hour, 2); err != nil || len(removed) > 0 {
		t.Errorf("removed %v, %v", removed, err)
	}
	for _, want := range [][]string{{first, second}, {third}, {}} {
		removed, err := db.RemoveMailboxes(t.Context(), now, 90*24*time.Hour, 2)
		slices.Sort(removed)
		if err != nil || !slices.Equal(removed, want) {
			t.Errorf("removed %v, want %v, %v", removed, want, err)
		}
	}
	for _, table := range []string{"mailbox", "mailbox_agent", "mailbox_signal", "mailbox_read"} {
		var left int
		err := db.pool.QueryRow(t.Context(), `SELECT count(DISTINCT session) FROM ossicle.`+table).Scan(&left)
		if err != nil || left != 2 {
			t.Errorf("%s has %d sessions, %v", table, left, err)
		}
	}
}

// What keeps one session from being removed keeps no other, and those that are gone
// are told.
func TestRemoveMailboxesOneByOne(t *testing.T) {
	t.Parallel()
	db := openAt(t, fresh(t), nil)
	now := time.Now()
	const first, second = "20250101_000000_00000001", "20250102_000000_00000002"
	for _, id := range []string{first, second} {
		if _, err := db.Mailbox(id, nil).Register(t.Context(), mailbox.Registration{Agent: "a", Run: "r"}, now.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM ossicle.mailbox_agent WHERE session = $1 FOR UPDATE`, second); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	deadline := time.Now().Add(30 * time.Second)
	var removed []string
	ended := make(chan error, 1)
	go func() {
		var err error
		removed, err = db.RemoveMailboxes(ctx, now, 0, 2)
		ended <- err
	}()
	for waiting := false; !waiting; time.Sleep(5 * time.Millisecond) { // the server tells nobody who waits
		err := db.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the second is not waited for: %v", err)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !slices.Equal(removed, []string{first}) {
		t.Errorf("removed %v, %v", removed, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for removed = nil; err == nil && len(removed) == 0 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) { // the server takes a while to see that nobody waits any more
		removed, err = db.RemoveMailboxes(t.Context(), now, 0, 2)
	}
	if err != nil || !slices.Equal(removed, []string{second}) {
		t.Errorf("then removed %v, %v", removed, err)
	}
}
