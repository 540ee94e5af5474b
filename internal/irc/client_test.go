package irc

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ossicle/ossicle/agent"
)

func wantMessages(t *testing.T, got []Message, want ...Message) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Message{}, "Channel")); d != "" {
		t.Error(d)
	}
}

// N-14: registers, joins, answers PINGs, hears what is addressed to it, and
// says goodbye.
func TestConversation(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a", "#b key"}, Password: "pass word", Realname: "The Ear"}, func(w *world) {
		c := w.conn(0)
		c.expect(t, "PASS :pass word", "NICK ossi", "USER ossi 0 * :The Ear")
		c.say(t, "PING :cookie 1", ":irc.test NOTICE * :*** Looking up", ":irc.test 001 ossi :Welcome")
		c.expect(t, "PONG :cookie 1", "JOIN #a", "JOIN #b key")
		c.say(t, self+" JOIN :#a", self+" JOIN #b", ":irc.test 366 ossi #a :End")
		c.say(t, from("eve", "#a", "ossi: what is up?"), from("eve", "#b", "@Ossi \x02and\x02 here?"), from("eve", "OSSI", "in private"),
			from("eve", "#a", "to all"), from("eve", "#else", "ossi: x"), from("eve", "@#a", "ossi: ops"))
		heard := w.heard()
		wantMessages(t, heard, Message{From: "eve", Text: "what is up?"}, Message{From: "eve", Text: "and here?"}, Message{From: "eve", Text: "in private", Private: true})
		for i, name := range []string{"#a", "#b", "@eve"} {
			if got := heard[i].Channel.Name(); got != name {
				t.Errorf("message %d is from %s", i, got)
			}
			if err := heard[i].Channel.Publish(w.context(), agent.Reply{Text: fmt.Sprint("reply ", i)}); err != nil {
				t.Error(err)
			}
		}
		c.expect(t, "PRIVMSG #a :reply 0", "PRIVMSG #b :reply 1", "PRIVMSG eve :reply 2")
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		c.expect(t, "QUIT bye")
	})
}

// Others' chatter is delivered where that is asked for, and marked so (N-14).
func TestChatter(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a"}, Chatter: true}, func(w *world) {
		c := w.join(0)
		c.say(t, from("eve", "#a", "good \x0304morning"), from("bob", "#a", "ossi, hi"), from("eve", "#a", "\x01ACTION looks at ossi\x01"))
		heard := w.heard()
		wantMessages(t, heard, Message{From: "eve", Text: "good morning", Chatter: true}, Message{From: "bob", Text: "hi"}, Message{From: "eve", Text: "* eve looks at ossi", Chatter: true})
		in := heard[0].Input()
		if in.Text != "good morning" || in.From != "eve" || !in.Chatter || in.Channel.Name() != "#a" {
			t.Errorf("input %+v", in)
		}
	})
}

// Notices, servers, ourselves, questions to programs and nonsense are not heard:
// whoever answers them makes loops.
func TestNotHeard(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a"}, Chatter: true}, func(w *world) {
		c := w.join(0)
		c.say(t, ":eve!u@h NOTICE ossi :ossi: hi", ":irc.test PRIVMSG ossi :hi", self+" PRIVMSG #a :ossi: echo", "PRIVMSG #a :no source",
			from("eve", "ossi", "\x01VERSION\x01"), from("eve", "ossi", "\x01PING 1\x01"), from("eve", "#a", "\x02\x03\x0f"), from("eve", "#a", "  "),
			":eve!u@h PRIVMSG #a", ":eve!u@h PRIVMSG #a two params", from("e*e", "ossi", "hi"), from(strings.Repeat("e", 70), "ossi", "hi"))
		wantMessages(t, w.heard())
		c.expect(t)
	})
}

