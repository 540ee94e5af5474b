package irc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/agent"
)

// gaps are the pauses between dials.
func (w *world) gaps() (all []time.Duration) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := 1; i < len(w.dials); i++ {
		all = append(all, w.dials[i].Sub(w.dials[i-1]))
	}
	return all
}

// checkBackoff wants pauses that double from one second to sixty, each shortened
// by less than a quarter.
func checkBackoff(t *testing.T, gaps []time.Duration, extra time.Duration) {
	t.Helper()
	want := firstBackoff
	for i, g := range gaps {
		if g -= extra; g > want+20*time.Millisecond || g < want*3/4 {
			t.Errorf("pause %d is %v, want about %v", i, g, want)
		}
		want = min(2*want, 60*time.Second)
	}
}

// N-14: pauses grow while the server is away.
func TestBackoff(t *testing.T) {
	t.Parallel()
	play(t, Options{}, func(w *world) {
		c := w.conn(0)
		w.mu.Lock()
		w.refuse = errors.New("connection refused")
		w.mu.Unlock()
		c.Close()
		time.Sleep(10 * time.Minute)
		gaps := w.gaps()
		if n := len(gaps); n < 13 || n > 19 {
			t.Errorf("%d dials in 10 minutes", n)
		}
		checkBackoff(t, gaps, 0)
	})
}

// B-031: a server that lets us in and closes does not reset the pauses; one
// that kept us for a minute does.
func TestBackoffResetsWhenHealthy(t *testing.T) {
	t.Parallel()
	play(t, Options{}, func(w *world) {
		for i := range 6 {
			w.join(i).Close()
		}
		c := w.join(6)
		checkBackoff(t, w.gaps(), 0)
		time.Sleep(healthyTime - time.Second) // not quite
		c.say(t, "PING 1")
		c.Close()
		c = w.join(7)
		if g := w.gaps()[6]; g < healthyTime+40*time.Second {
			t.Errorf("after almost a minute the pause was %v", g-healthyTime)
		}
		time.Sleep(30 * time.Second)
		c.say(t, "PING 1")
		time.Sleep(30 * time.Second)
		c.say(t, "ERROR :Closing Link")
		w.join(8)
		if g := w.gaps()[7]; g > healthyTime+firstBackoff+20*time.Millisecond {
			t.Errorf("after a minute the pause was %v", g-healthyTime)
		}
		if !strings.Contains(w.log.String(), "Closing Link") {
			t.Errorf("log: %s", w.log)
		}
	})
}

