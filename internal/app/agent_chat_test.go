package app

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
)

// tinyIRC is a server with one client, enough for a conversation.
type tinyIRC struct {
	t    *testing.T
	ln   net.Listener
	conn net.Conn
	said chan string // what the client says, as "#channel text"
	in   chan struct{}
}

func newTinyIRC(t *testing.T) *tinyIRC {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &tinyIRC{t: t, ln: ln, said: make(chan string, 64), in: make(chan struct{})}
	ended := make(chan struct{})
	go func() { defer close(ended); s.serve() }()
	t.Cleanup(func() { _ = ln.Close(); <-ended })
	return s
}

func (s *tinyIRC) serve() {
	conn, err := s.ln.Accept()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	s.conn = conn
	nick := ""
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		words := strings.SplitN(lines.Text(), " ", 3)
		switch words[0] {
		case "NICK":
			nick = words[1]
		case "USER":
			s.send(":irc 001 " + nick + " :welcome")
		case "PING":
			s.send(":irc PONG irc " + strings.Join(words[1:], " "))
		case "JOIN":
			s.send(":" + nick + "!u@h JOIN " + words[1])
			close(s.in)
		case "PRIVMSG":
			s.said <- words[1] + " " + strings.TrimPrefix(words[2], ":")
		}
	}
}

func (s *tinyIRC) send(line string) { _, _ = fmt.Fprint(s.conn, line+"\r\n") }

func (s *tinyIRC) next() string {
	s.t.Helper()
	select {
	case text := <-s.said:
		return text
	case <-time.After(patience):
		s.t.Fatal("the agent said nothing")
		return ""
	}
}

// In a chat the agent answers those who address it, and says what it makes of a
// notice in its first channel, until somebody has spoken to it elsewhere.
//
// N-13, N-14, W-153, W-154.
func TestAgentInChat(t *testing.T) {
	t.Parallel()
	server, terminal := newTinyIRC(t), &agenttest.Channel{Label: "terminal"}
	fake := agenttest.New(agenttest.Say("about the notice"), agenttest.Say("hello ann"), agenttest.Say("for the terminal"), agenttest.Say("about the second"))
	a := testAgents(t, t.TempDir())
	one, err := a.Start(t.Context(), AgentSpec{
		ID: "a", Engine: fake.New, Channels: []agent.Channel{terminal},
		Chat: &Chat{Host: server.ln.Addr().String(), Nick: "bot", Channels: []string{"#c"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !one.Listening() {
		t.Error("an agent in a chat has no ears")
	}
	select {
	case <-server.in:
	case <-time.After(patience):
		t.Fatal("the agent did not join")
	}
	post(t, a.Inbox, "x changed")
	if got := server.next(); got != "#c about the notice" {
		t.Errorf("got %q", got)
	}
	server.send(":ann!u@h PRIVMSG #c :not for you")
	server.send(":ann!u@h PRIVMSG #c :bot: hello")
	if got := server.next(); got != "#c hello ann" {
		t.Errorf("got %q", got)
	}
	ticket, err := one.Session.Submit(agent.Input{Text: "hi", Channel: terminal})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ticket.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	post(t, a.Inbox, "y changed")
	u := follow(t, one.Session)
	settledReply(t, u, terminal, 2)
	if got := strings.Join(terminal.Texts(), ", "); got != "for the terminal, about the second" {
		t.Errorf("the terminal got %q", got)
	}
	if err := one.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// settledReply waits until a channel has so many replies.
func settledReply(t *testing.T, u *updates, c *agenttest.Channel, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); len(c.Texts()) < n; {
		select {
		case <-u.grew:
		case <-time.After(10 * time.Millisecond): // it may have come before we listened
		}
		if time.Now().After(deadline) {
			t.Fatalf("replies %q, want %d", c.Texts(), n)
		}
	}
}
