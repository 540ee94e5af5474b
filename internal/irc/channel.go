package irc

import (
	"context"
	"fmt"
	"time"

	"github.com/ossicle/ossicle/agent"
)

// failed is what a chat is told of a run that broke: the reason is for the log,
// it may hold what a public place must not see.
const failed = "Sorry, I could not finish that."

// Message is something that somebody said, cleaned of what is not text.
type Message struct {
	// Channel is where it was said and where a reply goes: a configured channel,
	// or the private conversation with From.
	Channel agent.Channel
	From    string // nick
	Text    string // without our nick in front of it
	Private bool   // only we have heard it
	// Chatter says that it was not addressed to us. Such messages come only with
	// Options.Chatter.
	Chatter bool
}

// Input makes a message the input of a session.
func (m Message) Input() agent.Input {
	return agent.Input{Text: m.Text, From: m.From, Channel: m.Channel, Chatter: m.Chatter}
}

// Channel is a configured channel, or a private conversation. Its fields are
// guarded by the client's lock.
type Channel struct {
	client *Client
	room   bool
	name   string // of a private conversation: follows changes of nick
	key    string

	joined bool
	why    string        // why nothing can be said there, for instance the server's words
	retry  time.Time     // when to join again
	pause  time.Duration // before the next retry after that
}

var _ agent.Channel = (*Channel)(nil)

// Name implements agent.Channel: "#channel", or "@nick".
func (ch *Channel) Name() string {
	ch.client.mu.Lock()
	defer ch.client.mu.Unlock()
	if ch.room {
		return ch.name
	}
	return "@" + ch.name
}

// Publish implements agent.Channel. It waits, within ctx and 30 s, until the
// client is in the channel and its queue has room for the whole reply; nil means
// that the reply is in the queue. Queued lines survive the loss of a connection
// for Options.QueueAge. Errors: ErrNotConnected, *JoinError (at once if the
// server has said why) or ErrQueueFull, with the context's error, and ErrClosed.
func (ch *Channel) Publish(ctx context.Context, r agent.Reply) error {
	text := r.Text
	if r.Err != nil {
		text = failed
	}
	ctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	c := ch.client
	for {
		c.mu.Lock()
		final, err := ch.queue(ctx, text)
		changed := c.changed
		c.mu.Unlock()
		if err == nil {
			return nil
		}
		if final {
			return fmt.Errorf("publish to %s: %w", ch.Name(), err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("publish to %s: %w: %w", ch.Name(), err, ctx.Err())
		}
	}
}

// queue takes a reply, or says why not, and whether that is final.
func (ch *Channel) queue(ctx context.Context, text string) (final bool, err error) {
	c := ch.client
	if c.closed {
		return true, ErrClosed
	}
	if err := ch.ready(); err != nil {
		return ch.why != "", err
	}
	lines := split(text, c.textRoom(ch.name), c.opts.MaxLines)
	now := time.Now()
	c.drop(ctx, c.out.expire(now), "it waited for too long")
	if !c.out.add(ch, lines, now) {
		return false, ErrQueueFull
	}
	c.ring()
	return false, nil
}

// ready says why a line cannot be sent there now.
func (ch *Channel) ready() error {
	switch {
	case !ch.client.registered:
		return ErrNotConnected
	case ch.room && !ch.joined, !ch.room && ch.why != "":
		return &JoinError{Channel: ch.name, Reason: ch.why}
	}
	return nil
}

// textRoom is how many bytes of text a line to a target may have: the server puts
// our address in front of it, and cuts what is then too long.
func (c *Client) textRoom(target string) int {
	prefix := len(":") + max(len(c.nick), len(c.want)) + c.mask + len(" "+cmdPrivmsg+" ") + len(target) + len(" :")
	return max(minText, min(maxText, maxBody-prefix))
}
