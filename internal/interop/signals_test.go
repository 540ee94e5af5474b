package interop

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	signalSession = "20261130_010203_00c0ffee"
	signalsURI    = "ossicle://session/" + signalSession + "/signals"
)

// signalArgs name the session, an agent, and where it is kept.
func signalArgs(data, agent string) []string {
	return []string{"--data", data, "--session", signalSession, "--agent", agent}
}

// sampler starts a client on the TypeScript SDK with ossicle mcp behind it.
func sampler(t *testing.T, mode, data, agent string, more ...string) *child {
	t.Helper()
	args := append([]string{node(t), script(t, "sampler.mjs"), mode, program, "mcp"}, signalArgs(data, agent)...)
	c := start(t, nil, append(args, more...)...)
	c.await(`"ready"`, signalsURI)
	return c
}

func sendSignal(t *testing.T, data, from, to, text string, more ...string) {
	t.Helper()
	must(t, append(append([]string{"signal", to, text}, signalArgs(data, from)...), more...)...)
}

// awaitEach waits for a line with each of the words, in any order.
func (c *child) awaitEach(words ...string) {
	c.t.Helper()
	for len(words) > 0 {
		line := c.await("")
		words = slices.DeleteFunc(words, func(w string) bool { return strings.Contains(line, w) })
	}
}

// unread is what the command line says of an agent's signals.
func unread(t *testing.T, data, agent string, n int) string {
	t.Helper()
	got := must(t, append([]string{"read-signals"}, signalArgs(data, agent)...)...)
	if !strings.HasSuffix(got, fmt.Sprintf("%d unread", n)) {
		t.Errorf("want %d unread for %s, got:\n%s", n, agent, got)
	}
	return got
}

// A third party's client that advertised sampling is told of each signal that the
// command line sends, and asked for a turn for those that demand one; inside of it
// the agent cannot delegate back, and its ack reaches the sender.
//
// S-11, S-12, S-13, S-14, S-15, S-16.
func TestSignalsToASamplingClient(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	c := sampler(t, "answer", data, "bob")
	sendSignal(t, data, "alice", "bob", "for your information")
	if got := c.await(`"updated"`); got != `{"updated":{"uri":"`+signalsURI+`"}}` {
		t.Errorf("announced: %s", got)
	}
	sendSignal(t, data, "alice", "bob", "please do it", "--type", "delegate")
	c.await(`"sampled"`, `"maxTokens":300`, `"X-Tur-Sampling-Depth":1`, `please do it`, `ack_signals`)
	c.await(`"delegated"`, `is in a turn that an urgent signal began`, `"error":true`)
	c.await(`"acked"`, `"error":false`)
	c.await(`"marked"`, `"error":false`)
	c.await(`"answered":"answer"`)
	c.awaitLog("mailbox.escalated", "outcome=done", "means=sampling")
	unread(t, data, "bob", 0)
	if got := unread(t, data, "alice", 2); strings.Count(got, "done") != 2 || !strings.Contains(got, "reply to sig_") {
		t.Errorf("%s", got)
	}
	// The turn is over: now it may.
	c.say(`{"tool":"signal","args":{"to":"alice","content":"your turn","type":"delegate"}}`)
	c.await(`"called":"signal"`, `"error":false`)
}

// A client that refuses, floods or hangs costs one event: the signal is announced
// and stays unread, and the server goes on. One that did not advertise sampling is
// never asked.
//
// S-14, S-17.
func TestSignalsToClientsThatMisbehave(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{
		"refuse": {"mailbox.escalated", "outcome=failed", "rejected"},
		"flood":  {"mailbox.escalated", "outcome="},
		"hang":   nil,
		"none":   nil,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			c := sampler(t, mode, data, "bob")
			sendSignal(t, data, "alice", "bob", "fire", "--type", "urgent")
			told := []string{`"updated"`}
			if mode != "none" {
				told = append(told, `"sampled"`)
			}
			c.awaitEach(told...)
			if want != nil {
				c.awaitLog(want...)
			}
			c.say(`{"tool":"read_signals","args":{}}`)
			c.await(`"called":"read_signals"`, `fire`, `\"unread\":1}`)
			unread(t, data, "bob", 1)
			sendSignal(t, data, "alice", "bob", "and again")
			c.await(`"updated"`, signalsURI)
			if mode == "none" && strings.Contains(c.output(), `"sampled"`) {
				t.Error("asked for a turn that it cannot give")
			}
		})
	}
}

