package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/postgres"
	"github.com/ossicle/ossicle/internal/testserver"
	"github.com/ossicle/ossicle/mailbox"
)

// S-1: where the feed is kept in PostgreSQL, sessions are, too, and agents of
// several machines meet there: an id is one's, whoever has a file for it.
func TestSignalsInPostgreSQL(t *testing.T) {
	t.Parallel()
	dsn := testserver.PostgreSQL(t).Database(t)
	machine := func() *Collaboration {
		c := config.Default()
		c.Home, c.Feed.Store = t.TempDir(), dsn
		x, err := NewCollaborations(c, "", mailbox.Limits{}, nil).Open(t.Context(), collaboration)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = x.Close(context.WithoutCancel(t.Context())) })
		return x
	}
	here, there := machine(), machine()
	a, _, err := here.Join(t.Context(), mailbox.Registration{Agent: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := there.Join(t.Context(), mailbox.Registration{Agent: "a"}); !errors.As(err, new(*mailbox.ConflictError)) {
		t.Errorf("taken on two machines: %v", err)
	}
	b, err := there.Enter(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Send(t.Context(), mailbox.Draft{To: "b", Content: "hello"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if p, err := b.Wait(ctx, 0); err != nil || len(p.Signals) != 1 || p.Signals[0].Content != "hello" {
		t.Errorf("%+v, %v", p, err)
	}
}

// Where an unused session cannot be removed, because somebody keeps its rows, a new one
// begins all the same.
func TestSessionBeginsThoughAnotherCannotBeRemoved(t *testing.T) {
	t.Parallel()
	dsn := testserver.PostgreSQL(t).Database(t)
	c := config.Default()
	c.Home, c.Feed.Store, c.Signals.Unused = t.TempDir(), dsn, time.Hour
	db, err := postgres.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Mailbox("20250101_000000_00000001", nil).Register(t.Context(), mailbox.Registration{Agent: "a", Run: "r"}, time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	keeper, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = keeper.Close(context.WithoutCancel(t.Context())) }()
	if _, err := keeper.Exec(t.Context(), `BEGIN; SELECT 1 FROM ossicle.mailbox_agent FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	x, err := NewCollaborations(c, "", mailbox.Limits{}, nil).Open(t.Context(), "")
	if err != nil {
		t.Fatalf("begin a session: %v", err)
	}
	if err := x.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
