package mailbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/mailbox/mailboxtest"
)

const session = "20261130_010203_00c0ffee"

// stage is a session that runs, in a bubble of virtual time.
type stage struct {
	*testing.T

	store   *mailboxtest.Memory
	session *mailbox.Session
}

func play(t *testing.T, o *mailbox.Options, test func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, store: mailboxtest.NewMemory()}
		var err error
		if s.session, err = mailbox.Open(t.Context(), session, s.store, nil, o); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.session.Run(ctx) }()
		test(s)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (s *stage) join(agent string) *mailbox.Member {
	s.Helper()
	m, err := s.session.Join(s.Context(), mailbox.Registration{Agent: agent, Run: "run-" + agent})
	if err != nil {
		s.Fatal(err)
	}
	return m
}

func (s *stage) send(m *mailbox.Member, to string, t mailbox.Type) mailbox.Receipt {
	s.Helper()
	r, err := m.Send(s.Context(), mailbox.Draft{To: to, Type: t, Content: "x"})
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// calls counts the calls of a watcher.
type calls struct {
	mu sync.Mutex
	n  int
}

func (c *calls) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *calls) take() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = 0
	return n
}

// S-12: who watches is told of what it watches, and of nothing else; not of reads
// and acknowledgements.
func TestWatch(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		a, b := s.join("a"), s.join("b")
		var forA, forB, agents, notes, board calls
		stop := s.session.Watch(mailbox.PartSignals, "a", forA.add)
		defer s.session.Watch(mailbox.PartSignals, "b", forB.add)()
		defer s.session.Watch(mailbox.PartAgents, "", agents.add)()
		defer s.session.Watch(mailbox.PartNotes, "", notes.add)()
		defer s.session.Watch(mailbox.PartBoard, "", board.add)()
		want := func(what string, counts ...int) {
			s.Helper()
			synctest.Wait()
			if got := []int{forA.take(), forB.take(), agents.take(), notes.take(), board.take()}; !slices.Equal(got, counts) {
				s.Errorf("%s: %v, want %v", what, got, counts)
			}
		}
		synctest.Wait()
		agents.take() // of the joins, if they came before
		r := s.send(a, "b", mailbox.Inform)
		want("signal", 0, 1, 0, 0, 0)
		if !slices.Equal(r.Recipients, []string{"b"}) {
			s.Errorf("recipients %v", r.Recipients)
		}
		s.send(a, "*", mailbox.Inform)
		want("broadcast", 0, 1, 0, 0, 0)
		s.send(b, "*", mailbox.Inform)
		want("broadcast", 1, 0, 0, 0, 0)
		if _, err := b.Read(s.Context(), mailbox.Selection{}); err != nil {
			s.Error(err)
		}
		if _, err := b.Ack(s.Context(), []string{r.ID}); err != nil {
			s.Error(err)
		}
		want("read and acknowledged", 0, 0, 0, 0, 0)
		if _, err := a.Note(s.Context(), "n"); err != nil {
			s.Error(err)
		}
		want("note", 0, 0, 0, 1, 0)
		if _, err := a.Write(s.Context(), "k", "v"); err != nil {
			s.Error(err)
		}
		want("whiteboard", 0, 0, 0, 0, 1)
		s.join("c")
		want("member", 0, 0, 1, 0, 0)
		stop()
		s.send(b, "a", mailbox.Inform)
		want("after stop", 0, 0, 0, 0, 0)
	})
}

