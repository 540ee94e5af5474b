package sqlite

import (
	"testing"

	"github.com/ossicle/ossicle/internal/files"
	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/mailbox/mailboxtest"
)

func openMailbox(tb testing.TB, path string) *Mailbox {
	tb.Helper()
	return openMailboxOf(tb, path, nil)
}

func openMailboxOf(tb testing.TB, path string, keep *mailbox.Retention) *Mailbox {
	tb.Helper()
	m, err := OpenMailbox(tb.Context(), path, keep)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	})
	return m
}

func TestMailbox(t *testing.T) {
	t.Parallel()
	mailboxtest.RunStore(t, mailboxtest.All, func(t *testing.T, keep *mailbox.Retention) mailbox.Store {
		t.Helper()
		return openMailboxOf(t, t.TempDir()+"/session.db", keep)
	})
}

// S-12: a bell is heard where the file was opened another time.
func TestMailboxBell(t *testing.T) {
	t.Parallel()
	mailboxtest.RunBus(t, func(t *testing.T) (ringing, listening mailbox.Bus) {
		t.Helper()
		path := t.TempDir() + "/session.db"
		return openMailboxBell(t, openMailbox(t, path)), openMailboxBell(t, openMailbox(t, path))
	})
}

func openMailboxBell(tb testing.TB, m *Mailbox) *MailboxBell {
	tb.Helper()
	b, err := OpenMailboxBell(tb.Context(), m, files.Touched)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}