// Silence is asked about, and ends the connection; so does a server that sends
// bytes and no lines.
func TestKeepalive(t *testing.T) {
	t.Parallel()
	play(t, Options{}, func(w *world) {
		c := w.join(0)
		for range 3 {
			time.Sleep(idleTime - time.Second)
			c.expect(t)
			time.Sleep(time.Second)
			c.expect(t, "PING alive")
			time.Sleep(pongTime - time.Second)
			c.say(t, ":irc.test PONG irc.test alive")
		}
		time.Sleep(idleTime)
		c.expect(t, "PING alive")
		for range 29 {
			time.Sleep(time.Second)
			if _, err := c.Write([]byte(":")); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		w.conn(1)
		if d := time.Since(begun); d > 3*time.Second {
			t.Errorf("it took %v more", d)
		}
		if _, err := c.Write([]byte(":")); err == nil {
			t.Error("the old connection is still open")
		}
	})
}

// A server that never lets us in, and one that reads nothing, are left.
func TestRegistrationIsBounded(t *testing.T) {
	t.Parallel()
	play(t, Options{}, func(w *world) {
		c := w.conn(0)
		for range 12 {
			time.Sleep(5 * time.Second)
			_, _ = c.Write([]byte(":irc.test NOTICE * :*** Looking up your hostname\r\n"))
		}
		w.mu.Lock()
		w.deaf = true
		w.mu.Unlock()
		begun := time.Now()
		w.conn(1)
		w.conn(2)
		if d := time.Since(begun); d > writeTime+5*time.Second {
			t.Errorf("it took %v", d)
		}
		checkBackoff(t, w.gaps()[:1], registerTime)
	})
}

// What is queued survives a lost connection, until it is too old; what comes
// meanwhile waits.
func TestQueueSurvivesReconnect(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a", "#b"}, Burst: 2}, func(w *world) {
		c := w.join(0)
		time.Sleep(10 * time.Second)
		a, b := w.client.Channels()[0], w.client.Channels()[1]
		if err := a.Publish(w.context(), agent.Reply{Text: "1\n2\n3\n4"}); err != nil {
			t.Error(err)
		}
		c.expect(t, "PRIVMSG #a :1", "PRIVMSG #a :2")
		c.Close()
		synctest.Wait()
		published := make(chan error, 1)
		go func() { published <- b.Publish(w.context(), agent.Reply{Text: "meanwhile"}) }()
		c = w.conn(1)
		c.say(t, ":irc.test 001 ossi :Welcome")
		time.Sleep(5 * time.Second)
		c.expect(t, "NICK ossi", "USER ossi 0 * ossi", "JOIN #a", "JOIN #b")
		select {
		case err := <-published:
			t.Errorf("published before we were in: %v", err)
		default:
		}
		// Another channel does not wait for the first.
		c.say(t, self+" JOIN #b")
		if err := <-published; err != nil {
			t.Error(err)
		}
		c.expect(t, "PRIVMSG #b :meanwhile")
		c.say(t, self+" JOIN #a")
		time.Sleep(5 * time.Second)
		c.expect(t, "PRIVMSG #a :3", "PRIVMSG #a :4")

		if err := a.Publish(w.context(), agent.Reply{Text: "5\n6\n7\n8"}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		w.mu.Lock()
		w.refuse = errors.New("away")
		w.mu.Unlock()
		c.Close()
		time.Sleep(DefaultQueueAge + time.Second)
		ctx, cancel := context.WithTimeout(w.context(), time.Second)
		defer cancel()
		if err := a.Publish(ctx, agent.Reply{Text: "lost"}); !errors.Is(err, ErrNotConnected) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		w.mu.Lock()
		w.refuse = nil
		w.mu.Unlock()
		c = w.join(2)
		time.Sleep(10 * time.Second)
		c.expect(t)
		if !strings.Contains(w.log.String(), `msg=irc.dropped server=127.0.0.1:6667 lines=2 reason="it waited for too long"`) {
			t.Errorf("log: %s", w.log)
		}
	})
}

// A channel that does not take us is asked again, ever more rarely, and replies
// to it fail at once with its reason.
func TestRejoin(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a"}}, func(w *world) {
		c := w.join(0)
		begun := time.Now()
		c.say(t, ":op!u@h KICK #a ossi :too \x02loud")
		var joining *JoinError
		err := w.client.Channels()[0].Publish(w.context(), agent.Reply{Text: "x"})
		if !errors.As(err, &joining) || joining.Channel != "#a" || joining.Reason != "we were kicked: too loud" || time.Since(begun) != 0 {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
		var at []time.Duration
		for len(at) < 7 && time.Since(begun) < time.Hour {
			time.Sleep(time.Second)
			for _, g := range c.fresh() {
				switch g.text {
				case "JOIN #a\r\n":
					at = append(at, g.at.Sub(begun))
					begun = g.at
					c.say(t, ":irc.test 474 ossi #a :Cannot join channel (+b)")
				case "PING alive\r\n":
					c.say(t, "PONG alive")
				}
			}
		}
		s, m := time.Second, time.Minute
		if d := cmp.Diff([]time.Duration{30 * s, m, 2 * m, 4 * m, 8 * m, 10 * m, 10 * m}, at); d != "" {
			t.Error(d)
		}
		for range 10 {
			time.Sleep(59 * time.Second)
			c.say(t, "PING 1")
		}
		time.Sleep(10 * time.Second)
		c.fresh()
		c.say(t, self+" JOIN #a", from("eve", "#a", "ossi: welcome back"))
		wantMessages(t, w.heard(), Message{From: "eve", Text: "welcome back"})
		if err := w.client.Channels()[0].Publish(w.context(), agent.Reply{Text: "x"}); err != nil {
			t.Error(err)
		}
	})
}

