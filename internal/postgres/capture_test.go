package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/feed"
)

const weird = `Üser; drop" table ''\ $body$`

// F-7: names are names, whatever is in them.
func TestNamesAreQuoted(t *testing.T) {
	t.Parallel()
	r := newRig(t, fresh(t), nil)
	r.exec(`CREATE SCHEMA ` + ident(weird))
	r.exec(fmt.Sprintf(`CREATE TABLE %[1]s.%[1]s (%[1]s text PRIMARY KEY, "b'\c" int)`, ident(weird)))
	c := Capture{Table: weird + "." + weird, Columns: []string{weird, `b'\c`}, Topic: "weird"}
	got := r.install(c)
	if want := (Captured{Table: weird + "." + weird, Topic: "weird", Columns: c.Columns, Key: []string{weird}, On: []string{Insert, Update, Delete}}); cmp.Diff(want, got) != "" {
		t.Errorf("%+v", got)
	}
	r.exec(`SET standard_conforming_strings = off`)
	r.exec(fmt.Sprintf(`INSERT INTO %[1]s.%[1]s VALUES ($1, 1)`, ident(weird)), weird)
	r.exec(fmt.Sprintf(`DELETE FROM %[1]s.%[1]s`, ident(weird)))
	events := r.payloads()
	if len(events) != 2 || !strings.Contains(string(events[0].New), `"b'\\c":1`) || r.events()[0].Key != weird {
		t.Errorf("%+v", events)
	}
	captures, err := r.db.Captures(t.Context())
	if diff := cmp.Diff([]Captured{got}, captures); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if err := r.db.Uninstall(t.Context(), c.Table); err != nil {
		t.Error(err)
	}
}

