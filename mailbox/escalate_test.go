package mailbox_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/mailbox/mailboxtest"
)

// client is an escalator whose turns do what the test says.
type client struct {
	mu    sync.Mutex
	means bool
	turn  func(ctx context.Context, e mailbox.Escalation) error
	got   []mailbox.Escalation
}

func (c *client) Name() string { return "test" }

func (c *client) Means() bool { return c.means }

func (c *client) Escalate(ctx context.Context, e mailbox.Escalation) error {
	c.mu.Lock()
	c.got = append(c.got, e)
	turn := c.turn
	c.mu.Unlock()
	if turn == nil {
		return nil
	}
	return turn(ctx, e)
}

func (c *client) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

// escalates runs the second tier of a member until stop is called.
func (s *stage) escalates(m *mailbox.Member, c mailbox.Escalator) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	run := m.Escalate(c, 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// S-14, S-21: of what arrives, exactly that is escalated which all gates let
// through, and each refusal is counted by its gate.
func TestEscalation(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		a, b := s.join("a"), s.join("b")
		s.send(a, "b", mailbox.Urgent) // before it began to listen
		synctest.Wait()
		c := &client{means: true}
		defer s.escalates(b, c)()
		step := func(want int, typ mailbox.Type) {
			s.Helper()
			s.send(a, "b", typ)
			synctest.Wait()
			if n := c.count(); n != want {
				s.Fatalf("%s: %d escalations, want %d", typ, n, want)
			}
		}
		step(0, mailbox.Inform)
		step(1, mailbox.Delegate)
		if got := c.got[0].Signals; len(got) != 1 || got[0].Sequence != 3 {
			s.Errorf("%+v", got)
		}
		step(2, mailbox.Urgent)
		step(2, mailbox.Urgent) // the third of this minute
		time.Sleep(mailbox.Window - 1)
		step(2, mailbox.Urgent)
		time.Sleep(1 * time.Nanosecond)
		step(3, mailbox.Urgent)
		c.means = false
		step(3, mailbox.Urgent)
		got := s.session.Stats()
		if got.Escalated != 3 || got.Refused[mailbox.TooMany] != 2 || got.Refused[mailbox.NotDemanding] != 1 || got.Refused[mailbox.NoMeans] != 1 || got.Sent[mailbox.Urgent] != 6 {
			s.Errorf("%+v", got)
		}
		p, err := b.Read(s.Context(), mailbox.Selection{})
		if err != nil || p.Unread != 8 {
			s.Errorf("%d unread, %v", p.Unread, err)
		}
	})
}

// S-17: a client that errs, hangs or is gone costs one event; the signal stays
// unread, and the next one is escalated all the same.
func TestEscalationFails(t *testing.T) {
	t.Parallel()
	for outcome, turn := range map[string]func(ctx context.Context, e mailbox.Escalation) error{
		mailbox.OutcomeFailed: func(context.Context, mailbox.Escalation) error { return errors.New("refused by the user") },
		mailbox.OutcomeTimeout: func(ctx context.Context, _ mailbox.Escalation) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			play(t, nil, func(s *stage) {
				a, b := s.join("a"), s.join("b")
				c := &client{means: true, turn: turn}
				defer s.escalates(b, c)()
				start := time.Now()
				s.send(a, "b", mailbox.Delegate)
				synctest.Wait()
				if outcome == mailbox.OutcomeTimeout {
					if _, err := b.Send(s.Context(), mailbox.Draft{To: "a", Type: mailbox.Delegate, Content: "x"}); !errors.As(err, new(*mailbox.EscalatedError)) {
						s.Errorf("inside the turn: %v", err)
					}
					time.Sleep(mailbox.TurnTime)
					synctest.Wait()
				}
				if got := s.session.Stats(); got.Outcomes[outcome] != 1 || got.Escalated != 1 {
					s.Errorf("%+v after %v", got, time.Since(start))
				}
				if r, err := b.Send(s.Context(), mailbox.Draft{To: "a", Type: mailbox.Delegate, Content: "x"}); err != nil || r.Depth != 0 {
					s.Errorf("after the turn: %v", err)
				}
				if p, err := b.Read(s.Context(), mailbox.Selection{}); err != nil || p.Unread != 1 {
					s.Errorf("%+v, %v", p, err)
				}
				time.Sleep(mailbox.Window)
				s.send(a, "b", mailbox.Delegate)
				synctest.Wait()
				if c.count() != 2 {
					s.Errorf("%d escalations", c.count())
				}
			})
		})
	}
}

// One turn at a time: what arrives during one is part of the next, as one.
func TestEscalationCoalesces(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		a, b := s.join("a"), s.join("b")
		c := &client{means: true, turn: func(context.Context, mailbox.Escalation) error {
			time.Sleep(10 * time.Second)
			return nil
		}}
		defer s.escalates(b, c)()
		for range 4 {
			s.send(a, "b", mailbox.Delegate)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(c.got) != 2 || len(c.got[0].Signals) != 1 || len(c.got[1].Signals) != 3 {
			s.Errorf("%+v", c.got)
		}
	})
}