// A reply to a private message follows its reader through changes of nick, and
// never goes to who takes the old one.
func TestPrivateReplyFollowsTheNick(t *testing.T) {
	t.Parallel()
	play(t, Options{}, func(w *world) {
		c := w.join(0)
		c.say(t, from("eve", "ossi", "secret?"))
		eve := w.heard()[0].Channel
		c.say(t, ":eve!u@h NICK :eve2", ":bob!u@h NICK eve", from("eve", "ossi", "and me?"))
		bob := w.heard()[0].Channel
		for _, p := range []struct {
			ch   agent.Channel
			text string
		}{{eve, "for eve"}, {bob, "for bob"}} {
			if err := p.ch.Publish(w.context(), agent.Reply{Text: p.text}); err != nil {
				t.Error(err)
			}
		}
		c.expect(t, "PRIVMSG eve2 :for eve", "PRIVMSG eve :for bob")
		// One who left unseen, and whose nick another takes, is not spoken to.
		c.say(t, from("carl", "ossi", "secret?"), from("dora", "ossi", "hi"))
		heard := w.heard()
		c.say(t, ":dora!u@h NICK carl")
		if err := heard[0].Channel.Publish(w.context(), agent.Reply{Text: "for carl"}); !errors.As(err, new(*JoinError)) {
			t.Errorf("got %v", err)
		}
		if err := heard[1].Channel.Publish(w.context(), agent.Reply{Text: "for dora"}); err != nil {
			t.Error(err)
		}
		c.say(t, from("carl", "ossi", "hi again"))
		if err := w.heard()[0].Channel.Publish(w.context(), agent.Reply{Text: "for her too"}); err != nil {
			t.Error(err)
		}
		c.expect(t, "PRIVMSG carl :for dora", "PRIVMSG carl :for her too")
		for i := range 3 * maxPeers {
			c.say(t, from(fmt.Sprint("n", i), "ossi", "hi"))
		}
		if n := len(w.client.peers); n != maxPeers {
			t.Errorf("%d conversations are followed", n)
		}
		if ch, err := w.client.Channel("EVE9"); err != nil || ch.Name() != "@EVE9" {
			t.Errorf("got %v, %v", ch, err)
		}
	})
}

// At the end what may be sent is sent, the rest is said to be lost, and whoever
// waits is told.
func TestStop(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a"}, QueueSize: 12}, func(w *world) {
		c := w.join(0)
		time.Sleep(10 * time.Second)
		ch := w.client.Channels()[0]
		waiting := make(chan error, 1)
		// Nothing runs between the two but us: the writer has sent nothing yet.
		if err := ch.Publish(w.context(), agent.Reply{Text: strings.Repeat("x\n", 8)}); err != nil {
			t.Error(err)
		}
		go func() { waiting <- ch.Publish(w.t.Context(), agent.Reply{Text: strings.Repeat("y\n", 10)}) }()
		begun := time.Now()
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		if d := time.Since(begun); d > stopTime {
			t.Errorf("it took %v", d)
		}
		if err := <-waiting; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
		x := "PRIVMSG #a :x"
		c.expect(t, x, x, x, x, x, "QUIT bye")
		if !strings.Contains(w.log.String(), `lines=3 reason="the client was closed"`) {
			t.Errorf("log: %s", w.log)
		}
		if err := ch.Publish(w.t.Context(), agent.Reply{Text: "x"}); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
		if err := w.client.Run(w.t.Context()); err == nil {
			t.Error("it ran twice")
		}
	})
}

