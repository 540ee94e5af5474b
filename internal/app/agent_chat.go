package app

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/irc"
	"github.com/ossicle/ossicle/internal/logattr"
)

// Ports of IRC.
const (
	ircPort    = "6667"
	ircTLSPort = "6697"
)

// chatBudget is for the goodbye, with what may still be sent at once.
const chatBudget = 3 * time.Second

// Chat says where in IRC an agent is (specification N-14).
type Chat struct {
	Host     string // HOST or HOST:PORT
	TLS      bool
	Nick     string
	Channels []string // "#name", or "#name key"
	Password string   // of the server
	SASLUser string   // an account, with its password
	SASLPass string
	Chatter  bool // the agent also hears what is not said to it
}

// newChat makes the client; it connects once it runs. What people say goes into
// the session.
func (o *Agent) newChat(c *Chat) (*irc.Client, error) {
	addr, opts := c.Host, &irc.Options{
		Channels: c.Channels, Password: c.Password, SASLUser: c.SASLUser, SASLPassword: c.SASLPass, Chatter: c.Chatter, Log: o.agents.log,
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		port := ircPort
		if c.TLS {
			port = ircTLSPort
		}
		addr = net.JoinHostPort(addr, port)
	}
	if c.TLS {
		opts.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return irc.New(addr, c.Nick, o.heard, opts)
}

// heard hands on what somebody said. What the session cannot take is told
// nobody: an answer for each message of a flood would be one more flood.
func (o *Agent) heard(m irc.Message) {
	if _, err := o.Session.Submit(m.Input()); err != nil {
		o.agents.log.Warn("message was not taken", logattr.Session(o.Session.ID()), logattr.Err(err))
	}
}

// runChat keeps the client connected until the agent closes.
func (o *Agent) runChat(ctx context.Context, client *irc.Client) {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := client.Run(run); err != nil {
			o.agents.log.LogAttrs(run, slog.LevelError, "chat failed", logattr.Session(o.Session.ID()), logattr.Err(err))
			o.failed <- err
		}
	}()
	o.down.Push("chat", chatBudget, func(context.Context) error {
		stop()
		<-ended
		return nil
	})
}

// Failed gets why the agent's chat ended for good, if it did.
func (o *Agent) Failed() <-chan error { return o.failed }

// Listening reports whether the agent has ears: a watch that runs, or a chat.
func (o *Agent) Listening() bool { return o.chats || o.Watching() > 0 }

// channels are the places for replies, the chat's first: what notices cause goes
// to the first of them until somebody has addressed the agent elsewhere.
func channels(client *irc.Client, more []agent.Channel) []agent.Channel {
	if client == nil {
		return more
	}
	return append(client.Channels(), more...)
}
