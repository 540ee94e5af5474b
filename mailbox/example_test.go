package mailbox_test

import (
	"context"
	"fmt"

	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/mailbox/mailboxtest"
)

// One agent delegates to another, which reads, acknowledges and answers.
func Example() {
	ctx := context.Background()
	session, err := mailbox.Open(ctx, "20260821_011758_54e1cab9", mailboxtest.NewMemory(), nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	lead, err := session.Join(ctx, mailbox.Registration{Agent: "lead", Run: mailbox.NewRunToken()})
	if err != nil {
		fmt.Println(err)
		return
	}
	critic, err := session.Join(ctx, mailbox.Registration{Agent: "lead.critic", Run: mailbox.NewRunToken()})
	if err != nil {
		fmt.Println(err)
		return
	}
	sent, err := lead.Send(ctx, mailbox.Draft{To: "lead.critic", Type: mailbox.Delegate, Content: "please look at the diff"})
	if err != nil {
		fmt.Println(err)
		return
	}
	page, err := critic.Read(ctx, mailbox.Selection{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range page.Signals {
		fmt.Println(s.Sequence, s.Sender, s.Type, s.Content)
	}
	acked, err := critic.Ack(ctx, []string{sent.ID})
	fmt.Println(len(acked), err)
	// Output:
	// 1 lead delegate please look at the diff
	// 1 <nil>
}
