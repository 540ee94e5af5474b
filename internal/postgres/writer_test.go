package postgres

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/testserver"
)

type payload struct {
	Op      string          `json:"op"`
	New     json.RawMessage `json:"new"`
	Old     json.RawMessage `json:"old"`
	Omitted []string        `json:"omitted"`
}

func (r *rig) payloads() (all []payload) {
	r.tb.Helper()
	r.drain()
	for _, e := range r.events() {
		var p payload
		if err := json.Unmarshal(e.Data, &p); err != nil || len(e.Data) > feed.MaxData {
			r.tb.Fatalf("%d bytes, %v", len(e.Data), err)
		}
		if _, err := feed.Clean([]feed.Draft{{Topic: e.Topic, Type: e.Type, Key: e.Key, Data: e.Data}}); err != nil {
			r.tb.Errorf("%.100s: %v", e.Data, err)
		}
		all = append(all, p)
	}
	return all
}

// F-7: whatever is in a row, its transaction commits; what does not fit into an
// event is said to be missing.
func TestNoRowIsTooMuch(t *testing.T) {
	t.Parallel()
	r := newRig(t, fresh(t), nil)
	r.exec(`CREATE TABLE docs (id text PRIMARY KEY, body text, raw json, price numeric, at timestamptz, blob bytea, ratio float8)`)
	r.install(Capture{Table: "docs", Columns: []string{"id", "body", "raw", "price", "at", "ratio"}})
	r.exec(`SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'; SET extra_float_digits = -5`)
	r.exec(`INSERT INTO docs VALUES ('a', 'short', '{"n": 1e2}', 1.50, '2026-01-01 00:00Z', '\x00', 0.1)`)
	r.exec(`UPDATE docs SET body = repeat('x', 200000)`)
	r.exec(`UPDATE docs SET body = repeat('y', 200000)`)             // both together are too much
	r.exec(`UPDATE docs SET body = repeat(E'\x01', 100000)`)         // six times as long as JSON
	r.exec(`UPDATE docs SET body = 'short', raw = '{"a":"\u0000"}'`) // JSON that has no text
	r.exec(`UPDATE docs SET raw = NULL, price = 'NaN'`)
	r.exec(`UPDATE docs SET id = repeat('k', 2000)`)
	r.exec(`UPDATE docs SET id = E'\x1b[0m\u0085'`)
	r.exec(`UPDATE docs SET id = 'ü "quoted" \'`)
	r.exec(`DELETE FROM docs`)
	r.exec(`INSERT INTO docs VALUES ('a', repeat('z', 280000000))`) // more than JSON can hold here
	got := r.payloads()
	events := r.events()
	var omitted [][]string
	for _, p := range got {
		omitted = append(omitted, p.Omitted)
	}
	both := []string{"new", "old"}
	want := [][]string{nil, nil, {"old"}, {"old", "new"}, both, both, nil, nil, nil, nil, {"new"}} // an insert has no old
	if diff := cmp.Diff(want, omitted); diff != "" {
		t.Errorf("omitted (-want +got):\n%s", diff)
	}
	if first := `{"at":"2026-01-01T00:00:00+00:00","id":"a","raw":{"n":100},"body":"short","price":1.50,"ratio":0.1}`; string(got[0].New) != first {
		t.Errorf("%s", got[0].New)
	}
	var keys []string
	for _, e := range events {
		keys = append(keys, e.Key)
	}
	wantKeys := []string{"a", "a", "a", "a", "a", "a", "", "", `ü "quoted" \`, `ü "quoted" \`, "a"}
	for i, key := range keys {
		if hashed := len(key) == 36 && strings.HasPrefix(key, "md5:"); key != wantKeys[i] && (wantKeys[i] != "" || !hashed) {
			t.Errorf("key %d: %q", i, key)
		}
	}
}

// F-7: a table that has changed since is still captured, as far as its columns go
// by the same names, in sessions that were there before as in new ones.
func TestTheTableChanges(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	r.exec(`INSERT INTO incidents VALUES (1, 'SEV1', 'open')`)
	other := r.connect()
	for _, change := range []string{
		`ALTER TABLE incidents RENAME COLUMN severity TO sev`,
		`ALTER TABLE incidents ALTER COLUMN status TYPE varchar(100)`,
		`ALTER TABLE incidents ALTER COLUMN id TYPE numeric`,
		`ALTER TABLE incidents ADD COLUMN extra jsonb NOT NULL DEFAULT '{}'`,
		`ALTER TABLE incidents DROP COLUMN status`,
		`ALTER TABLE incidents RENAME COLUMN id TO ident`,
		`ALTER TABLE incidents RENAME TO accidents; CREATE VIEW incidents AS SELECT * FROM accidents`,
	} {
		if _, err := other.Exec(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		r.exec(`UPDATE incidents SET note = 'x'`)
	}
	var fields []string
	for _, p := range r.payloads() {
		fields = append(fields, string(p.New)+strings.Join(p.Omitted, ","))
	}
	want := []string{
		`{"id":1,"status":"open","severity":"SEV1"}`, `{"id":1,"status":"open"}`, `{"id":1,"status":"open"}`, `{"id":1,"status":"open"}`,
		`{"id":1,"status":"open"}`, `{"id":1}`, `{}`, `{}`,
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	captures, err := r.db.Captures(t.Context())
	if err != nil || len(captures) != 1 || captures[0].Table != "public.accidents" || !strings.Contains(captures[0].Problem, "id, severity, status") {
		t.Errorf("%+v, %v", captures, err)
	}
	r.install(Capture{Table: "accidents", Columns: []string{"ident", "sev"}, Topic: "incidents"})
	r.exec(`UPDATE accidents SET note = 'y'`)
	all := r.payloads()
	if last := all[len(all)-1]; string(last.New) != `{"sev":"SEV1","ident":1}` {
		t.Errorf("%s", last.New)
	}
	if captures, err := r.db.Captures(t.Context()); err != nil || len(captures) != 1 || captures[0].Problem != "" {
		t.Errorf("%+v, %v", captures, err)
	}
}

// F-7: with the queue of notifications nearly full, writers commit and do not ring;
// the sign of life finds what they wrote.
func TestTheQueueOfNotificationsIsFull(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	rang := r.rings()
	insert := func() { r.exec(`INSERT INTO incidents VALUES ((SELECT count(*) + 1 FROM incidents))`) }
	if !rang(insert) {
		t.Error("it does not ring")
	}
	// To fill the queue takes gigabytes.
	var definition string
	if err := r.conn.QueryRow(t.Context(), `SELECT pg_get_functiondef('ossicle.feed_rings'::regproc)`).Scan(&definition); err != nil {
		t.Fatal(err)
	}
	full := strings.Replace(definition, "pg_catalog.pg_notification_queue_usage()", "0.9", 1)
	if full == definition {
		t.Fatal(definition)
	}
	r.exec(full)
	if rang(insert) {
		t.Error("it rings")
	}
	r.exec(definition)
	if !rang(insert) {
		t.Error("it does not ring again")
	}
	r.exec(full)
	r.drain()
	db := openAt(t, r.dsn, &Options{Keepalive: 200 * time.Millisecond})
	r.run(db)
	s := r.follow(db)
	take(t, s, 3)
	insert()
	take(t, s, 1)
}

// F-7: a writer holds nothing of the feed that another would wait for (of the
// advisory lock it only sees whether it is free): two
// transactions that write at the same time go past each other, and past a drain.
func TestWritersDoNotMeet(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	other := r.connect()
	r.exec(`BEGIN; INSERT INTO incidents VALUES (1)`)
	var locks string
	if err := r.conn.QueryRow(t.Context(), `SELECT string_agg(DISTINCT l.mode || ' ' || coalesce(c.relname, l.locktype), ', ' ORDER BY l.mode || ' ' || coalesce(c.relname, l.locktype))
		FROM pg_locks l LEFT JOIN pg_class c ON c.oid = l.relation AND l.locktype = 'relation'
		WHERE l.pid = pg_backend_pid() AND (l.locktype = 'advisory' OR c.relnamespace = 'ossicle'::regnamespace)`).Scan(&locks); err != nil {
		t.Fatal(err)
	}
	if want := "ExclusiveLock advisory, RowExclusiveLock feed_outbox, RowExclusiveLock feed_outbox_id_seq"; locks != want {
		t.Errorf("it holds %s", locks)
	}
	for _, sql := range []string{`SET lock_timeout = '1s'`, `BEGIN; INSERT INTO incidents VALUES (2)`, `COMMIT`} {
		if _, err := other.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.payloads(); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	r.exec(`COMMIT`)
	if got := r.payloads(); len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

// F-7: the server forbids to prepare a transaction that has notified; a silent
// trigger leaves such writers alone.
func TestPreparedTransactions(t *testing.T) {
	t.Parallel()
	pg := testserver.PostgreSQL(t, "max_prepared_transactions=5")
	r := newRig(t, pg.DSN, nil)
	r.exec(incidents)
	r.install(Capture{Table: "incidents", Columns: []string{"id"}, Silent: true})
	r.exec(`BEGIN; INSERT INTO incidents VALUES (1); PREPARE TRANSACTION 'x'`)
	o := r.db.Outbox(nil)
	if d, err := o.drain(t.Context(), 0); err != nil || d.moved != 0 || d.writers != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	r.exec(`COMMIT PREPARED 'x'`)
	if got := r.payloads(); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

// F-7: the feed needs nothing of a writer: no right, no search path, no row
// security; and it takes what replication applies.
func TestWritersOfAllKinds(t *testing.T) {
	t.Parallel()
	r := newIncidents(t)
	role := "writer_" + strings.ToLower(r.conn.Config().Database)
	r.exec(`CREATE ROLE ` + role + `; GRANT INSERT, SELECT, UPDATE ON incidents TO ` + role + `; GRANT CREATE ON SCHEMA public TO ` + role)
	r.exec(`ALTER TABLE incidents ENABLE ROW LEVEL SECURITY; CREATE POLICY mine ON incidents USING (id < 100) WITH CHECK (id < 100)`)
	r.exec(`ALTER TABLE incidents ADD COLUMN twice bigint GENERATED ALWAYS AS (id * 2) STORED`)
	r.install(Capture{Table: "incidents", Columns: []string{"id", "twice"}})
	r.exec(`SET ROLE ` + role)
	// What the trigger calls must not be found in the writer's path.
	r.exec(`CREATE FUNCTION public.steal(int, int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'as %', current_user; END $$`)
	r.exec(`CREATE FUNCTION public.steal(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'as %', current_user; END $$`)
	r.exec(`CREATE OPERATOR public.<= (LEFTARG = int, RIGHTARG = int, FUNCTION = public.steal)`)
	r.exec(`CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.steal)`)
	r.exec(`CREATE FUNCTION public.octet_length(text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'as %', current_user; END $$`)
	r.exec(`CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'as %', current_user; END $$`)
	r.exec(`SET search_path = public, pg_catalog`)
	r.exec(`INSERT INTO incidents VALUES (1, 'SEV1')`)
	r.exec(`UPDATE incidents SET status = repeat('x', 10)`)
	for _, forbidden := range []string{
		`INSERT INTO ossicle.feed_outbox (topic, type, key, data) VALUES ('a', 'insert', '', '{}')`, `SELECT ossicle.feed_record('a', 'a', 'a', 'a', NULL, NULL, true)`,
		`SELECT * FROM ossicle.feed_event`, `INSERT INTO incidents VALUES (100)`,
	} {
		if _, err := r.conn.Exec(t.Context(), forbidden); code(err) != "42501" {
			t.Errorf("%s: %v", forbidden, err)
		}
	}
	r.exec(`RESET ROLE; RESET search_path; SET session_replication_role = 'replica'`)
	r.exec(`INSERT INTO incidents VALUES (200, 'SEV1')`)
	r.exec(`RESET session_replication_role`)
	r.drain()
	want := []told{
		{"incidents", Insert, "1", `{"op":"insert","new":{"id":1,"twice":2},"table":"public.incidents"}`},
		{"incidents", Update, "1", `{"op":"update","new":{"id":1,"twice":2},"old":{"id":1,"twice":2},"table":"public.incidents"}`},
		{"incidents", Insert, "200", `{"op":"insert","new":{"id":200,"twice":400},"table":"public.incidents"}`},
	}
	if diff := cmp.Diff(want, tell(r.events())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