// A hostile server changes nothing: what is too long or malformed is left out,
// what follows is heard.
func TestMisbehavingServer(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a"}}, func(w *world) {
		c := w.join(0)
		junk := []string{
			"", " ", ":", "\x00", "PRIVMSG", ":x", "@", "@ :x PRIVMSG", ":eve!u@h PRIVMSG #a :ossi: " + strings.Repeat("x", 600), "@" + strings.Repeat("t", 9000) + " PING :a",
			strings.Repeat("y", 100_000), "999", "000 a b c", ":irc.test 005", ":irc.test 433", ":irc.test 473 ossi", "KICK", ":x KICK #a", "NICK", ":eve!u@h NICK :#bad nick", self + " NICK :a b",
			":irc.test 001", ":irc.test CAP * ACK :sasl", "AUTHENTICATE +", "903", "PING", self + " JOIN", self + " JOIN #unknown", "MODE " + strings.Repeat("a ", 40), "é",
		}
		c.say(t, junk...)
		if _, err := c.Write([]byte(from("eve", "#a", "ossi: still there?"))); err != nil {
			t.Fatal(err)
		}
		wantMessages(t, w.heard())
		c.say(t, "")
		wantMessages(t, w.heard(), Message{From: "eve", Text: "still there?"})
		c.say(t, ":irc.test 005 ossi CASEMAPPING=ascii NICKLEN=9 :are supported", from("eve", "OSSI", "hi"))
		wantMessages(t, w.heard(), Message{From: "eve", Text: "hi", Private: true})
		c.expect(t)
		if n := strings.Count(w.log.String(), "irc.malformed"); n != 3 {
			t.Errorf("%d lines in the log about malformed ones", n)
		}
		if w.client.Nick() != "ossi" {
			t.Errorf("nick %s", w.client.Nick())
		}
	})
}

// No reply is ever a command, or text that hides something.
func TestReplyIsNeverACommand(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a"}, Burst: 1000, QueueSize: 1000, MaxLines: 100}, func(w *world) {
		c := w.join(0)
		ch := w.client.Channels()[0]
		texts := []string{
			"hi\r\nQUIT :x", "hi\nJOIN #evil", "hi\rNICK evil", "\x01DCC SEND x\x01", ":x PRIVMSG #b :y", "/quit", "a\x00b", "a\u2028PART #a\u0085QUIT", "\x1b]0;title\x07", strings.Repeat("é\r\n", 50),
			strings.Repeat("QUIT ", 300), "\xff\xfe",
		}
		for _, s := range texts {
			if err := ch.Publish(w.context(), agent.Reply{Text: s}); err != nil {
				t.Error(err)
			}
		}
		got := c.fresh()
		if len(got) < 65 {
			t.Errorf("%d lines", len(got))
		}
		for _, g := range got {
			text, ok := strings.CutPrefix(g.text, "PRIVMSG #a :")
			body, ended := strings.CutSuffix(text, "\r\n")
			if !ok || !ended || body == "" || len(body) > maxText || strings.ContainsAny(body, "\x00\r\n\x01\x1b") || plain(body) != body {
				t.Errorf("%q", g.text)
			}
		}
	})
}

// What a run broke of is not for a public place.
func TestFailedRun(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a"}}, func(w *world) {
		c := w.join(0)
		if err := w.client.Channels()[0].Publish(w.context(), agent.Reply{Err: errors.New("open /home/me/secret: denied")}); err != nil {
			t.Error(err)
		}
		c.expect(t, "PRIVMSG #a :"+failed)
	})
}

// A burst of five, then a line each second.
func TestOutputIsRateLimited(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a"}, MaxLines: 20}, func(w *world) {
		c := w.join(0)
		time.Sleep(time.Minute)
		begun := time.Now()
		if err := w.client.Channels()[0].Publish(w.context(), agent.Reply{Text: strings.Repeat("line\n", 12)}); err != nil {
			t.Error(err)
		}
		if time.Since(begun) != 0 {
			t.Error("Publish waited for the lines to be sent")
		}
		synctest.Wait()
		time.Sleep(20 * time.Second)
		var at []time.Duration
		for _, g := range c.fresh() {
			if strings.HasPrefix(g.text, "PRIVMSG") {
				at = append(at, g.at.Sub(begun))
			}
		}
		s := time.Second
		if d := cmp.Diff([]time.Duration{0, 0, 0, 0, 0, s, 2 * s, 3 * s, 4 * s, 5 * s, 6 * s, 7 * s}, at); d != "" {
			t.Error(d)
		}
		// PINGs are answered past the queue.
		if err := w.client.Channels()[0].Publish(w.context(), agent.Reply{Text: strings.Repeat("line\n", 20)}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		c.fresh()
		c.say(t, "PING 1")
		c.expect(t, "PONG 1")
	})
}