// S-20: two agents that answer each signal of the other with a delegate settle. Of
// 1,000 answers no more are sent than the limiter lets through, no more than two
// turns a minute begin, and none begins out of a turn that a signal began.
func TestPingPong(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		a, b := s.join("a"), s.join("b")
		var answers atomic.Int64
		answering := func(me *mailbox.Member, to string) func(ctx context.Context, e mailbox.Escalation) error {
			return func(ctx context.Context, _ mailbox.Escalation) error {
				answers.Add(1)
				_, err := me.Send(ctx, mailbox.Draft{To: to, Type: mailbox.Delegate, Content: "no, you"})
				if !errors.As(err, new(*mailbox.EscalatedError)) {
					s.Errorf("sent out of an escalated turn: %v", err)
				}
				return nil
			}
		}
		ca, cb := &client{means: true, turn: answering(a, "b")}, &client{means: true, turn: answering(b, "a")}
		defer s.escalates(a, ca)()
		defer s.escalates(b, cb)()
		// Both keep at it in ordinary turns, too, 500 times each.
		start := time.Now()
		sent := map[string]int{}
		for range 500 {
			for _, m := range []*mailbox.Member{a, b} {
				to := map[string]string{"a": "b", "b": "a"}[m.ID()]
				if _, err := m.Send(s.Context(), mailbox.Draft{To: to, Type: mailbox.Delegate, Content: "you"}); err == nil {
					sent[m.ID()]++
				} else if !errors.As(err, new(*mailbox.RateError)) && !errors.As(err, new(*mailbox.EscalatedError)) {
					s.Fatal(err)
				}
			}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		minutes := int(time.Since(start).Minutes()) + 1
		if sent["a"] > 10*(minutes+1) || sent["b"] > 10*(minutes+1) || sent["a"] < 10*(minutes-1) {
			s.Errorf("sent %v in %d minutes", sent, minutes)
		}
		if n := ca.count() + cb.count(); n > 2*minutes || n < minutes || n != int(answers.Load()) {
			s.Errorf("%d turns in %d minutes", n, minutes)
		}
	})
}

// S-18: an open call is escalated to through the same gate, with the same depth.
func TestAwait(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		a, b := s.join("a"), s.join("b")
		type answer struct {
			p   mailbox.Page
			err error
		}
		await := func(limit time.Duration) chan answer {
			out := make(chan answer, 1)
			go func() {
				ctx, cancel := context.WithTimeout(s.Context(), limit)
				defer cancel()
				p, err := b.Await(ctx)
				out <- answer{p, err}
			}()
			synctest.Wait()
			return out
		}
		returned := func(c chan answer) int {
			s.Helper()
			synctest.Wait()
			select {
			case got := <-c:
				if got.err != nil {
					s.Error(got.err)
				}
				for _, x := range got.p.Signals {
					if _, err := b.Ack(s.Context(), []string{x.ID}); err != nil {
						s.Error(err)
					}
				}
				return len(got.p.Signals)
			default:
				return -1
			}
		}
		c := await(time.Hour)
		s.send(a, "b", mailbox.Delegate)
		if n := returned(c); n != 1 {
			s.Errorf("%d signals", n)
		}
		if _, err := b.Send(s.Context(), mailbox.Draft{To: "a", Type: mailbox.Delegate, Content: "x"}); !errors.As(err, new(*mailbox.EscalatedError)) {
			s.Errorf("inside the turn: %v", err)
		}
		c = await(time.Hour)
		if r, err := b.Send(s.Context(), mailbox.Draft{To: "a", Type: mailbox.Delegate, Content: "x"}); err != nil || r.Depth != 0 {
			s.Errorf("the turn is over with the next call: %v", err)
		}
		s.send(a, "b", mailbox.Inform) // needs no gate
		if n := returned(c); n != 1 {
			s.Errorf("%d signals", n)
		}
		c = await(time.Hour)
		s.send(a, "b", mailbox.Urgent)
		if n := returned(c); n != 1 {
			s.Errorf("%d signals", n)
		}
		c = await(time.Hour)
		s.send(a, "b", mailbox.Urgent) // the third of this minute
		if n := returned(c); n != -1 {
			s.Errorf("%d signals over the limit", n)
		}
		time.Sleep(mailbox.Window)
		if n := returned(c); n != 1 {
			s.Errorf("%d signals when the minute is over", n)
		}
		c = await(time.Second)
		time.Sleep(time.Second)
		if n := returned(c); n != 0 {
			s.Errorf("%d signals at the end of the wait", n)
		}
	})
}

