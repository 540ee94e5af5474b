package interop

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/testserver"
)

// F-7, F-8: a table is captured and released by commands, and its rows are events
// of a daemon on the same store, from its first start on.
func TestRowsBecomeEvents(t *testing.T) {
	t.Parallel()
	server := testserver.PostgreSQL(t)
	dsn := server.Database(t)
	server.SQL(t, dsn, `CREATE TABLE incidents (id int PRIMARY KEY, severity text, secret text)`)
	if script := must(t, "pg", "install", "--store", dsn, "--table", "incidents", "--columns", "id,severity", "--print"); !strings.Contains(script, "CREATE TRIGGER") && !strings.Contains(script, "CREATE OR REPLACE TRIGGER") {
		t.Errorf("the script has no trigger:\n%s", script)
	}
	if got := must(t, "pg", "status", "--store", dsn); !strings.Contains(got, "no tables are captured") {
		t.Errorf("after --print: %s", got)
	}
	must(t, "pg", "install", "--store", dsn, "--table", "incidents", "--columns", "id,severity")
	server.SQL(t, dsn, `INSERT INTO incidents VALUES (7, 'high', 'x')`) // nobody drains yet
	d := newDaemon(t, nil, "--store", dsn)
	server.SQL(t, dsn, `UPDATE incidents SET severity = 'low'`)
	epoch, _, _ := strings.Cut(must(t, "publish", "mark", "1", "--data", d.data), "-")
	var got []string
	for line := range strings.SplitSeq(must(t, "tail", "--topic", "incidents", "--since", epoch+"-0", "--count", "2", "--json", "--data", d.data), "\n") {
		var e struct {
			Type, Key string
			Data      struct{ Op, Table string }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if strings.Contains(line, "secret") {
			t.Errorf("a column that was not named: %s", line)
		}
		got = append(got, e.Type+" "+e.Key+" "+e.Data.Table)
	}
	if len(got) != 2 || got[0] != "insert 7 public.incidents" || got[1] != "update 7 public.incidents" {
		t.Errorf("events %q", got)
	}
	var status struct {
		Tables []struct{ Table, Topic, Problem string }
		Rows   int64 `json:"lag_rows"`
		Bytes  int64 `json:"outbox_bytes"`
	}
	if err := json.Unmarshal([]byte(must(t, "pg", "status", "--json", "--store", dsn)), &status); err != nil || status.Rows != 0 || status.Bytes == 0 ||
		len(status.Tables) != 1 || status.Tables[0].Topic != "incidents" || status.Tables[0].Problem != "" {
		t.Errorf("status %+v, %v", status, err)
	}
	must(t, "pg", "uninstall", "--store", dsn, "--table", "incidents")
	if _, errout, code := ossicle(t, "pg", "uninstall", "--store", dsn, "--table", "incidents"); code != 2 || !strings.Contains(errout, "not captured") {
		t.Errorf("a second time: code %d, %s", code, errout)
	}
	d.terminate()
	must(t, "pg", "uninstall", "--store", dsn, "--all")
	if n := server.SQL(t, dsn, `SELECT count(*) FROM pg_namespace WHERE nspname = 'ossicle'`); n != "0" {
		t.Errorf("%s schemas are left", n)
	}
}
