package pageserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/access"
)

// play runs body on a server in virtual time.
func play(t *testing.T, o *Options, body func(t *testing.T, b *board, st *stand)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		st := newStand(t, b, o)
		body(t, b, st)
		st.close()
		synctest.Wait()
		for topic := range b.streams {
			if n := b.watching(topic); n != 0 {
				t.Errorf("%d subscriptions to %s are left", n, topic)
			}
		}
		if s := st.s.Stats(); s.Connections != 0 || s.Subscriptions != 0 {
			t.Errorf("left: %+v", s)
		}
	})
}

// A subscription begins with the state, and what is pushed is what comes after it;
// two topics on one connection do not meet.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	play(t, nil, func(t *testing.T, b *board, st *stand) {
		one, two := Topic{Session, "one"}, Topic{Session, "two"}
		b.say(one, 0)
		page := st.dial(all())
		if g := page.subscribe("session:one"); g.n() != 1 {
			t.Errorf("the state is %+v", g)
		}
		if g := page.subscribe("session:one"); code(g) != CodeBadRequest {
			t.Errorf("twice: %+v", g)
		}
		if g := page.ask(actionSubscribe, `"topic":"session:two","after":7`); g.n() != 7 {
			t.Errorf("the state is %+v", g)
		}
		b.say(one, 0)
		b.say(two, 0)
		for _, want := range []got{{Topic: "session:one", Action: "said"}, {Topic: "session:two", Action: "said"}} {
			g := page.read()
			if g.Topic != want.Topic || g.Action != want.Action || g.ID != 0 {
				t.Errorf("got %+v, want %+v", g, want)
			}
		}
		if g := page.ask(actionUnsubscribe, `"topic":"session:one"`); string(g.Result) != "{}" {
			t.Errorf("unsubscribed: %+v", g)
		}
		b.say(one, 0)
		b.say(two, 0)
		if g := page.read(); g.Topic != "session:two" || g.n() != 2 {
			t.Errorf("after the end of the other: %+v", g)
		}
		if g := page.subscribe("session:one"); g.n() != 3 {
			t.Errorf("again: %+v", g)
		}
		if g := page.subscribe("session:nobody"); code(g) != CodeNotFound {
			t.Errorf("nobody: %+v", g)
		}
		page.close()
	})
}

// Rights come before everything: who has none gets the same answer whether there
// is such a session or not, and the backend is not asked. Raw actions of MCP pass
// for nobody.
//
//
func TestRights(t *testing.T) {
	t.Parallel()
	play(t, nil, func(t *testing.T, b *board, st *stand) {
		page := st.dial(some("mine", "my-*"))
		var texts []string
		for _, topic := range []string{"session:yours", "session:nobody", "terminal:yours", "signals:yours", "signals:mine", "sandboxes"} {
			g := page.subscribe(topic)
			if code(g) != CodeForbidden {
				t.Errorf("%s: %+v", topic, g)
				continue
			}
			texts = append(texts, g.Error.Message)
		}
		for _, action := range []string{
			ActionTestEndpoint + `","session_id":"yours","server_name":"s`, ActionRecentOutput + `","session_id":"nobody`,
			ActionInput + `","session_id":"yours","data":"aGk=`,
		} {
			page.send(`{"id":99,"action":"` + action + `"}`)
			g := page.read()
			if code(g) != CodeForbidden {
				t.Errorf("%s: %+v", action, g)
				continue
			}
			texts = append(texts, g.Error.Message)
		}
		for _, text := range texts {
			if text != texts[0] {
				t.Errorf("%q and %q tell what there is", text, texts[0])
			}
		}
		if len(b.opened)+len(b.called) != 0 {
			t.Errorf("the backend was asked for %v and %v", b.opened, b.called)
		}
		for _, p := range []*browser{page, st.dial(all()), st.dial(nil)} {
			for _, action := range []string{"mcp.", "mcp.tools/call", "mcp.anything"} {
				if g := p.ask(action, `"session_id":"mine","x":1`); code(g) != CodeRefused {
					t.Errorf("%s: %+v", action, g)
				}
			}
		}
		for _, topic := range []string{"session:mine", "terminal:my-own", "sessions", "inbox"} {
			if g := page.subscribe(topic); g.Error != nil {
				t.Errorf("%s: %+v", topic, g)
			}
		}
		if g := page.ask(ActionRecentOutput, `"session_id":"my-own"`); g.Error != nil {
			t.Errorf("mine: %+v", g)
		}
	})
}

