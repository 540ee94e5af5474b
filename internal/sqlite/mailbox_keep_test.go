package sqlite

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ossicle/ossicle/mailbox"
)

// A session of before there were bounds is taken up where it lies: nothing is lost,
// what was read counts as done when its sender reaches the bound, and only then is
// anything removed.
func TestMailboxOfBefore(t *testing.T) {
	t.Parallel()
	first, err := fs.ReadFile(mailboxes, "mailboxes/00001_mailbox.sql")
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/session.db"
	old, err := openSchema(t.Context(), path, nil, fstest.MapFS{"mailboxes/00001_mailbox.sql": {Data: first}}, "mailboxes")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, q := range []string{
		`INSERT INTO mailbox_agent (id, harness, substrate, run, status, registered, seen) VALUES ('a', '', '', ?2, 'active', ?1, ?1), ('b', '', '', ?2, 'active', ?1, ?1)`,
		`INSERT INTO mailbox_signal (seq, id, time, sender, recipient, type, priority, depth, reply_to, metadata, content) VALUES
			(1, 's1', ?1, 'a', 'b', 'inform', '', 0, '', '{"é":1}', 'één'), (2, 's2', ?1, 'a', '*', 'inform', '', 0, '', '', 'x'), (3, 's3', ?1, 'b', 'a', 'inform', '', 0, '', '', 'x')`,
		`INSERT INTO mailbox_read (seq, agent, at) VALUES (1, 'b', ?1)`,
		`INSERT INTO mailbox_note (seq, time, author, text) VALUES (1, ?1, 'a', 'één')`,
		`UPDATE mailbox SET signals = 3, notes = 1`,
	} {
		if _, err := old.writer.db.ExecContext(t.Context(), q, now.UnixNano(), runHash("r")); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	m := openMailboxOf(t, path, &mailbox.Retention{Count: 2, Bytes: -1, Age: time.Hour})
	holds := func(what string, want ...int64) {
		t.Helper()
		got := make([]int64, 5)
		err := m.db.reader.db.QueryRowContext(t.Context(), `SELECT a.waiting, a.waiting_bytes, m.done, m.done_bytes, m.note_bytes FROM mailbox m, mailbox_agent a WHERE a.id = 'a'`).
			Scan(&got[0], &got[1], &got[2], &got[3], &got[4])
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", what, got, want)
				return
			}
		}
	}
	holds("before anything is written", 2, 14, 0, 0, 5)
	who := mailbox.Identity{Agent: "a", Run: "r"}
	send := func(id string, at time.Time) {
		t.Helper()
		if _, err := m.Send(t.Context(), who, mailbox.Signal{ID: id, Time: at, Recipient: "b", Type: mailbox.Inform, Content: "y"}, mailbox.Limits{}, at); err != nil {
			t.Fatal(err)
		}
	}
	send("s4", now)
	holds("the read one is done", 2, 2, 1, 13, 5)
	if p, err := m.Read(t.Context(), mailbox.Selection{Agent: "b", All: true}); err != nil || len(p.Signals) != 3 || p.Unread != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := m.Ack(t.Context(), mailbox.Identity{Agent: "b", Run: "r"}, []string{"s4"}, now); err != nil {
		t.Fatal(err)
	}
	send("s5", now.Add(time.Hour))
	holds("what is done and old is gone", 2, 2, 0, 0, 5)
	if p, err := m.Read(t.Context(), mailbox.Selection{Agent: "b", All: true}); err != nil || len(p.Signals) != 2 || p.Signals[0].ID != "s2" || p.Missed != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}
