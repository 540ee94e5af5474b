package mailboxtest_test

import (
	"testing"

	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/mailbox/mailboxtest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	mailboxtest.RunStore(t, mailboxtest.All, func(_ *testing.T, keep *mailbox.Retention) mailbox.Store { return mailboxtest.NewMemoryOf(keep) })
}