func TestWhichTableIsMeant(t *testing.T) {
	t.Parallel()
	r := newRig(t, fresh(t), nil)
	r.exec(`CREATE SCHEMA shop; CREATE TABLE shop.orders (a int, b int, PRIMARY KEY (b, a)); CREATE TABLE orders (id uuid); CREATE TABLE "Orders" (x int); CREATE TABLE "shop.orders" (y int); CREATE VIEW v AS SELECT 1 AS x; CREATE TEMP TABLE t (x int)`)
	for _, tc := range []struct {
		name, column, table string
		key                 []string
	}{
		{"orders", "id", "public.orders", nil},
		{"ORDERS", "id", "public.orders", nil},
		{"Orders", "x", "public.Orders", nil},
		{`"Orders"`, "x", "public.Orders", nil},
		{"shop.orders", "y", "public.shop.orders", nil},
		{`shop."orders"`, "a", "shop.orders", []string{"b", "a"}},
		{"public.orders", "id", "public.orders", nil},
	} {
		got, err := r.db.Install(t.Context(), Capture{Table: tc.name, Columns: []string{tc.column}, Topic: "x"})
		if err != nil || got.Table != tc.table || cmp.Diff(tc.key, got.Key) != "" {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
		}
	}
	r.exec(`INSERT INTO shop.orders VALUES (1, 2)`)
	r.exec(`INSERT INTO orders VALUES ('00000000-0000-0000-0000-00000000000f')`)
	r.drain()
	if events := r.events(); len(events) != 2 || events[0].Key != "2/1" || events[1].Key != "" {
		t.Errorf("%+v", events)
	}
	for name, c := range map[string]Capture{
		"none":           {Table: "none", Columns: []string{"id"}},
		"no syntax":      {Table: `a"b.c`, Columns: []string{"id"}},
		"view":           {Table: "v", Columns: []string{"x"}},
		"temporary":      {Table: "t", Columns: []string{"x"}},
		"ours":           {Table: "ossicle.feed_outbox", Columns: []string{"id"}},
		"catalogue":      {Table: "pg_class", Columns: []string{"relname"}},
		"no columns":     {Table: "orders"},
		"no such column": {Table: "orders", Columns: []string{"nope"}},
		"system column":  {Table: "orders", Columns: []string{"ctid"}},
		"no such key":    {Table: "orders", Columns: []string{"id"}, Key: []string{"nope"}},
		"topic":          {Table: "orders", Columns: []string{"id"}, Topic: "No Topic"},
		"change":         {Table: "orders", Columns: []string{"id"}, On: []string{"truncate; drop"}},
	} {
		_, err := r.db.Install(t.Context(), c)
		var invalid *feed.InvalidError
		if !errors.As(err, &invalid) && !errors.Is(err, ErrNoTable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// F-7: a partitioned table is captured as a whole, partitions that come later and
// writes to a partition itself included.
func TestPartitions(t *testing.T) {
	t.Parallel()
	r := newRig(t, fresh(t), nil)
	r.exec(`CREATE TABLE m (id int, part int, v text, PRIMARY KEY (id, part)) PARTITION BY LIST (part); CREATE TABLE m1 PARTITION OF m FOR VALUES IN (1)`)
	r.install(Capture{Table: "m", Columns: []string{"id", "v"}, Key: []string{"id"}})
	r.exec(`CREATE TABLE m2 PARTITION OF m FOR VALUES IN (2); CREATE TABLE m3 (part int NOT NULL, v text, id int NOT NULL); ALTER TABLE m ATTACH PARTITION m3 FOR VALUES IN (3)`)
	r.exec(`SET session_replication_role = 'replica'`) // every clone must be enabled always
	r.exec(`INSERT INTO m VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')`)
	r.exec(`INSERT INTO m2 VALUES (4, 2, 'd')`)
	r.exec(`RESET session_replication_role`)
	r.exec(`UPDATE m SET part = 2 WHERE id = 1`)
	r.exec(`TRUNCATE m`)
	r.drain()
	var got []string
	for _, e := range r.events() {
		got = append(got, e.Type+" "+e.Key)
	}
	if diff := cmp.Diff([]string{"insert 1", "insert 2", "insert 3", "insert 4", "delete 1", "insert 1", "truncate "}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if captures, err := r.db.Captures(t.Context()); err != nil || len(captures) != 1 || captures[0].Problem != "" {
		t.Errorf("%+v, %v", captures, err)
	}
	if err := r.db.Uninstall(t.Context(), "m"); err != nil {
		t.Error(err)
	}
	r.exec(`INSERT INTO m VALUES (9, 3, 'x')`)
	r.drain()
	if len(r.events()) != 7 {
		t.Error("a partition is still captured")
	}
}

// F-7: a partition may be captured besides its table, in whatever order, and a table
// that is captured can become a partition of another.
func TestAPartitionIsCapturedBesides(t *testing.T) {
	t.Parallel()
	r := newRig(t, fresh(t), nil)
	r.exec(`CREATE TABLE m (id int, part int) PARTITION BY LIST (part); CREATE TABLE m1 PARTITION OF m FOR VALUES IN (1); CREATE TABLE m2 PARTITION OF m FOR VALUES IN (2); CREATE TABLE m3 (id int, part int)`)
	for _, table := range []string{"m1", "m", "m2", "m3"} {
		r.install(Capture{Table: table, Columns: []string{"id"}})
	}
	r.exec(`ALTER TABLE m ATTACH PARTITION m3 FOR VALUES IN (3); INSERT INTO m VALUES (1, 1), (2, 2), (3, 3)`)
	r.drain()
	got := map[string]int{}
	for _, e := range r.events() {
		got[e.Topic]++
	}
	if diff := cmp.Diff(map[string]int{"m": 3, "m1": 1, "m2": 1, "m3": 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := r.db.Uninstall(t.Context(), "m2"); err != nil {
		t.Error(err)
	}
	captures, err := r.db.Captures(t.Context())
	if err != nil || len(captures) != 3 || slices.ContainsFunc(captures, func(c Captured) bool { return c.Problem != "" }) {
		t.Errorf("%+v, %v", captures, err)
	}
}

// F-7: only the changes that are asked for; a second installation replaces the
// first; uninstalling keeps what waits and leaves nothing behind.
func TestInstallAgainAndUninstall(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	r.install(Capture{Table: "incidents", Columns: []string{"status"}, On: []string{Update}, Topic: "other"})
	r.exec(`INSERT INTO incidents VALUES (1, 'SEV1', 'open')`)
	r.exec(`UPDATE incidents SET status = 'closed'`)
	r.exec(`DELETE FROM incidents`)
	r.exec(`TRUNCATE incidents`)
	if lag, err := r.db.Outbox(nil).Lag(t.Context()); err != nil || lag.Rows != 1 || lag.Age <= 0 {
		t.Errorf("lag %+v, %v", lag, err) // F-31
	}
	r.exec(`ALTER TABLE incidents DISABLE TRIGGER ossicle_capture_1`)
	captures, err := r.db.Captures(t.Context())
	if err != nil || len(captures) != 1 || !strings.Contains(captures[0].Problem, "disabled") {
		t.Errorf("%+v, %v", captures, err)
	}
	if err := r.db.Uninstall(t.Context(), "incidents"); err != nil {
		t.Fatal(err)
	}
	if err := r.db.Uninstall(t.Context(), "incidents"); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("again: %v", err)
	}
	if err := r.db.Uninstall(t.Context(), "none"); !errors.Is(err, ErrNoTable) {
		t.Errorf("no table: %v", err)
	}
	r.exec(`INSERT INTO incidents VALUES (2)`)
	r.drain()
	if diff := cmp.Diff([]told{{"other", Update, "1", `{"op":"update","new":{"status":"closed"},"old":{"status":"open"},"table":"public.incidents"}`}}, tell(r.events())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var left int
	if err := r.conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_proc WHERE proname LIKE 'capture_%') + (SELECT count(*) FROM ossicle.feed_capture) + (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'ossicle%')`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d things left, %v", left, err)
	}
	r.install(Capture{Table: "incidents", Columns: []string{"status"}})
	r.exec(`DROP TABLE incidents`)
	if captures, err := r.db.Captures(t.Context()); err != nil || len(captures) != 1 || captures[0].Table != "" || captures[0].Problem == "" {
		t.Errorf("%+v, %v", captures, err)
	}
	if err := r.db.Uninstall(t.Context(), "incidents"); !errors.Is(err, ErrNoTable) {
		t.Errorf("a table that is gone: %v", err)
	}
	if captures, err := r.db.Captures(t.Context()); err != nil || len(captures) != 0 {
		t.Errorf("what is gone is not forgotten: %+v, %v", captures, err)
	}
	r.exec(`CREATE TABLE incidents (id int, status text)`)
	twice := Capture{Table: "incidents", Columns: []string{"id", "status", "id"}, On: []string{Update, Insert, Update}}
	if got := r.install(twice); !slices.Equal(got.Columns, []string{"id", "status"}) || !slices.Equal(got.On, []string{Update, Insert}) {
		t.Errorf("names that are given twice: %+v", got)
	}
	if err := r.db.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname = 'ossicle'`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d schemas left, %v", left, err)
	}
	_, err = r.db.Feed().Append(t.Context(), []feed.Draft{{Topic: "a", Type: "x", Data: []byte("1")}})
	if err == nil || strings.Count(err.Error(), "does not exist") != 1 {
		t.Errorf("what a process that still serves is told: %v", err)
	}
}

// A table that somebody writes to is not waited for so long that others queue.
func TestInstallGivesUp(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	r.exec(`BEGIN; INSERT INTO incidents VALUES (1)`)
	if _, err := r.db.Install(t.Context(), Capture{Table: "incidents", Columns: []string{"id"}}); !errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	r.exec(`ROLLBACK`)
}

// F-7: the script does what Install does, and nothing is changed by asking for it.
func TestTheScript(t *testing.T) {
	t.Parallel()
	pg := server.Get(t)
	dsn := pg.Database(t)
	pg.SQL(t, dsn, incidents)
	c := Capture{Table: "incidents", Columns: []string{"id", "status"}}
	script, err := InstallScript(t.Context(), dsn, c)
	if err != nil {
		t.Fatal(err)
	}
	if got := pg.SQL(t, dsn, `SELECT to_regnamespace('ossicle') IS NULL`); got != "t" {
		t.Error("asking for the script made the schema")
	}
	pg.SQL(t, dsn, script)
	r := newRig(t, dsn, nil)
	r.exec(`INSERT INTO incidents VALUES (1, 'SEV1', 'open')`)
	captures, err := r.db.Captures(t.Context())
	if got := r.payloads(); err != nil || len(got) != 1 || len(captures) != 1 || captures[0].Problem != "" || string(got[0].New) != `{"id":1,"status":"open"}` {
		t.Errorf("%+v, %+v, %v", got, captures, err)
	}
	if script, err = InstallScript(t.Context(), dsn, c); err != nil || strings.Contains(script, "CREATE TABLE") {
		t.Errorf("again: %v\n%s", err, script)
	}
	pg.SQL(t, dsn, script)
	r.exec(`DELETE FROM incidents`)
	if got := r.payloads(); len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

// A role that may create a schema, and no more, is enough; what somebody else
// installs runs with its rights.
func TestAnOrdinaryRole(t *testing.T) {
	t.Parallel()
	pg := server.Get(t)
	root := pg.Database(t)
	pg.SQL(t, root, `DO $$ BEGIN CREATE ROLE plain LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$`, `DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO plain', current_database()); END $$`, incidents,
		`CREATE TABLE own (id int PRIMARY KEY)`, `ALTER TABLE own OWNER TO plain`)
	plain := strings.Replace(root, "postgres@", "plain@", 1)
	r := newRig(t, plain, nil)
	first := head(t, r.db)
	r.install(Capture{Table: "own", Columns: []string{"id"}})
	r.exec(`INSERT INTO own VALUES (1)`)
	if _, err := r.db.Install(t.Context(), Capture{Table: "incidents", Columns: []string{"id"}}); code(err) != "42501" {
		t.Errorf("a table of somebody else: %v", err)
	}
	owner := openAt(t, root, nil)
	if _, err := owner.Install(t.Context(), Capture{Table: "incidents", Columns: []string{"id"}}); err != nil {
		t.Error(err)
	}
	if got := pg.SQL(t, root, `SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE proname ~ '^capture_' GROUP BY 1`); got != "plain" {
		t.Errorf("the functions belong to %s", got)
	}
	pg.SQL(t, root, `INSERT INTO incidents VALUES (1)`)
	r.run(r.db)
	if got := take(t, r.follow(r.db), 2); got[0].Topic != "own" || got[1].Topic != "incidents" {
		t.Errorf("%+v", got)
	}
	if now := head(t, owner); now.Epoch != first.Epoch {
		t.Errorf("two roles, two logs: %v and %v", first, now)
	}
	poor := strings.Replace(pg.Database(t), "postgres@", "plain@", 1)
	if _, err := Open(t.Context(), poor, nil); err == nil || !strings.Contains(err.Error(), "CREATE on the database") {
		t.Errorf("%v", err)
	}
}