// box is an inbox that keeps what is put into it.
type box struct {
	mu    sync.Mutex
	means bool
	fail  error
	order []string
	woke  map[string]bool

	of     *mailbox.Member // whose it is; may be nil
	during string          // the turn of that one while something was put that wakes
}

func (b *box) Means() bool { return b.means }

func (b *box) Put(_ context.Context, s mailbox.Signal, wake bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	if wake && b.of != nil {
		b.during += b.of.Turn()
	}
	b.order = append(b.order, s.ID)
	b.woke[s.ID] = wake
	return nil
}

// S-18: all signals go into the inbox, in order, each once; those that pass the
// gate begin a turn, and the answer to what the agent asked for does, too.
func TestForward(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		a, b := s.join("a"), s.join("b")
		in := &box{means: true, woke: map[string]bool{}, of: b}
		before := s.send(a, "b", mailbox.Delegate)
		ctx, cancel := context.WithCancel(s.Context())
		done := make(chan error, 1)
		go func() { done <- b.Forward(ctx, in, 10*time.Minute) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				s.Error(err)
			}
		}()
		check := func(what string, r mailbox.Receipt, wake bool) {
			s.Helper()
			synctest.Wait()
			if got, there := in.woke[r.ID]; !there || got != wake || in.order[len(in.order)-1] != r.ID {
				s.Errorf("%s: there %v, wakes %v", what, there, got)
			}
		}
		check("what was there", before, true)
		if _, err := b.Send(s.Context(), mailbox.Draft{To: "a", Type: mailbox.Delegate, Content: "x"}); !errors.As(err, new(*mailbox.EscalatedError)) {
			s.Errorf("inside the turn: %v", err)
		}
		if in.during != "" {
			s.Errorf("the turn %q was there before all of it was in the inbox", in.during)
		}
		turn := b.Turn()
		b.EndTurn(s.Context(), "another")
		if _, err := b.Send(s.Context(), mailbox.Draft{To: "a", Type: mailbox.Delegate, Content: "x"}); !errors.As(err, new(*mailbox.EscalatedError)) {
			s.Errorf("the end of another turn: %v", err)
		}
		b.EndTurn(s.Context(), turn)
		if left := b.Turn(); turn == "" || left != "" {
			s.Errorf("the turn %q, and then %q", turn, left)
		}
		asked := s.send(b, "a", mailbox.Delegate)
		told := s.send(b, "a", mailbox.Inform)
		reply := func(to string) mailbox.Receipt {
			r, err := a.Send(s.Context(), mailbox.Draft{To: "b", Type: mailbox.Ack, Content: "x", ReplyTo: to})
			if err != nil {
				s.Fatal(err)
			}
			return r
		}
		check("inform", s.send(a, "b", mailbox.Inform), false)
		check("the answer to a delegate", reply(asked.ID), true)
		check("the answer to an inform", reply(told.ID), false)
		in.mu.Lock()
		in.fail = errors.New("disk full")
		in.mu.Unlock()
		late := s.send(a, "b", mailbox.Urgent)
		time.Sleep(20 * time.Second)
		in.mu.Lock()
		in.fail = nil
		in.mu.Unlock()
		time.Sleep(10 * time.Second)
		check("after a failure", late, true)
		check("the third of a minute", s.send(a, "b", mailbox.Urgent), false)
		if len(in.order) != 6 {
			s.Errorf("%v", in.order)
		}
	})
}

// between is a store in which something happens before each look for what to
// escalate.
type between struct {
	mailbox.Store
	happens func()
}

func (b *between) Escalate(ctx context.Context, e mailbox.Escalate) (mailbox.Escalation, error) {
	got, err := b.Store.Escalate(ctx, e)
	if do := b.happens; do != nil {
		b.happens = nil
		do()
	}
	return got, err
}

// S-14: what arrives at the very moment begins its turn all the same.
func TestForwardMissesNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &between{Store: mailboxtest.NewMemory()}
		session, err := mailbox.Open(t.Context(), session, store, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { _ = session.Run(ctx) })
		join := func(id string) *mailbox.Member {
			m, err := session.Join(t.Context(), mailbox.Registration{Agent: id, Run: id})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		a, b := join("a"), join("b")
		send := func(typ mailbox.Type) {
			if _, err := a.Send(t.Context(), mailbox.Draft{To: "b", Type: typ, Content: "x"}); err != nil {
				t.Error(err)
			}
		}
		store.happens = func() { send(mailbox.Delegate) }
		in := &box{means: true, woke: map[string]bool{}}
		work.Go(func() { _ = b.Forward(ctx, in, time.Minute) })
		synctest.Wait()
		send(mailbox.Inform)
		synctest.Wait()
		if len(in.order) != 2 || !in.woke[in.order[0]] || in.woke[in.order[1]] {
			t.Errorf("%v %v", in.order, in.woke)
		}
		cancel()
		work.Wait()
	})
}