// A full queue takes no half replies: it waits for room, or says that there is
// none.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a"}, QueueSize: 12, MaxLines: 10}, func(w *world) {
		c := w.join(0)
		ch := w.client.Channels()[0]
		ten := agent.Reply{Text: strings.Repeat("x\n", 10)}
		for range 2 {
			if err := ch.Publish(w.context(), ten); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			time.Sleep(4 * time.Second)
		}
		ctx, cancel := context.WithTimeout(w.context(), time.Second)
		defer cancel()
		begun := time.Now()
		if err := ch.Publish(ctx, ten); !errors.Is(err, ErrQueueFull) || !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
		begun = time.Now()
		if err := ch.Publish(w.context(), ten); err != nil || time.Since(begun) < time.Second || time.Since(begun) > 10*time.Second {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
		time.Sleep(time.Minute)
		n := 0
		for _, g := range c.fresh() {
			if g.text == "PRIVMSG #a :x\r\n" {
				n++
			}
		}
		if n != 30 {
			t.Errorf("%d lines, want those of three whole replies", n)
		}
	})
}

// Lines fit what the server makes of them: it puts our address in front.
func TestLinesFitOurAddress(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a", "#" + strings.Repeat("l", 80)}}, func(w *world) {
		c := w.conn(0)
		c.say(t, ":irc.test 001 ossi :Welcome")
		for i, r := range w.client.rooms {
			mask := fmt.Sprintf("!~ossi@%s.example", strings.Repeat("h", 10+i*100))
			c.say(t, ":ossi"+mask+" JOIN "+r.name)
			c.fresh()
			if err := r.Publish(w.context(), agent.Reply{Text: strings.Repeat("word ", 200)}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			longest := 0
			for _, g := range c.fresh() {
				if strings.HasPrefix(g.text, "PRIVMSG") {
					longest = max(longest, len(":ossi"+mask+" "+g.text))
				}
			}
			if longest > 512 || longest < 430 {
				t.Errorf("%s: the longest line has %d bytes for others", r.name, longest)
			}
		}
	})
}

// Taken nicks: others are tried, both are heard, and ours is taken back.
func TestNickCollision(t *testing.T) {
	t.Parallel()
	play(t, Options{Channels: []string{"#a"}}, func(w *world) {
		c := w.conn(0)
		c.fresh()
		c.say(t, ":irc.test 433 * ossi :Nickname is already in use")
		c.expect(t, "NICK ossi_")
		c.say(t, ":irc.test 433 * ossi_ :Nickname is already in use")
		c.expect(t, "NICK ossi__")
		c.say(t, ":irc.test 432 * ossi__ :Nickname too long")
		c.expect(t, "NICK oss_")
		c.say(t, ":irc.test 001 oss_ :Welcome")
		c.expect(t, "JOIN #a")
		c.say(t, ":oss_!u@h JOIN #a", from("eve", "#a", "oss_: one"), from("eve", "#a", "ossi: two"), from("eve", "oss_", "three"), from("eve", "#a", "oss: four"))
		wantMessages(t, w.heard(), Message{From: "eve", Text: "one"}, Message{From: "eve", Text: "two"}, Message{From: "eve", Text: "three", Private: true})
		time.Sleep(regainTime / 2)
		c.say(t, ":irc.test NOTICE oss_ :we live")
		time.Sleep(regainTime / 2)
		c.expect(t, "NICK ossi")
		c.say(t, ":irc.test 433 oss_ ossi :Nickname is already in use")
		time.Sleep(regainTime / 2)
		c.expect(t)
		c.say(t, ":ossi!x@y QUIT :gone")
		c.expect(t, "NICK ossi")
		c.say(t, ":oss_!u@h NICK :ossi")
		if w.client.Nick() != "ossi" {
			t.Errorf("nick %s", w.client.Nick())
		}
		time.Sleep(30 * time.Second)
		c.fresh()
		c.say(t, "PING 1")
		time.Sleep(59 * time.Second)
		c.expect(t, "PONG 1")
	})
}

