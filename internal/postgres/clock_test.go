package postgres

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/worker"
)

func TestAhead(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct{ server, took, want time.Duration }{
		{0, 0, 0},
		{time.Second, 0, 0},
		{-time.Second, 0, 0},
		{5 * time.Second, 10 * time.Second, 0}, // nobody knows when in the time that it took
		{11 * time.Second, 10 * time.Second, 0},
		{time.Minute, 2 * time.Second, 59 * time.Second},
		{-time.Minute, 2 * time.Second, -61 * time.Second},
	} {
		if got := ahead(begun, begun.Add(c.server), begun.Add(c.took)); got != c.want {
			t.Errorf("%v after it took %v: %v", c.server, c.took, got)
		}
	}
}

const week = 7 * 24 * time.Hour

// shifted is a store on a machine whose clock is wrong.
func shifted(t *testing.T, dsn string, by time.Duration) *DB {
	t.Helper()
	db := openAt(t, dsn, nil)
	db.now = func() time.Time { return time.Now().Add(by) }
	return db
}

// A machine whose clock is a week ahead or behind takes nobody for away who is
// there, nor does anybody take its members for away; ids of either are held, and
// nothing is removed before its time.
func TestMailboxGoesByTheClockOfTheServer(t *testing.T) {
	t.Parallel()
	dsn := fresh(t)
	for _, by := range []time.Duration{week, -week, 10 * time.Minute, -10 * time.Minute} {
		session := newMailboxSession()
		keep := &mailbox.Retention{Age: time.Hour}
		type host struct {
			*Mailbox
			now func() time.Time
		}
		right, wrong := openAt(t, dsn, nil), shifted(t, dsn, by)
		hosts := []host{{right.Mailbox(session, keep), right.now}, {wrong.Mailbox(session, keep), wrong.now}}
		names := []string{"right", "wrong"}
		for i, h := range hosts {
			if _, err := h.Register(t.Context(), mailbox.Registration{Agent: names[i], Run: "x"}, h.now()); err != nil {
				t.Fatal(err)
			}
		}
		for i, h := range hosts {
			other := names[1-i]
			_, err := h.Register(t.Context(), mailbox.Registration{Agent: other, Run: "y"}, h.now())
			if conflict := (*mailbox.ConflictError)(nil); !errors.As(err, &conflict) {
				t.Errorf("off by %v: the id %s is not held against the other machine: %v", by, other, err)
			}
			all, err := h.Agents(t.Context())
			if err != nil || len(all) != 2 {
				t.Fatalf("%+v, %v", all, err)
			}
			for _, a := range all {
				if got := mailbox.StatusAt(a.Status, a.LastSeen, h.now()); got != mailbox.Active {
					t.Errorf("off by %v: on the %s machine %s is %s, seen %v", by, names[i], a.ID, got, a.LastSeen)
				}
				if d := h.now().Sub(a.RegisteredAt); d > time.Minute || d < -time.Minute {
					t.Errorf("off by %v: on the %s machine %s was registered %v ago", by, names[i], a.ID, d)
				}
			}
			if came, err := h.Touch(t.Context(), mailbox.Identity{Agent: names[i], Run: "x"}, h.now()); came || err != nil {
				t.Errorf("off by %v: %s came back: %v", by, names[i], err)
			}
		}
		// Each sends and each acknowledges: that is what retention may remove.
		for round := range 3 {
			for i, h := range hosts {
				id, who := fmt.Sprint(names[i], round), mailbox.Identity{Agent: names[i], Run: "x"}
				s := mailbox.Signal{ID: id, Time: h.now(), Recipient: names[1-i], Type: "inform", Content: "c"}
				if _, err := h.Send(t.Context(), who, s, mailbox.Limits{}, h.now()); err != nil {
					t.Fatal(err)
				}
				o := hosts[1-i]
				if _, err := o.Ack(t.Context(), mailbox.Identity{Agent: names[1-i], Run: "x"}, []string{id}, o.now()); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, h := range hosts {
			page, err := h.Read(t.Context(), mailbox.Selection{Agent: names[i], All: true})
			if err != nil || len(page.Signals) != 3 {
				t.Errorf("off by %v: %s has %d signals, %v", by, names[i], len(page.Signals), err)
			}
		}
	}
}

// Of who lives, of the age of events and of tokens that others still use, no machine
// decides by its own clock.
func TestOthersGoByTheClockOfTheServer(t *testing.T) {
	t.Parallel()
	dsn := fresh(t)
	const year = 365 * 24 * time.Hour
	right, wrong := openAt(t, dsn, nil), shifted(t, dsn, year)

	if _, err := right.Workers().Announce(t.Context(), worker.HostRecord{Owner: "right"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if lapsed, err := wrong.Workers().Announce(t.Context(), worker.HostRecord{Owner: "right"}, time.Minute); lapsed || err != nil {
		t.Errorf("the lease of a host that lives lapsed: %v", err)
	}
	if hosts, err := wrong.Workers().Hosts(t.Context()); err != nil || len(hosts) != 1 || !hosts[0].Alive {
		t.Errorf("%+v, %v", hosts, err)
	}

	if _, err := right.Feed().Append(t.Context(), []feed.Draft{{Topic: "a", Type: "x", Data: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := wrong.Feed().Trim(t.Context(), "a", feed.Retention{Age: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if topics, err := wrong.Feed().Topics(t.Context()); err != nil || topics[0].Count != 1 || topics[0].Age > time.Minute {
		t.Errorf("%+v, %v", topics, err)
	}

	good, _, err := access.New("good", access.AllRights(), time.Now().Add(30*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	late, _, err := access.New("late", access.AllRights(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	late.Created = access.Moment(wrong.now())
	if err := errors.Join(right.Tokens().Add(t.Context(), good), wrong.Tokens().Add(t.Context(), late)); err != nil {
		t.Fatal(err)
	}
	if err := right.Tokens().Add(t.Context(), good); !errors.Is(err, access.ErrExists) {
		t.Errorf("a token that is good was removed by a machine that is ahead: %v", err)
	}
}
