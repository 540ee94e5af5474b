package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

// N-19: sessions and transcripts are kept.
func TestSessions(t *testing.T) {
	t.Parallel()
	agenttest.RunStore(t, true, func(t *testing.T) func() agent.Store {
		path := filepath.Join(t.TempDir(), "ossicle.db")
		var db *DB
		close := func() {
			if db == nil {
				return
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
		t.Cleanup(func() { close() })
		return func() agent.Store {
			close()
			var err error
			if db, err = Open(t.Context(), path, nil); err != nil {
				t.Fatal(err)
			}
			return db.Sessions(nil)
		}
	})
}

func sessions(tb testing.TB, o *SessionOptions) *Sessions {
	tb.Helper()
	return open(tb, filepath.Join(tb.TempDir(), "x.db"), nil).Sessions(o)
}

func (s *Sessions) mustAppend(tb testing.TB, session string, entries ...agent.Entry) {
	tb.Helper()
	if err := s.Append(tb.Context(), session, entries...); err != nil {
		tb.Fatal(err)
	}
}

func (s *Sessions) mustList(tb testing.TB, session string, q agent.Query) []agent.Entry {
	tb.Helper()
	found, err := s.List(tb.Context(), session, q)
	if err != nil {
		tb.Fatal(err)
	}
	return found
}

func text(s string) agent.Entry {
	return agent.Entry{Time: time.Unix(1, 0), Kind: agent.EntryUser, Text: s}
}

// The oldest entries of a full transcript go, one by one and many at once; the
// numbers go on.
func TestTranscriptIsBounded(t *testing.T) {
	t.Parallel()
	s := sessions(t, &SessionOptions{Entries: 5})
	number := 0
	for _, batch := range []int{1, 3, 2, 1, 5, 7, 1200, 1} {
		var entries []agent.Entry
		for range batch {
			number++
			entries = append(entries, text(fmt.Sprint(number)))
		}
		s.mustAppend(t, "s", entries...)
		s.mustAppend(t, "other", text("kept"))
		got := s.mustList(t, "s", agent.Query{})
		if len(got) != min(5, number) {
			t.Fatalf("after %d: %d entries", number, len(got))
		}
		for i, e := range got {
			want := number - len(got) + 1 + i
			if e.Seq != int64(want) || e.Text != fmt.Sprint(want) {
				t.Fatalf("after %d: entry %d is %d, %q", number, want, e.Seq, e.Text)
			}
		}
		checkSums(t, s.db)
	}
	// A store with narrower bounds on the same file brings it down at once.
	narrow := s.db.Sessions(&SessionOptions{Entries: 2})
	narrow.mustAppend(t, "s", text("last"))
	if got := narrow.mustList(t, "s", agent.Query{}); len(got) != 2 || got[1].Text != "last" || got[1].Seq != int64(number+1) {
		t.Errorf("narrowed to %+v", got)
	}
	checkSums(t, s.db)
}

// Large texts count by their size, and the newest entry is always there.
func TestTranscriptIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	s := sessions(t, &SessionOptions{Bytes: 10_000})
	for i := range 30 {
		s.mustAppend(t, "s", text(strings.Repeat("x", 900)), agent.Entry{Input: json.RawMessage(`"` + strings.Repeat("y", 900) + `"`)})
		checkSums(t, s.db)
		got := s.mustList(t, "s", agent.Query{})
		if n := len(got); n > 10 || (i > 10 && n < 8) || got[n-1].Seq != int64(2*i+2) {
			t.Fatalf("%d entries to %d", n, got[n-1].Seq)
		}
	}
	s.mustAppend(t, "s", text("before"), text(strings.Repeat("x", 20_000)))
	got := s.mustList(t, "s", agent.Query{})
	if len(got) != 1 || got[0].Seq != 62 || len(got[0].Text) != 20_000 {
		t.Errorf("%d entries", len(got))
	}
	checkSums(t, s.db)
}

// When there are too many sessions, the one that was idle for longest goes.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	s := sessions(t, &SessionOptions{Sessions: 2})
	s.mustAppend(t, "a", text("1"))
	for _, id := range []string{"b", "a", "c"} { // a is touched again, so b goes
		if err := s.Save(t.Context(), agent.Meta{ID: id, CreatedAt: time.Unix(1, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.Sessions(t.Context())
	if err != nil || len(all) != 2 || all[0].ID != "a" || all[1].ID != "c" {
		t.Errorf("sessions: %+v, %v", all, err)
	}
	s.mustAppend(t, "d", text("1"))
	if all, _ := s.Sessions(t.Context()); len(all) != 1 || all[0].ID != "c" {
		t.Errorf("sessions: %+v", all)
	}
	if got := s.mustList(t, "a", agent.Query{}); len(got) != 0 {
		t.Errorf("a removed session has %+v", got)
	}
	checkSums(t, s.db)
}

// All transcripts together are bounded too.
func TestTotalIsBounded(t *testing.T) {
	t.Parallel()
	s := sessions(t, &SessionOptions{TotalBytes: 4 << 20})
	big := text(strings.Repeat("x", 1<<20))
	for i := range 10 {
		s.mustAppend(t, fmt.Sprint(i), big)
		s.mustAppend(t, "busy", text("1"))
	}
	var total int64
	if err := s.db.reader.db.QueryRowContext(t.Context(), `SELECT sum(bytes) FROM agent_session`).Scan(&total); err != nil || total > 4<<20 {
		t.Errorf("%d bytes, %v", total, err)
	}
	for name, want := range map[string]int{"0": 0, "5": 0, "7": 1, "8": 1, "9": 1, "busy": 10} {
		if got := s.mustList(t, name, agent.Query{}); len(got) != want {
			t.Errorf("session %s has %d entries, want %d", name, len(got), want)
		}
	}
	// The session that is written to stays, even if it alone is too much.
	one := s.db.Sessions(&SessionOptions{TotalBytes: 1})
	one.mustAppend(t, "9", big)
	if got := one.mustList(t, "9", agent.Query{}); len(got) != 2 {
		t.Errorf("%d entries", len(got))
	}
	if got := one.mustList(t, "busy", agent.Query{}); len(got) != 0 {
		t.Errorf("the other session has %d entries", len(got))
	}
	checkSums(t, s.db)
}

// What is no UTF-8, and JSON as it was spelt, are kept byte by byte.
func TestBytesAreKept(t *testing.T) {
	t.Parallel()
	s := sessions(t, nil)
	want := agent.Entry{
		Seq: 1, Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Kind: "future", Text: "a\xff\x00<&>\u2028",
		Input: json.RawMessage(" {\"n\": 1.50e+3, \"n\": \"<\\u003c\"}\n"), Output: json.RawMessage("not JSON \xff"),
	}
	s.mustAppend(t, "s", want)
	if d := cmp.Diff([]agent.Entry{want}, s.mustList(t, "s", agent.Query{})); d != "" {
		t.Error(d)
	}
}

// An entry that cannot be written takes the whole batch with it.
func TestAppendIsAllOrNone(t *testing.T) {
	t.Parallel()
	s := sessions(t, nil)
	if err := s.Append(t.Context(), "s", text("1"), agent.Entry{Time: time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Fatal("a time that JSON does not have was written")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Append(ctx, "s", text("1")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := s.mustList(t, "s", agent.Query{}); len(got) != 0 {
		t.Errorf("half a batch: %+v", got)
	}
	s.mustAppend(t, "s", text("1"))
	if got := s.mustList(t, "s", agent.Query{}); len(got) != 1 || got[0].Seq != 1 {
		t.Errorf("got %+v", got)
	}
}

// checkSums compares what session rows say with the entries there are.
func checkSums(tb testing.TB, db *DB) {
	tb.Helper()
	for what, query := range map[string]string{
		"wrong sums": `SELECT count(*) FROM agent_session s WHERE
			(s.last - s.first + 1, s.bytes) IS NOT (SELECT count(*), coalesce(sum(size), 0) FROM agent_entry e WHERE e.session = s.id AND e.seq BETWEEN s.first AND s.last)`,
		"lost entries": `SELECT count(*) FROM agent_entry e WHERE NOT EXISTS (SELECT 1 FROM agent_session s WHERE s.id = e.session AND e.seq BETWEEN s.first AND s.last)`,
		"wrong sizes":  `SELECT count(*) FROM agent_entry WHERE size <> octet_length(body) + octet_length(text) + coalesce(octet_length(input), 0) + coalesce(octet_length(output), 0)`,
	} {
		var n int
		if err := db.reader.db.QueryRowContext(tb.Context(), query).Scan(&n); err != nil || n != 0 {
			tb.Errorf("%d %s, %v", n, what, err)
		}
	}
}

// The ends of many transcripts are read in their order as they are found: sorting them
// would have all of them in memory at once.
func TestTailsAreNotSorted(t *testing.T) {
	t.Parallel()
	s := sessions(t, nil)
	var plan strings.Builder
	err := s.db.read(t.Context(), func(tx *tx) error {
		return tx.each("EXPLAIN QUERY PLAN "+tailsQuery, []any{`["a"]`, 8}, func(scan func(...any) error) error {
			var id, parent, unused int
			var detail string
			err := scan(&id, &parent, &unused, &detail)
			plan.WriteString(detail + "\n")
			return err
		})
	})
	if err != nil || strings.Contains(plan.String(), "ORDER BY") || !strings.Contains(plan.String(), "SEARCH e USING") {
		t.Errorf("%v\n%s", err, plan.String())
	}
}
