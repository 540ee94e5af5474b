package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/notice"
)

// signalAdapter is who causes the steps that the signal tools record.
const signalAdapter = "signals"

// signalInbox puts signals into the inbox of their recipient, where everything
// else waits for it, too.
type signalInbox struct {
	inbox   *notice.Inbox
	session string
	agent   string      // of the inbox
	means   func() bool // whether a turn can be begun; nil is never
	log     *slog.Logger

	mu    sync.Mutex
	woken []string // notices that were to begin a turn, since the last one was over
}

var _ mailbox.Inbox = (*signalInbox)(nil)

// Means implements mailbox.Inbox.
func (i *signalInbox) Means() bool { return i.means != nil && i.means() }

// Put implements mailbox.Inbox.
func (i *signalInbox) Put(ctx context.Context, s mailbox.Signal, wake bool) error {
	n := notice.Notice{
		ID: i.noticeID(s.ID), Agent: i.agent, Source: notice.SourceSignal, Title: string(s.Type) + " from " + s.Sender,
		Text: s.Content, CreatedAt: s.Time, Quiet: !wake,
		DedupeKey: "signal " + i.session + " " + s.ID, Depth: s.Depth + 1,
	}
	if !wake {
		n.Text += "\n(id " + s.ID + ")"
	} else {
		n.Text += fmt.Sprintf("\n(id %s; acknowledge it with ack_signals, answer with signal to %s, type ack, reply_to this id)", s.ID, s.Sender)
		i.mu.Lock()
		i.woken = append(i.woken, n.ID)
		i.mu.Unlock()
	}
	_, err := i.inbox.Post(ctx, n)
	return err
}

// noticeID is the id of the notice of a signal in this inbox.
func (i *signalInbox) noticeID(signal string) string {
	sum := sha256.Sum256([]byte(i.session + " " + i.agent + " " + signal))
	return "n_sig_" + hex.EncodeToString(sum[:10])
}

// begun reports whether every turn that was to begin has.
func (i *signalInbox) begun(ctx context.Context) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, id := range i.woken {
		r, err := i.inbox.Get(ctx, i.agent, id)
		if err == nil && (r.State == notice.Persisted || r.State == notice.Notified) {
			return false
		}
	}
	i.woken = nil
	return true
}

// shown notes that a tool has shown signals, so that they are not shown again.
func (i *signalInbox) shown(ctx context.Context, signals []string) {
	i.each(ctx, signals, func(id string) error { return i.inbox.Seen(ctx, i.agent, signalAdapter, id) })
}

// acked notes that the agent has dealt with signals.
func (i *signalInbox) acked(ctx context.Context, signals []string) {
	i.each(ctx, signals, func(id string) error {
		_, err := i.inbox.Ack(ctx, i.agent, signalAdapter, id)
		return err
	})
}

func (i *signalInbox) each(ctx context.Context, signals []string, do func(id string) error) {
	for _, s := range signals {
		err := do(i.noticeID(s))
		if err != nil && !errors.As(err, new(*notice.IDError)) { // it has not come to the inbox yet: then it is read there
			i.log.LogAttrs(ctx, slog.LevelWarn, "inbox failed", logattr.Session(i.agent), logattr.Reason("note what a tool showed"), logattr.Err(err))
			return
		}
	}
}
