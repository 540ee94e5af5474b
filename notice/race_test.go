package notice_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// hesitant lets others run between an answer of the store and its use.
type hesitant struct{ *noticetest.Store }

func yield(n int) {
	for range n {
		runtime.Gosched()
	}
}

func (h hesitant) Desk(ctx context.Context, agent string, now time.Time, routes int) (notice.Desk, error) {
	d, err := h.Store.Desk(ctx, agent, now, routes)
	yield(rand.IntN(5))
	return d, err
}

// session is an agent that takes turns of persons and of notices, one at a
// time, and says when it is idle.
type session struct {
	mu    sync.Mutex
	busy  bool
	shown map[string]int
	idle  func()
}

func (s *session) Name() string { return "session" }

func (s *session) Reach(context.Context, string) error {
	s.mu.Lock()
	busy := s.busy
	s.mu.Unlock()
	yield(rand.IntN(3))
	if busy {
		return &notice.BusyError{Reason: "a turn runs", Retry: 1 << 60}
	}
	return nil
}

func (s *session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		return false
	}
	s.busy = true
	return true
}

func (s *session) end() {
	s.mu.Lock()
	s.busy = false
	s.mu.Unlock()
	s.idle()
}

func (s *session) Wake(_ context.Context, d notice.Delivery, _ func(notice.State)) (notice.State, error) {
	if !s.begin() { // a person was faster
		return "", &notice.BusyError{Reason: "a turn runs", Retry: 1 << 60}
	}
	runtime.Gosched()
	s.mu.Lock()
	for _, id := range d.IDs() {
		s.shown[id]++
	}
	s.mu.Unlock()
	s.end()
	return notice.Seen, nil
}

func (s *session) turn(n int) {
	if !s.begin() {
		return
	}
	yield(n)
	s.end()
}

// D-5: posting and becoming idle race 10,000 times in random order. No time
// passes in the bubble, so nothing can be saved by a timer: what is not shown
// when all is quiet waits for a turn that never comes.
func TestEnqueueAndIdleRace(t *testing.T) {
	const rounds, races = 100, 100
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				seed := rand.Uint64()
				r := rand.New(rand.NewPCG(seed, seed))
				s := &session{shown: map[string]int{}}
				d := newDesk(t, hesitant{noticetest.NewStore()}, &notice.Options{Budget: notice.Budget{WakesPerMinute: 1 << 30, WakesPerHour: 1 << 30, TokensPerHour: 1 << 40}}, notice.Route{Waker: s})
				s.idle = func() { d.Kick("a") }
				posted := 0
				for range races {
					var wg sync.WaitGroup
					for range 1 + r.IntN(2) {
						id, yields := fmt.Sprintf("n%d", posted), r.IntN(4)
						posted++
						wg.Go(func() {
							yield(yields)
							d.post(id)
						})
					}
					for range r.IntN(3) {
						yields, length := r.IntN(4), r.IntN(4)
						wg.Go(func() {
							yield(yields)
							s.turn(length)
						})
					}
					wg.Wait()
					synctest.Wait()
					if len(s.shown) != posted {
						t.Fatalf("seed %d: %d of %d notices were shown and all is quiet", seed, len(s.shown), posted)
					}
				}
				for id, n := range s.shown {
					if n != 1 {
						t.Errorf("%s was shown %d times", id, n)
					}
				}
			})
		})
	}
}