// What a client sends wrong is answered, and costs it nothing else.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	play(t, nil, func(t *testing.T, b *board, st *stand) {
		page := st.dial(all())
		for _, tc := range []struct {
			text string
			id   int64
		}{
			{`{`, 0},
			{`[]`, 0},
			{`"x"`, 0},
			{`{}`, 0},
			{`{"id":0,"action":"subscribe"}`, 0},
			{`{"id":-1}`, 0},
			{`{"id":1.5}`, 0},
			{`{"id":1,"id":2,"action":"subscribe"}`, 0},
			{`{"id":3,"action":"subscribe","topic":"sessions","Topic":"x"}`, 3},
			{`{"id":4,"action":"subscribe","topic":"sessions","more":1}`, 4},
			{`{"id":5,"action":"Subscribe","topic":"sessions"}`, 5},
			{`{"id":6,"action":"subscribe","topic":"session:"}`, 6},
			{`{"id":7,"action":"subscribe","topic":"session"}`, 7},
			{`{"id":8,"action":"subscribe","topic":"sessions:x"}`, 8},
			{`{"id":9,"action":"subscribe","topic":"other:x"}`, 9},
			{`{"id":10,"action":"subscribe","topic":"terminal:x","after":-1}`, 10},
			{`{"id":11,"action":"session.mcp_test_endpoint","session_id":"x","server_name":"s","url":"http://x"}`, 11},
			{`{"id":12,"action":"session.mcp_test_endpoint","session_id":"x"}`, 12},
			{`{"id":13,"action":"session.mcp_recent_agent_output"}`, 13},
			{`{"id":14,"action":"terminal.resize","session_id":"x","cols":0,"rows":1}`, 14},
			{`{"id":15,"action":"terminal.resize","session_id":"x","cols":1,"rows":5000}`, 15},
			{`{"id":16,"action":"terminal.input","session_id":"x","data":"no base64!"}`, 16},
			{`{"id":17,"action":"nothing"}`, 17},
			{`{"id":18}`, 18},
			{`{"id":19,"action":"subscribe","topic":"` + strings.Repeat("x", 300) + `"}`, 19},
		} {
			page.send(tc.text)
			if g := page.read(); g.ID != tc.id || code(g) != CodeBadRequest || g.Error.Message == "" || strings.Contains(g.Error.Message, "\n") {
				t.Errorf("%s: %+v %+v", tc.text, g, g.Error)
			}
		}
		if len(b.opened)+len(b.called) != 0 {
			t.Errorf("the backend was asked for %v and %v", b.opened, b.called)
		}
		if g := page.subscribe("sessions"); g.Error != nil {
			t.Errorf("after all that: %+v", g)
		}
		page.ws.SetReadLimit(1 << 20)
		if err := page.ws.Write(t.Context(), websocket.MessageBinary, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, code := page.next(); code != websocket.StatusUnsupportedData {
			t.Errorf("binary: closed with %d", code)
		}
		large := st.dial(all())
		go func() { // it is cut in the middle of it
			_ = large.ws.Write(t.Context(), websocket.MessageText, []byte(`{"id":1,"action":"`+strings.Repeat("x", MaxMessage)+`"}`))
		}()
		if _, code := large.next(); code != websocket.StatusMessageTooBig {
			t.Errorf("too big: closed with %d", code)
		}
	})
}

