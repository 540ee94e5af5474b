package mailbox_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/mailbox"
)

// Whoever looks at the whole session hears of every signal, and reads all of them
// in order and without a gap, whoever has sent them to whom, also while they send.
func TestLog(t *testing.T) {
	t.Parallel()
	play(t, &mailbox.Options{Limits: mailbox.Limits{Signals: 1000}}, func(s *stage) {
		var heard calls
		stop := s.session.WatchLog(heard.add)
		one, two := s.join("one"), s.join("two")
		s.send(one, "two", mailbox.Inform)
		s.send(two, "one", mailbox.Inform)
		synctest.Wait()
		if heard.n != 2 {
			t.Errorf("heard %d times", heard.n)
		}
		var senders sync.WaitGroup
		for _, m := range []*mailbox.Member{one, two} {
			senders.Go(func() {
				for range 20 {
					s.send(m, mailbox.Everybody, mailbox.Inform)
				}
			})
		}
		cursor, seen := int64(0), 0
		for tries := 0; cursor < 42 && tries < 100_000; tries++ {
			runtime.Gosched()
			all, err := s.session.Log(t.Context(), cursor, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range all {
				if m.Sequence != cursor+1 {
					t.Fatalf("signal %d follows %d", m.Sequence, cursor)
				}
				cursor = m.Sequence
				seen++
			}
		}
		senders.Wait()
		last, err := s.session.Log(t.Context(), 0, 3)
		if err != nil {
			t.Fatal(err)
		}
		var numbers []string
		for _, m := range last {
			numbers = append(numbers, fmt.Sprint(m.Sequence))
		}
		if d := cmp.Diff([]string{"40", "41", "42"}, numbers); d != "" || seen != 42 {
			t.Error(d, seen)
		}
		if none, err := s.session.Log(t.Context(), 42, 10); err != nil || none == nil || len(none) != 0 {
			t.Errorf("after the last: %v %v", none, err)
		}
		stop()
		before := heard.n
		s.send(one, "two", mailbox.Inform)
		synctest.Wait()
		if heard.n != before {
			t.Error("heard after the end")
		}
	})
}

// What a member has sent whose place another took is in the log as long as it is kept.
func TestLogOfWhoIsGone(t *testing.T) {
	t.Parallel()
	play(t, nil, func(s *stage) {
		gone := s.join("gone")
		s.send(gone, mailbox.Everybody, mailbox.Inform)
		now := time.Now().Add(mailbox.AwayAfter + time.Hour)
		for i := range mailbox.MaxMembers {
			if _, err := s.store.Register(t.Context(), mailbox.Registration{Agent: fmt.Sprint("m", i), Run: fmt.Sprint("run-m", i)}, now); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Until(now))
		s.send(s.join("m0"), "m1", mailbox.Inform)
		all, err := s.session.Log(t.Context(), 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		var from []string
		for _, m := range all {
			from = append(from, m.Sender)
		}
		if diff := cmp.Diff([]string{"gone", "m0"}, from); diff != "" {
			t.Error(diff)
		}
	})
}
