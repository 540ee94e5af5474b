package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/mailbox/mailboxtest"
)

// sessions counts the sessions of the tests.
var sessions atomic.Int64

func newMailboxSession() string { return fmt.Sprintf("20261130_010203_%08x", sessions.Add(1)) }

// S-1: the same rules hold for the tables in PostgreSQL, many sessions in one
// database.
func TestMailbox(t *testing.T) {
	t.Parallel()
	db := openAt(t, fresh(t), nil)
	mailboxtest.RunStore(t, 600, func(_ *testing.T, keep *mailbox.Retention) mailbox.Store {
		return db.Mailbox(newMailboxSession(), keep)
	})
}

func TestMailboxBus(t *testing.T) {
	t.Parallel()
	dsn := fresh(t)
	mailboxtest.RunBus(t, func(t *testing.T) (ringing, listening mailbox.Bus) {
		t.Helper()
		return openAt(t, dsn, nil).MailboxBus(), openAt(t, dsn, nil).MailboxBus()
	})
}

// S-12: what is sent over other connections is announced, each signal once, in
// order.
func TestMailboxAnnounces(t *testing.T) {
	t.Parallel()
	const writers, each = 4, 10
	dsn, id := fresh(t), newMailboxSession()
	limits := &mailbox.Options{Limits: mailbox.Limits{Signals: 1000}}
	open := func() *mailbox.Session {
		db := openAt(t, dsn, &Options{Connections: 2})
		s, err := mailbox.Open(t.Context(), id, db.Mailbox(id, nil), db.MailboxBus(), limits)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	hearing := open()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	told, ended := make(chan struct{}, writers*each), make(chan error, 1)
	stop := hearing.Watch(mailbox.PartSignals, "r", func() { told <- struct{}{} })
	go func() { ended <- hearing.Run(ctx) }()
	defer func() { cancel(); stop(); <-ended }()
	var wg sync.WaitGroup
	for w := range writers {
		s := open()
		wg.Go(func() {
			m, err := s.Join(ctx, mailbox.Registration{Agent: fmt.Sprint("w", w), Run: "x"})
			for i := 0; err == nil && i < each; i++ {
				_, err = m.Send(ctx, mailbox.Draft{To: "r", Content: fmt.Sprint(i)})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for range writers * each {
		select {
		case <-told:
		case <-ctx.Done():
			t.Fatal("not all were announced")
		}
	}
}