// S-3: a member that becomes stale is told by the timer of that one, and nothing
// else happens in the meantime.
func TestStaleIsTold(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		a, b := s.join("a"), s.join("b")
		var agents calls
		defer s.session.Watch(mailbox.PartAgents, "", agents.add)()
		synctest.Wait()
		agents.take()
		time.Sleep(100 * time.Second)
		if _, err := b.Read(s.Context(), mailbox.Selection{}); err != nil { // b renews its time
			s.Error(err)
		}
		writes := s.store.Writes()
		time.Sleep(200*time.Second - 1)
		synctest.Wait()
		if n := agents.take(); n != 0 || s.store.Writes() != writes {
			s.Errorf("told %d times before", n)
		}
		time.Sleep(1 * time.Nanosecond)
		synctest.Wait()
		if n := agents.take(); n != 1 {
			s.Errorf("told %d times of a", n)
		}
		time.Sleep(100 * time.Second)
		synctest.Wait()
		if n := agents.take(); n != 1 {
			s.Errorf("told %d times of b", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := agents.take(); n != 0 || s.store.Writes() != writes {
			s.Errorf("told %d times, %d writes, in an idle hour", n, s.store.Writes()-writes)
		}
		all, err := a.Agents(s.Context()) // a call of its own brings it back
		synctest.Wait()
		if err != nil || all[0].Status != mailbox.Active || all[1].Status != mailbox.Stale || agents.take() != 1 {
			s.Errorf("%+v, %v", all, err)
		}
		if err := a.Leave(s.Context()); err != nil {
			s.Error(err)
		}
		if all, _ = b.Agents(s.Context()); all[0].Status != mailbox.Sleeping {
			s.Errorf("%+v", all)
		}
	})
}

// S-11: a wait ends with what is unread, at once or when it comes, or with its
// context.
func TestWait(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		a, b := s.join("a"), s.join("b")
		ctx, cancel := context.WithTimeout(s.Context(), time.Hour)
		defer cancel()
		if p, err := b.Wait(ctx, 0); !errors.Is(err, context.DeadlineExceeded) || len(p.Signals) != 0 {
			s.Errorf("%+v, %v", p, err)
		}
		go func() {
			time.Sleep(time.Minute)
			s.send(a, "b", mailbox.Inform)
		}()
		start := time.Now()
		p, err := b.Wait(s.Context(), 0)
		if err != nil || len(p.Signals) != 1 || time.Since(start) != time.Minute {
			s.Errorf("%+v after %v, %v", p, time.Since(start), err)
		}
		if p, err = b.Wait(s.Context(), 0); err != nil || len(p.Signals) != 1 {
			s.Errorf("%+v, %v", p, err)
		}
	})
}

// What a store says when it fails is said, and the announcements go on after it.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		a := s.join("a")
		s.join("b")
		var forB calls
		defer s.session.Watch(mailbox.PartSignals, "b", forB.add)()
		s.send(a, "b", mailbox.Inform)
		s.store.Fail(errors.New("disk full"))
		if _, err := a.Send(s.Context(), mailbox.Draft{To: "b", Content: "x"}); err == nil || !strings.Contains(err.Error(), "disk full") {
			s.Errorf("%v", err)
		}
		time.Sleep(time.Minute)
		s.store.Fail(nil)
		s.send(a, "b", mailbox.Inform)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := forB.take(); n != 2 {
			s.Errorf("told %d times", n)
		}
	})
}

// What cannot be sent is refused before the store is asked.
func TestDrafts(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		a := s.join("a")
		for field, d := range map[string]mailbox.Draft{
			"to":       {To: "../b", Content: "x"},
			"type":     {To: "b", Content: "x", Type: "INFORM"},
			"priority": {To: "b", Content: "x", Priority: mailbox.Warn},
			"content":  {To: "b", Content: strings.Repeat("x", mailbox.MaxContent+1)},
			"metadata": {To: "b", Content: "x", Metadata: []byte(`{"a":1,"a":2}`)},
			"reply_to": {To: "b", Content: "x", ReplyTo: "sig_unknown"},
		} {
			_, err := a.Send(s.Context(), d)
			if e, ok := errors.AsType[*mailbox.InvalidError](err); !ok || e.Field != field {
				s.Errorf("%s: %v", field, err)
			}
		}
		r, err := a.Send(s.Context(), mailbox.Draft{To: "b", Content: strings.Repeat("x", mailbox.MaxContent), Metadata: []byte(`{ "a" : 1.0 }`)})
		if err != nil || r.Sequence != 1 || r.Type != mailbox.Inform || string(r.Metadata) != `{"a":1.0}` || len(r.Recipients) != 0 {
			s.Errorf("%v", err)
		}
	})
}