// Two processes want one id: the second is told. The first is killed, and its
// successor has the id at once.
//
// S-2.
func TestSignalIdentityOfProcesses(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	serve := func() *child {
		return start(t, nil, append([]string{program, "mcp"}, signalArgs(data, "bob")...)...)
	}
	claims := []*child{serve(), serve(), serve()}
	hello := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	var won []*child
	for _, c := range claims {
		_, _ = io.WriteString(c.p.Stdin, hello+"\n") // who has lost may have ended already
	}
	for _, c := range claims {
		select {
		case line, ok := <-c.lines:
			if ok && strings.Contains(line, `"result"`) {
				won = append(won, c)
				continue
			}
		case <-time.After(patience):
			t.Fatal("no answer and no end")
		}
		c.awaitLog("the id is live under another run")
	}
	if len(won) != 1 {
		t.Fatalf("%d have the id", len(won))
	}
	sendSignal(t, data, "bob", "alice", "the command line is bob, too")
	won[0].p.Kill()
	<-won[0].p.Done()
	next := serve()
	next.say(hello)
	next.await(`"result"`)
}

// S-5, S-12: each of several servers announces what one of them sends, to its own
// agent.
func TestSignalsBetweenServers(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	var wg sync.WaitGroup
	servers := make([]*child, 3)
	for i := range servers {
		wg.Go(func() { servers[i] = sampler(t, "none", data, fmt.Sprint("lead.w", i)) })
	}
	wg.Wait()
	servers[0].say(`{"tool":"signal","args":{"to":"lead","content":"to the family"}}`)
	servers[0].await(`"called":"signal"`, `lead.w1`, `lead.w2`)
	for _, s := range servers[1:] {
		s.await(`"updated"`, signalsURI)
		s.say(`{"tool":"read_signals","args":{}}`)
		s.await(`"called":"read_signals"`, `to the family`)
	}
	if strings.Contains(servers[0].output(), `"updated"`) {
		t.Error("the sender was told of its own signal")
	}
}

// A client of the modern era hears by its listen, and has an open call as the means
// by which it is woken.
//
// S-10, S-12, S-18.
func TestSignalsToAModernClient(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	args := append([]string{node(t), script(t, "client.mjs"), signalsURI, "stdio", program, "mcp"}, signalArgs(data, "bob")...)
	c := start(t, nil, args...)
	c.await(`"version":"2026-07-28"`)
	c.await(`"honored"`, signalsURI)
	c.say(`{"tool":"wait_signals","args":{"seconds":500}}`)
	sendSignal(t, data, "alice", "bob", "please do it", "--type", "delegate")
	c.awaitEach(`"updated":"`+signalsURI+`"`, `"called":"{\"signals\":[{\"id\"`)
	c.say(`{"tool":"signal","args":{"to":"alice","content":"no, you","type":"urgent"}}`)
	c.await(`"called"`, `is in a turn that an urgent signal began`)
}

// A host with channels is pushed what the gate lets through, once; what only
// informs comes with the next result of a tool.
//
// S-18, D-11, D-12.
func TestSignalsThroughAChannel(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	c := start(t, nil, append([]string{program, "mcp", "--claude-channel"}, signalArgs(data, "bob")...)...)
	c.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"claude-code","version":"1"}}}`)
	c.await(`"id":1`, `"claude/channel"`)
	c.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_agents","arguments":{}}}`)
	c.await(`"id":2`)
	sendSignal(t, data, "alice", "bob", "for your information")
	sendSignal(t, data, "alice", "bob", "please do it", "--type", "delegate")
	if pushed := c.await(`"method":"notifications/claude/channel"`, `please do it`, `delegate from alice`); strings.Contains(pushed, "for your information") {
		t.Errorf("%s", pushed)
	}
	c.say(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"list_agents","arguments":{}}}`)
	c.await(`"id":3`, `for your information`)
}
