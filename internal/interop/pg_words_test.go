package interop

import (
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/testserver"
)

// F-7: what cannot be captured or released is said with a reason and the exit code of
// its kind, and makes nothing in the database.
func TestWhatCannotBeCaptured(t *testing.T) {
	t.Parallel()
	server := testserver.PostgreSQL(t)
	dsn := server.Database(t)
	server.SQL(t, dsn, `CREATE TABLE t (a int, b text)`, `CREATE VIEW v AS SELECT 1 AS a`)
	nothing := `SELECT count(*) FROM pg_namespace WHERE nspname = 'ossicle'`
	for _, c := range []struct {
		name, want string
		code       int
		args       []string
	}{
		{"uninstall where nothing is", "has no schema ossicle", 2, []string{"uninstall", "--table", "t", "--store", dsn}},
		{"remove where nothing is", "has no schema ossicle", 2, []string{"uninstall", "--all", "--store", dsn}},
		{"no server", "cannot be reached", 4, []string{"status", "--store", "postgres://postgres@127.0.0.1:1/x"}},
		{"no server, for the script", "cannot be reached", 4, []string{"install", "--print", "--table", "t", "--columns", "a", "--store", "postgres://postgres@127.0.0.1:1/x"}},
	} {
		out, errout, code := ossicle(t, append([]string{"pg"}, c.args...)...)
		if code != c.code || !strings.Contains(errout, c.want) || strings.Contains(errout, "open open") || out != "" {
			t.Errorf("%s: code %d, %s%s", c.name, code, out, errout)
		}
	}
	if n := server.SQL(t, dsn, nothing); n != "0" {
		t.Error("asking to take out what is not there has put something in")
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"no ordinary or partitioned table", []string{"--table", "v", "--columns", "a"}},
		{`there is no "z"; the table has a, b`, []string{"--table", "t", "--columns", "z"}},
		{"is none of insert, update, delete", []string{"--table", "t", "--columns", "a", "--on", "truncate"}},
		{"invalid topic", []string{"--table", "t", "--columns", "a", "--topic", "Ü"}},
		{"there is no such table", []string{"--table", "none", "--columns", "a"}},
	} {
		if _, errout, code := ossicle(t, append([]string{"pg", "install", "--store", dsn}, c.args...)...); code != 2 || !strings.Contains(errout, c.want) {
			t.Errorf("%q: code %d, %s", c.args, code, errout)
		}
	}
}