// Calls are passed on as they are, what is typed in its order, and what takes too
// long or fails is told.
func TestCalls(t *testing.T) {
	t.Parallel()
	play(t, nil, func(t *testing.T, b *board, st *stand) {
		page := st.dial(all())
		for i := range 20 {
			page.send(fmt.Sprintf(`{"id":%d,"action":"terminal.input","session_id":"s","data":"aGk="}`, i+1))
		}
		for i := range 20 {
			if g := page.read(); g.ID != int64(i+1) || g.Error != nil {
				t.Errorf("%d: %+v", i, g)
			}
		}
		page.ask(ActionResize, `"session_id":"s","cols":80,"rows":24`)
		page.ask(ActionTestEndpoint, `"session_id":"s","server_name":"v"`)
		page.ask(ActionRecentOutput, `"session_id":"s"`)
		want := []Call{{Action: ActionResize, Session: "s", Cols: 80, Rows: 24}, {Action: ActionTestEndpoint, Session: "s", Server: "v"}, {Action: ActionRecentOutput, Session: "s"}}
		if d := cmp.Diff(want, b.called[20:]); d != "" || string(b.called[0].Data) != "hi" {
			t.Error(d)
		}
		begun := make(chan struct{}, MaxCalls)
		b.answer = func(ctx context.Context, c *Call) (any, error) {
			if c.Action == ActionInput {
				return nil, errors.New("the terminal is gone")
			}
			begun <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		for i := range MaxCalls {
			page.send(fmt.Sprintf(`{"id":%d,"action":"session.mcp_recent_agent_output","session_id":"s"}`, 100+i))
		}
		for range MaxCalls {
			<-begun
		}
		if g := page.ask(ActionRecentOutput, `"session_id":"s"`); code(g) != CodeTooMany {
			t.Errorf("one more: %+v", g)
		}
		if g := page.ask(ActionInput, `"session_id":"s","data":""`); code(g) != CodeFailed || g.Error.Message != "the terminal is gone" {
			t.Errorf("failed: %+v", g)
		}
		start := time.Now()
		for range MaxCalls {
			if g := page.read(); code(g) != CodeTimeout {
				t.Errorf("slow: %+v", g)
			}
		}
		if d := time.Since(start); d != callTime {
			t.Errorf("told after %v", d)
		}
	})
}

// A ticket opens one connection, for a short time, and nothing but this.
func TestTickets(t *testing.T) {
	t.Parallel()
	play(t, &Options{Connections: 1}, func(t *testing.T, _ *board, st *stand) {
		ticket, until, err := st.s.tickets.issue(all(), time.Now())
		if err != nil || time.Until(until) > ticketLife {
			t.Fatal(until, err)
		}
		if _, status := st.try("", Subprotocol); status != http.StatusUnauthorized {
			t.Errorf("without: %d", status)
		}
		page, status := st.try(ticket, "other", Subprotocol)
		if status != http.StatusSwitchingProtocols || page.ws.Subprotocol() != Subprotocol {
			t.Fatalf("with one: %d", status)
		}
		if _, status := st.try(ticket, Subprotocol); status != http.StatusUnauthorized {
			t.Errorf("used: %d", status)
		}
		issue := func() string {
			ticket, _, err := st.s.tickets.issue(all(), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			return ticket
		}
		if _, status := st.try(issue()); status != http.StatusUpgradeRequired {
			t.Errorf("without the subprotocol: %d", status)
		}
		if _, status := st.try(issue(), Subprotocol); status != http.StatusServiceUnavailable {
			t.Errorf("one too many: %d", status)
		}
		page.close()
		synctest.Wait()
		old := issue()
		time.Sleep(ticketLife)
		if _, status := st.try(old, Subprotocol); status != http.StatusUnauthorized {
			t.Errorf("old: %d", status)
		}
	})
}

// One principal cannot keep others from getting tickets.
func TestTicketsAreBounded(t *testing.T) {
	t.Parallel()
	var all tickets
	now := time.Now()
	mine, _, _ := all.issue(some("me"), now)
	greedy := &access.Principal{Name: "greedy"}
	for range 10 * maxTickets {
		if _, _, err := all.issue(greedy, now); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := all.redeem(mine, now); !ok || len(all.all) > maxTicketsOf {
		t.Errorf("mine is gone, or %d are kept", len(all.all))
	}
	for i := range maxTickets {
		_, _, err := all.issue(&access.Principal{Name: fmt.Sprint(i)}, now)
		if full := i+maxTicketsOf >= maxTickets; full != (err != nil) {
			t.Fatalf("the %dth: %v", i, err)
		}
	}
	if _, _, err := all.issue(greedy, now.Add(ticketLife)); err != nil || len(all.all) != 1 {
		t.Errorf("later: %v, %d kept", err, len(all.all))
	}
}

// Who reads slowly loses the subscription, is told so, and can begin again; who
// reads beside it hears everything. Who reads nothing is cut.
func TestSlowReaders(t *testing.T) {
	t.Parallel()
	play(t, &Options{Messages: 64, Bytes: 1 << 20, WriteTime: 10 * time.Second}, func(t *testing.T, b *board, st *stand) {
		fast, slow, dead := st.dial(all()), st.dial(all()), st.dial(all())
		one, two := Topic{Session, "one"}, Topic{Session, "two"}
		for _, p := range []*browser{fast, slow, dead} {
			p.subscribe("session:one")
		}
		slow.subscribe("session:two")
		b.say(two, 0)
		const said = 400
		var hear sync.WaitGroup
		hear.Go(func() {
			for i := range said {
				if g := fast.read(); g.n() != i+1 {
					t.Errorf("the fast one heard %d, want %d", g.n(), i+1)
					return
				}
			}
		})
		for range said {
			b.say(one, 4<<10)
			synctest.Wait() // the fast one keeps up
		}
		hear.Wait()
		last, gap, other := 0, false, 0
		for !gap {
			switch g := slow.read(); {
			case g.Topic == "session:two":
				other++
			case g.Action == actionGap:
				gap = g.Topic == "session:one" && g.Data == nil
			default:
				if g.n() != last+1 {
					t.Errorf("the slow one heard %d after %d", g.n(), last)
				}
				last = g.n()
			}
		}
		if other != 1 || last == said {
			t.Errorf("the slow one heard %d of the other topic and %d of this", other, last)
		}
		if g := slow.subscribe("session:one"); g.n() != said {
			t.Errorf("again: %+v", g)
		}
		b.say(one, 0)
		b.say(two, 0)
		if g := slow.read(); g.Topic != "session:one" || g.n() != said+1 {
			t.Errorf("then: %+v", g)
		}
		if g := slow.read(); g.Topic != "session:two" || g.n() != 2 {
			t.Errorf("and: %+v", g)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if n := st.s.Stats(); n.Connections != 2 || n.Gaps != 2 {
			t.Errorf("who reads nothing is there still: %+v", n)
		}
	})
}

// A client that lags again and again is to come again later, and so is one that
// does not read its answers.
func TestHopelessReaders(t *testing.T) {
	t.Parallel()
	play(t, &Options{Messages: 8}, func(t *testing.T, b *board, st *stand) {
		one := Topic{Session, "one"}
		page := st.dial(all())
		var gaps int
		var closed websocket.StatusCode
		for closed == 0 {
			page.send(`{"id":1,"action":"subscribe","topic":"session:one"}`)
			synctest.Wait()
			for range 20 { // more than its queue, the pipe and the writer hold
				b.say(one, 60<<10)
			}
			for {
				g, code := page.next()
				if closed = code; code != 0 || g.Action == actionGap {
					break
				}
			}
			if closed == 0 {
				gaps++
			}
		}
		if closed != websocket.StatusTryAgainLater || gaps != maxGaps {
			t.Errorf("closed with %d after %d gaps", closed, gaps)
		}
		b.answer = func(context.Context, *Call) (any, error) { return strings.Repeat("x", 40<<10), nil }
		other := st.dial(all())
		for i := range 20 {
			if err := other.ws.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"id":%d,"action":"terminal.input","session_id":"s","data":""}`, i+1)); err != nil {
				break
			}
		}
		for code := websocket.StatusCode(0); code != websocket.StatusTryAgainLater; {
			if _, code = other.next(); code != 0 && code != websocket.StatusTryAgainLater {
				t.Fatalf("closed with %d", code)
			}
		}
	})
}

// At a shutdown everybody is told to come again, also who does not listen, and
// nobody new is let in.
func TestShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		st := newStand(t, b, nil)
		page, deaf := st.dial(all()), st.dial(all())
		page.subscribe("session:one")
		deaf.subscribe("session:one")
		late, _, _ := st.s.tickets.issue(all(), time.Now())
		b.hold = make(chan struct{})
		page.send(`{"id":50,"action":"subscribe","topic":"session:two"}`) // is opening
		ended := make(chan error, 1)
		begun := time.Now()
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			ended <- st.s.Shutdown(ctx)
		}()
		for code := websocket.StatusCode(0); code != websocket.StatusGoingAway; {
			if _, code = page.next(); code != 0 && code != websocket.StatusGoingAway {
				t.Fatalf("closed with %d", code)
			}
		}
		if err := <-ended; err != nil || time.Since(begun) > closeTime {
			t.Errorf("ended after %v: %v", time.Since(begun), err)
		}
		if _, status := st.try(late, Subprotocol); status != http.StatusServiceUnavailable {
			t.Errorf("late: %d", status)
		}
		if b.watching(Topic{Session, "one"}) != 0 {
			t.Error("subscriptions are left")
		}
		deaf.close()
		st.close()
	})
}

// A client that is gone without a word is noticed, and so is a token that ends.
func TestPingAndTokens(t *testing.T) {
	t.Parallel()
	var revoked, broken sync.Map
	recheck := func(_ context.Context, p *access.Principal) error {
		if _, ok := broken.Load(p.Name); ok {
			return errors.New("the store is away")
		}
		if _, ok := revoked.Load(p.Name); ok {
			return fmt.Errorf("%w: it was revoked", access.ErrInvalidToken)
		}
		return nil
	}
	play(t, &Options{Recheck: recheck}, func(t *testing.T, _ *board, st *stand) {
		named := func(name string) *browser {
			p := all()
			p.Name = name
			if name == "short" {
				p.Expires = time.Now().Add(40 * time.Second)
			}
			return st.dial(p)
		}
		begun := time.Now()
		ends := map[string]time.Duration{}
		codes := map[string]websocket.StatusCode{}
		var mu sync.Mutex
		var pages sync.WaitGroup
		for _, name := range []string{"stays", "short", "revoked", "unsure"} {
			page := named(name)
			pages.Go(func() {
				_, code := page.next() // answers pings meanwhile
				mu.Lock()
				defer mu.Unlock()
				ends[name], codes[name] = time.Since(begun), code
			})
		}
		silent := named("silent") // reads nothing, so it answers no ping
		broken.Store("unsure", true)
		time.Sleep(35 * time.Second)
		revoked.Store("revoked", true)
		time.Sleep(20 * time.Second)
		if n := st.s.Stats().Connections; n != 3 {
			t.Errorf("%d connections after the silent and the short one", n)
		}
		silent.close()
		time.Sleep(time.Hour)
		mu.Lock()
		if d := cmp.Diff(map[string]time.Duration{"short": 40 * time.Second, "revoked": time.Minute}, ends); d != "" {
			t.Error(d)
		}
		if codes["short"] != websocket.StatusPolicyViolation || codes["revoked"] != websocket.StatusPolicyViolation {
			t.Errorf("closed with %v", codes)
		}
		mu.Unlock()
		if n := st.s.Stats().Connections; n != 2 {
			t.Errorf("%d connections after an hour", n)
		}
		st.close()
		pages.Wait()
	})
}

// A subscription that is ended while it begins is answered and leaves nothing.
func TestEndWhileBeginning(t *testing.T) {
	t.Parallel()
	play(t, nil, func(t *testing.T, b *board, st *stand) {
		b.hold = make(chan struct{})
		page := st.dial(all())
		page.send(`{"id":1,"action":"subscribe","topic":"session:one"}`)
		synctest.Wait()
		page.send(`{"id":2,"action":"unsubscribe","topic":"session:one"}`)
		if g := page.read(); g.ID != 2 || g.Error != nil {
			t.Errorf("%+v", g)
		}
		close(b.hold)
		if g := page.read(); g.ID != 1 || code(g) != CodeFailed {
			t.Errorf("%+v", g)
		}
		b.hold = nil
		if g := page.subscribe("session:one"); g.Error != nil {
			t.Errorf("%+v", g)
		}
	})
}

// A connection has a bounded number of subscriptions.
func TestSubscriptionsAreBounded(t *testing.T) {
	t.Parallel()
	play(t, nil, func(t *testing.T, _ *board, st *stand) {
		page := st.dial(all())
		for i := range MaxSubscriptions {
			if g := page.subscribe(fmt.Sprint("session:", i)); g.Error != nil {
				t.Fatalf("%d: %+v", i, g)
			}
		}
		if g := page.subscribe("session:more"); code(g) != CodeTooMany {
			t.Errorf("%+v", g)
		}
		page.ask(actionUnsubscribe, `"topic":"session:7"`)
		if g := page.subscribe("session:more"); g.Error != nil {
			t.Errorf("%+v", g)
		}
	})
}

// A thousand who look at one topic hear all of it.
func TestManySubscribers(t *testing.T) {
	t.Parallel()
	const pages, said = 1000, 50
	play(t, nil, func(t *testing.T, b *board, st *stand) { // a busy machine takes longer than its deadlines
		topic := Topic{Session, "one"}
		var ready, heard sync.WaitGroup
		for range pages {
			page := st.dial(all())
			ready.Add(1)
			heard.Go(func() {
				defer page.close()
				last := page.subscribe("session:one").n()
				ready.Done()
				for last < said {
					g := page.read()
					if g.n() != last+1 {
						t.Errorf("heard %d after %d", g.n(), last)
						return
					}
					last = g.n()
				}
			})
			if b.said(topic) < said/2 {
				b.say(topic, 100) // while others begin
			}
		}
		ready.Wait()
		for range said / 2 {
			b.say(topic, 100)
		}
		heard.Wait()
		if n := st.s.Stats().Gaps; n != 0 {
			t.Errorf("%d gaps", n)
		}
	})
}
