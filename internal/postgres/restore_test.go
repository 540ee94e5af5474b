package postgres

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/testserver"
)

func appendTo(t *testing.T, db *DB, n int) feed.Position {
	t.Helper()
	for range n {
		if _, err := db.Feed().Append(t.Context(), []feed.Draft{{Topic: "a", Type: "up", Data: []byte(`1`)}}); err != nil {
			t.Fatal(err)
		}
	}
	return head(t, db)
}

func head(t *testing.T, db *DB) feed.Position {
	t.Helper()
	page, err := db.Feed().Read(t.Context(), feed.Query{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return page.Head
}

// appendAgain appends when the connections of before have been found broken.
func appendAgain(t *testing.T, db *DB) feed.Position {
	t.Helper()
	for range 20 {
		if _, err := db.Feed().Append(t.Context(), []feed.Draft{{Topic: "a", Type: "up", Data: []byte(`1`)}}); err == nil {
			return headAgain(t, db)
		}
	}
	t.Fatal("the server does not come back")
	return feed.Position{}
}

func headAgain(t *testing.T, db *DB) feed.Position {
	t.Helper()
	for range 20 {
		if page, err := db.Feed().Read(t.Context(), feed.Query{Limit: 1}); err == nil {
			return page.Head
		}
	}
	t.Fatal("the server does not come back")
	return feed.Position{}
}

// closed opens a database for a moment.
func closed(t *testing.T, dsn string, n int) feed.Position {
	t.Helper()
	db, err := Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	return appendTo(t, db, n)
}

// F-1: a dump that is restored, be it elsewhere or in the same place, has the same
// ids in another log, which goes on behind them; and nothing else is another log.
func TestDumpAndRestore(t *testing.T) {
	t.Parallel()
	pg := server.Get(t)
	dsn := pg.Database(t)
	first := closed(t, dsn, 3)
	for _, harmless := range []string{`VACUUM FREEZE ossicle.feed_log`, `VACUUM FULL`, `CHECKPOINT`, `CLUSTER ossicle.feed_log USING feed_log_pkey`} {
		pg.SQL(t, dsn, harmless)
		if again := closed(t, dsn, 1); again.Epoch != first.Epoch {
			t.Errorf("%s made another log: %v after %v", harmless, again, first)
		}
	}
	dumped := closed(t, dsn, 0)
	file := filepath.Join(t.TempDir(), "dump")
	if err := os.WriteFile(file, pg.Tool(t, "pg_dump", "-Fc", "-d", dsn), 0o600); err != nil {
		t.Fatal(err)
	}
	readable(t, file)

	elsewhere := pg.Database(t)
	pg.Tool(t, "pg_restore", "-d", elsewhere, file)
	if got := closed(t, elsewhere, 0); got.Epoch == dumped.Epoch || got.ID != dumped.ID {
		t.Errorf("elsewhere: %v after %v", got, dumped)
	}
	other := testserver.PostgreSQL(t)
	pg.Tool(t, "pg_restore", "-d", other.DSN, file)
	if got := closed(t, other.DSN, 0); got.Epoch == dumped.Epoch || got.ID != dumped.ID {
		t.Errorf("on another server: %v after %v", got, dumped)
	}

	// In place, under a process that goes on, with events after the dump.
	db := openAt(t, dsn, nil)
	grown := appendTo(t, db, 2)
	pg.Tool(t, "pg_restore", "-d", dsn, "--clean", "--if-exists", file)
	restored := appendTo(t, db, 1)
	if restored.Epoch == grown.Epoch || restored.ID != dumped.ID+1 {
		t.Errorf("in place: %v after %v of %v", restored, dumped, grown)
	}
	pg.SQL(t, dsn, `TRUNCATE ossicle.feed_log, ossicle.feed_event, ossicle.feed_topic, ossicle.feed_idempotency, ossicle.feed_capture, ossicle.feed_outbox`)
	pg.Tool(t, "pg_restore", "-d", dsn, "--data-only", "--schema=ossicle", "--table=feed_log", "--table=feed_event", "--table=feed_topic", file)
	if again := appendTo(t, db, 1); again.Epoch == restored.Epoch || again.Epoch == dumped.Epoch || again.ID != dumped.ID+1 {
		t.Errorf("the data alone: %v after %v of %v", again, dumped, restored)
	}
}

// readable lets the user of the server's programs read a file of ours.
func readable(t *testing.T, file string) {
	t.Helper()
	for dir := file; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// F-1: a client from before the restore is told.
func TestAClientFromBeforeTheRestoreIsTold(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	before := appendTo(t, r.db, 5)
	s := r.follow(r.db)
	take(t, s, 5)
	r.exec(`DELETE FROM ossicle.feed_event WHERE id > 3`)
	r.exec(`UPDATE ossicle.feed_log SET head = 3`) // as a restore does: by a transaction that the row does not name
	if err := r.db.Bus().Ring(t.Context(), feed.Position{}); err != nil {
		t.Fatal(err)
	}
	appendTo(t, r.db, 3)
	if err := r.db.Bus().Ring(t.Context(), feed.Position{}); err != nil {
		t.Fatal(err)
	}
	b, err := s.Next(t.Context())
	if err != nil || b.Gap == nil || b.Gap.Reason != feed.Epoch || b.Position.Epoch == before.Epoch {
		t.Fatalf("%+v, %v", b, err)
	}
	if got := take(t, s, 6); got[5].ID != 6 || got[5].Epoch == before.Epoch {
		t.Errorf("%+v", got)
	}
}

// F-1: a server that was set back to a copy of its files, and a standby that takes
// over, begin another log, too.
func TestFilesPutBackAndTakeover(t *testing.T) {
	t.Parallel()
	pg := testserver.PostgreSQL(t)
	db := openAt(t, pg.DSN, nil)
	first := appendTo(t, db, 3)
	data := pg.SQL(t, pg.DSN, `SHOW data_directory`)
	pg.Stop(t)
	run(t, "cp", "-a", data, data+"-copy")
	pg.Start(t)
	grown := appendAgain(t, db)
	pg.Stop(t)
	run(t, "rm", "-rf", data)
	run(t, "mv", data+"-copy", data)
	pg.Start(t)
	// Only who has seen more can know.
	back := headAgain(t, db)
	if back.Epoch == grown.Epoch || back.ID != first.ID {
		t.Errorf("put back: %v after %v", back, grown)
	}
	if next := closed(t, pg.DSN, 0); next != back {
		t.Errorf("opened once more: %v after %v", next, back)
	}

	pg.Stop(t)
	run(t, "touch", filepath.Join(data, "standby.signal"))
	pg.Start(t)
	if _, err := Open(t.Context(), pg.DSN, nil); err == nil || !strings.Contains(err.Error(), "standby") {
		t.Errorf("a standby: %v", err)
	}
	pg.SQL(t, pg.DSN, `SELECT pg_promote()`)
	if promoted := appendAgain(t, db); promoted.Epoch == back.Epoch || promoted.ID <= back.ID {
		t.Errorf("promoted: %v after %v", promoted, back)
	}
}

// F-1: in another log, too, no id is given again, though its event is trimmed.
func TestIDsOutliveTheirEvents(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	before := appendTo(t, r.db, 5)
	for more := true; more; {
		var err error
		if more, err = r.db.Feed().Trim(t.Context(), "a", feed.Retention{Age: time.Nanosecond}); err != nil {
			t.Fatal(err)
		}
	}
	r.exec(`UPDATE ossicle.feed_log SET home = 'elsewhere'`)
	if after := appendTo(t, r.db, 1); len(r.events()) != 1 || after.Epoch == before.Epoch || after.ID != 6 {
		t.Errorf("%v after %v", after, before)
	}
}