// A server that has stopped reading holds up the end by a moment only, whether
// we are writing to it or are about to; so does one that talks on.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	for name, texts := range map[string][]string{"idle": {goDeaf}, "writing": {goDeaf + "\nmore"}, "about to write": {goDeaf, "more"}, "rude": nil} {
		play(t, Options{Channels: []string{"#a"}}, func(w *world) {
			c := w.join(0)
			time.Sleep(10 * time.Second)
			for i, text := range texts {
				if err := w.client.Channels()[0].Publish(w.context(), agent.Reply{Text: text}); err != nil {
					t.Error(err)
				}
				if i == 0 {
					synctest.Wait()
				}
			}
			var talking sync.WaitGroup
			if texts == nil {
				c.mu.Lock()
				c.rude = true
				c.mu.Unlock()
				talking.Go(func() {
					for {
						if _, err := c.Write([]byte("NOTICE ossi :stay\r\n")); err != nil {
							return
						}
						time.Sleep(time.Second)
					}
				})
			}
			begun := time.Now()
			if err := w.stop(); err != nil {
				t.Error(err)
			}
			if d := time.Since(begun); d > 2*stopTime {
				t.Errorf("%s: it took %v", name, d)
			}
			talking.Wait()
		})
	}
}

// A JOIN that nobody answers is repeated.
func TestJoinIsRepeated(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a"}}, func(w *world) {
		c := w.conn(0)
		c.say(t, ":irc.test 001 ossi :Welcome")
		c.fresh()
		time.Sleep(joinTime - time.Second)
		c.expect(t)
		time.Sleep(time.Second)
		c.expect(t, "JOIN #a")
	})
}

func TestNewChecks(t *testing.T) {
	t.Parallel()
	heard := func(Message) {}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	for name, c := range map[string]struct {
		addr, nick string
		o          *Options
		ok         bool
	}{
		"defaults":        {"irc.test:6667", "ossi", nil, true},
		"all":             {"irc.test:6697", "ossi", &Options{TLS: secure, Channels: []string{"#a key"}, SASLUser: "me", SASLPassword: "x"}, true},
		"SASL on lo":      {"[::1]:6667", "ossi", &Options{SASLUser: "me"}, true},
		"no port":         {"irc.test", "ossi", nil, false},
		"nick":            {"irc.test:6667", "ossi\r\nQUIT", nil, false},
		"empty nick":      {"irc.test:6667", "", nil, false},
		"channel":         {"irc.test:6667", "ossi", &Options{Channels: []string{"a"}}, false},
		"two channels":    {"irc.test:6667", "ossi", &Options{Channels: []string{"#a,#b"}}, false},
		"key":             {"irc.test:6667", "ossi", &Options{Channels: []string{"#a b c"}}, false},
		"long key":        {"irc.test:6667", "ossi", &Options{Channels: []string{"#a " + strings.Repeat("k", 65)}}, false},
		"key line":        {"irc.test:6667", "ossi", &Options{Channels: []string{"#a b\nc"}}, false},
		"many channels":   {"irc.test:6667", "ossi", &Options{Channels: strings.Split(strings.Repeat("#a,", 50)+"#a", ",")}, false},
		"password":        {"irc.test:6667", "ossi", &Options{Password: "a\nb"}, false},
		"username":        {"irc.test:6667", "ossi", &Options{Username: "a b"}, false},
		"realname":        {"irc.test:6667", "ossi", &Options{Realname: "a\x00"}, false},
		"SASL in clear":   {"irc.test:6667", "ossi", &Options{SASLUser: "me"}, false},
		"SASL no user":    {"irc.test:6697", "ossi", &Options{TLS: secure, SASLPassword: "x"}, false},
		"queue too small": {"irc.test:6667", "ossi", &Options{QueueSize: 10, MaxLines: 10}, false},
	} {
		if _, err := New(c.addr, c.nick, heard, c.o); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
