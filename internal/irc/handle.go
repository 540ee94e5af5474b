package irc

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// Keys of log attributes that only this package has.
const (
	keyChannel = "channel"
	keyNick    = "nick"
)

func channelAttr(name string) slog.Attr { return slog.String(keyChannel, name) }

func nickAttr(nick string) slog.Attr { return slog.String(keyNick, nick) }

// handle takes one line of the server. An error ends the connection.
func (l *link) handle(ctx context.Context, in line) error {
	switch in.command {
	case cmdPing:
		return l.pong(ctx, in)
	case cmdError:
		return l.goodbye(plain(in.last()))
	}
	if l.since.IsZero() {
		return l.registering(ctx, in)
	}
	c := l.client
	if in.command == cmdPrivmsg {
		c.said(in)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch in.command {
	case rplISupport:
		c.supports(in.params)
	case cmdJoin:
		c.joins(ctx, in)
	case cmdPart:
		if in.mine(c.nick, c.names) {
			c.leaves(ctx, in.param(0), "we were removed")
		}
	case cmdKick:
		if c.names.equal(in.param(1), c.nick) {
			c.leaves(ctx, in.param(0), "we were kicked: "+plain(in.last()))
		}
	case cmdNick:
		c.renames(ctx, in)
	case cmdQuit:
		c.frees(in)
	default:
		c.refuses(ctx, in)
	}
	return nil
}

// goodbye is why the server closes the connection. Some say so, and not with a
// numeric, that a password is wrong.
func (l *link) goodbye(why string) error {
	if l.since.IsZero() && l.client.opts.Password != "" && strings.Contains(strings.ToLower(why), "password") {
		return &RefusedError{Code: cmdError, Text: why}
	}
	return &closedError{reason: why}
}

// pong answers a PING with its own words. Those that would be no parameter are
// not answered.
func (l *link) pong(ctx context.Context, in line) error {
	if len(in.params) == 0 {
		return nil
	}
	return l.send(ctx, cmdPong, in.last())
}

// supports takes what the server says about itself, as far as it concerns us.
func (c *Client) supports(params []string) {
	for _, p := range params {
		name, value, _ := strings.Cut(p, "=")
		if name == "CASEMAPPING" && slices.Contains([]mapping{mapASCII, mapStrict, mapRFC}, mapping(strings.ToLower(value))) {
			c.names = mapping(strings.ToLower(value))
		}
	}
}

func (c *Client) joins(ctx context.Context, in line) {
	if !in.mine(c.nick, c.names) {
		return
	}
	// The server shows us as it shows us to others.
	if i := strings.IndexByte(in.source, '!'); i > 0 {
		c.mask = len(in.source) - i
	}
	r := c.room(in.param(0))
	if r == nil || r.joined {
		return
	}
	r.joined, r.why, r.pause = true, "", 0
	c.log.LogAttrs(ctx, slog.LevelInfo, "irc.joined", logattr.Server(c.addr), channelAttr(r.name))
	c.wake()
}

// leaves notes that we are out of a channel, or were not let in, and when to
// try again.
func (c *Client) leaves(ctx context.Context, name, why string) {
	r := c.room(name)
	if r == nil {
		return
	}
	r.joined, r.why = false, why
	r.pause = min(max(firstRejoin, 2*r.pause), lastRejoin)
	r.retry = time.Now().Add(r.pause)
	c.log.LogAttrs(ctx, slog.LevelWarn, "irc.not_joined", logattr.Server(c.addr), channelAttr(r.name), logattr.Reason(why), logattr.Delay(r.pause))
	c.ring()
}

// renames follows changes of nick: ours, and those of private conversations, so
// that a reply does not go to whoever takes the old nick.
func (c *Client) renames(ctx context.Context, in line) {
	nick := in.param(0)
	if !isNick(nick) {
		return
	}
	if in.mine(c.nick, c.names) {
		c.nick = nick
		c.log.LogAttrs(ctx, slog.LevelInfo, "irc.renamed", logattr.Server(c.addr), nickAttr(nick))
		return
	}
	c.frees(in)
	i := slices.IndexFunc(c.peers, func(p *Channel) bool { return c.names.equal(p.name, in.nick()) })
	if i < 0 {
		return
	}
	renamed := c.peers[i]
	c.peers = slices.DeleteFunc(c.peers, func(p *Channel) bool {
		if p == renamed || !c.names.equal(p.name, nick) {
			return false
		}
		p.why = "somebody else has that nick now" // we did not see its holder leave
		return true
	})
	renamed.name = nick
}

// frees asks for our nick at once when its holder is seen to give it up.
func (c *Client) frees(in line) {
	if in.mine(c.want, c.names) && !c.names.equal(c.nick, c.want) {
		c.regain = time.Time{}
		c.ring()
	}
}

// refuses takes the numerics of errors: about a channel that we want to be in,
// or about something that we have sent.
func (c *Client) refuses(ctx context.Context, in line) {
	if len(in.command) != 3 || (in.command[0] != '4' && in.command[0] != '5') {
		return
	}
	why := plain(in.last()) + " (" + in.command + ")"
	r := c.room(in.param(1))
	if r != nil && (!r.joined || in.command == errNotOnChannel) {
		c.leaves(ctx, r.name, why)
		return
	}
	if in.command == errNicknameInUse || in.command == errUnavailable {
		return // our nick is still taken
	}
	c.log.LogAttrs(ctx, slog.LevelWarn, "irc.refused", logattr.Server(c.addr), channelAttr(plain(in.param(1))), logattr.Reason(why))
}

// said hands over what somebody said. Notices are never answered, nor are
// servers, nor ourselves.
func (c *Client) said(in line) {
	m, ok := c.message(in)
	if ok {
		c.deliver(m)
	}
}

func (c *Client) message(in line) (Message, bool) {
	from, text := in.nick(), in.param(1)
	if len(in.params) != 2 || !isNick(from) {
		return Message{}, false
	}
	if inner, ctcp := strings.CutPrefix(text, "\x01"); ctcp {
		action, ok := strings.CutPrefix(strings.TrimSuffix(inner, "\x01"), "ACTION ")
		if !ok {
			return Message{}, false // questions to a program are not answered
		}
		text = "* " + from + " " + action
	}
	if text = strings.TrimSpace(plain(text)); text == "" {
		return Message{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if in.mine(c.nick, c.names) {
		return Message{}, false
	}
	said, spoken := c.names.addressed(text, c.nick)
	if !spoken {
		said, spoken = c.names.addressed(text, c.want)
	}
	m := Message{From: from, Text: text}
	if spoken {
		m.Text = said
	}
	if c.names.equal(in.param(0), c.nick) {
		m.Private, m.Channel = true, c.peer(from)
		return m, true
	}
	r := c.room(in.param(0))
	if r == nil || (!spoken && !c.opts.Chatter) {
		return Message{}, false
	}
	m.Channel, m.Chatter = r, !spoken
	return m, true
}