// Nicks run out at some point, and then the connection is tried again.
func TestNoFreeNick(t *testing.T) {
	t.Parallel()
	play(t, Options{}, func(w *world) {
		c := w.conn(0)
		seen := map[string]bool{}
		for range nickTries {
			c.fresh()
			c.say(t, ":irc.test 433 * x :in use")
			for _, g := range c.fresh() {
				seen[g.text] = true
			}
		}
		if len(seen) != nickTries {
			t.Errorf("tried %v", seen)
		}
		c.say(t, ":irc.test 433 * x :in use")
		w.conn(1).expect(t, "NICK ossi", "USER ossi 0 * ossi")
	})
}

func TestSASL(t *testing.T) {
	t.Parallel()
	for _, length := range []int{6, 290, 294, 300} { // 294 makes exactly 400 characters, with the names
		password := strings.Repeat("p", length)
		play(t, Options{SASLUser: "me", SASLPassword: password}, func(w *world) {
			c := w.conn(0)
			c.expect(t, "CAP REQ sasl", "NICK ossi", "USER ossi 0 * ossi")
			c.say(t, "AUTHENTICATE +") // not asked yet: it gets nothing, and we leave
			if err := w.stop(); !errors.As(err, new(*RefusedError)) {
				t.Errorf("got %v", err)
			}
			c.expect(t)
		})
		play(t, Options{SASLUser: "me", SASLPassword: password}, func(w *world) {
			c := w.conn(0)
			c.fresh()
			c.say(t, ":irc.test CAP * ACK :sasl")
			c.expect(t, "AUTHENTICATE PLAIN")
			c.say(t, "AUTHENTICATE +")
			var encoded bytes.Buffer
			got := c.fresh()
			for _, g := range got {
				s := strings.TrimSpace(strings.TrimPrefix(g.text, "AUTHENTICATE "))
				if len(s) > 400 {
					t.Errorf("a piece of %d", len(s))
				}
				encoded.WriteString(strings.TrimPrefix(s, "+"))
			}
			if last := strings.TrimSpace(strings.TrimPrefix(got[len(got)-1].text, "AUTHENTICATE ")); len(last) == 400 {
				t.Error("the last piece is full: the server waits for more")
			}
			b, err := base64.StdEncoding.DecodeString(encoded.String())
			if want := "me\x00me\x00" + password; err != nil || string(b) != want {
				t.Errorf("sent %q, %v", b, err)
			}
			c.say(t, ":irc.test 900 ossi ossi!u@h me :You are now logged in as me", ":irc.test 903 ossi :SASL authentication successful")
			c.expect(t, "CAP END")
			c.say(t, ":irc.test 001 ossi :Welcome")
			if strings.Contains(w.log.String(), password) || !strings.Contains(w.log.String(), "irc.connected") {
				t.Errorf("log: %s", w.log)
			}
		})
	}
}

// What will not change by itself ends Run on the first connection, and is tried
// again once we were in.
func TestRefused(t *testing.T) {
	t.Parallel()
	sasl := Options{SASLUser: "me", SASLPassword: "secret"}
	for name, c := range map[string]struct {
		o    Options
		says []string
	}{
		"password":              {Options{Password: "x"}, []string{":irc.test 464 ossi :Bad password"}},
		"banned":                {Options{}, []string{":irc.test 465 ossi :You are banned"}},
		"nick":                  {Options{}, []string{":irc.test 432 * ossi :Nickname too long"}},
		"no SASL":               {sasl, []string{":irc.test CAP * NAK :sasl"}},
		"no CAP":                {sasl, []string{":irc.test 421 * CAP :Unknown command"}},
		"welcome without login": {sasl, []string{":irc.test 001 ossi :Welcome"}},
		"bad login":             {sasl, []string{":irc.test CAP * ACK :sasl", "AUTHENTICATE +", ":irc.test 904 ossi :SASL authentication failed"}},
		"early success":         {sasl, []string{":irc.test CAP * ACK :sasl", ":irc.test 903 ossi :ok"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, c.o, func(w *world) {
				w.conn(0).say(t, c.says...)
				var refused *RefusedError
				err := w.stop()
				if !errors.As(err, &refused) || refused.Text == "" || strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v", err)
				}
				if _, err := w.client.Channel("#a"); !errors.Is(err, ErrUnknownChannel) {
					t.Errorf("got %v", err)
				}
			})
			if c.o.SASLUser != "" {
				return
			}
			play(t, c.o, func(w *world) {
				w.join(0).Close()
				w.conn(1).say(t, c.says...)
				w.join(2)
			})
		})
	}
}
