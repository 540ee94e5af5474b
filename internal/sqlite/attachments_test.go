package sqlite

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/ledger"
)

// Reports outlive the process, each for its session, and hold no secret in any
// file of the store.
//
//
func TestAttachmentReports(t *testing.T) {
	t.Parallel()
	const canary = "kanarie-hunter2"
	path := filepath.Join(t.TempDir(), "x.db")
	db := open(t, path, nil)
	reports := map[string]attach.Report{}
	for i, session := range []string{"a", "b", "a"} {
		l := ledger.Open(t.Context(), db.Attachments(), session, nil)
		a, err := l.Begin(t.Context(), ledger.Execution{ID: fmt.Sprint("x", i)})
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []attach.Kind{attach.ServerDelivered, attach.ToolsListObserved, attach.RequestError} {
			a.Take(attach.Evidence{Server: "of " + session, Kind: kind, OccurredAt: time.Now(), Detail: attach.Detail{
				Target: "https://u:" + canary + "@h.example/" + canary, Summary: "Authorization: Bearer " + canary, ConnectionID: canary,
			}})
		}
		reports[session] = l.Report()
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if text, err := os.ReadFile(path + suffix); err == nil && strings.Contains(string(text), canary) {
			t.Errorf("%s holds the secret", path+suffix)
		}
	}
	db = open(t, path, nil)
	for session, want := range reports {
		l := ledger.Open(t.Context(), db.Attachments(), session, nil)
		if d := cmp.Diff(want, l.Report()); d != "" {
			t.Errorf("%s: %s", session, d)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := len(reports["a"].Attempts); n != 2 {
		t.Errorf("%d attempts", n)
	}
	if err := db.Attachments().DeleteReport(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if b, err := db.Attachments().LoadReport(t.Context(), "a"); b != nil || err != nil {
		t.Errorf("%s, %v", b, err)
	}
	if b, err := db.Attachments().LoadReport(t.Context(), "b"); b == nil || err != nil {
		t.Errorf("%s, %v", b, err)
	}
}

// Of more reports than are kept the one goes that was written longest ago, in a file
// of before, too.
func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	old := fstest.MapFS{}
	for n := 1; n <= 8; n++ {
		names, err := fs.Glob(migrations, fmt.Sprintf("migrations/%05d_*.sql", n))
		if err != nil || len(names) != 1 {
			t.Fatal(names, err)
		}
		text, err := fs.ReadFile(migrations, names[0])
		if err != nil {
			t.Fatal(err)
		}
		old[names[0]] = &fstest.MapFile{Data: text}
	}
	before, err := openSchema(t.Context(), path, nil, old, "migrations")
	if err == nil {
		_, err = before.writer.db.ExecContext(t.Context(), `INSERT INTO attachment_report (session, report) VALUES ('before', '{}')`)
	}
	if err == nil {
		err = before.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	db := open(t, path, nil)
	store := db.Attachments()
	save := func(session string) {
		t.Helper()
		if err := store.SaveReport(t.Context(), session, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	there := func(session string) bool {
		t.Helper()
		report, err := store.LoadReport(t.Context(), session)
		if err != nil {
			t.Fatal(err)
		}
		return report != nil
	}
	if _, err := db.writer.db.ExecContext(t.Context(), `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 3)
		INSERT INTO attachment_report (session, report, touched) SELECT 's' || i, '{}', i + 1 FROM n`, KeepReports); err != nil {
		t.Fatal(err)
	}
	save("last")
	if !there("before") {
		t.Error("one went too early")
	}
	save("s0") // again
	save("new")
	if there("before") || !there("s0") || !there("s1") {
		t.Errorf("not the oldest went: %v, %v, %v", there("before"), there("s0"), there("s1"))
	}
	save("newer")
	if there("s1") || !there("s0") || !there("newer") {
		t.Errorf("not the oldest went: %v, %v", there("s1"), there("s0"))
	}
}
