package feedserver

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/internal/access"
)

// F-22: tokens are asked for while they have streams open, and no longer.
func TestGrants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // of what the grants' goroutine sees too
		var answer error
		asked, lapses := 0, 0
		count := func(n *int) {
			mu.Lock()
			defer mu.Unlock()
			*n++
		}
		say := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			answer = err
		}
		ctx, cancel := context.WithCancel(t.Context())
		gs := &grants{
			recheck: func(context.Context, *access.Principal) error {
				count(&asked)
				mu.Lock()
				defer mu.Unlock()
				return answer
			},
			every: DefaultRecheck, lapse: func() { count(&lapses) }, warn: func(error) {},
			open: map[grantKey]*grant{}, changed: make(chan struct{}, 1), stop: cancel, ctx: func() context.Context { return ctx },
		}
		defer gs.close()
		p := &access.Principal{Name: "ann", TokenHash: [32]byte{1}}
		one, two := gs.enter(p), gs.enter(p)
		if one != two || gs.enter(nil) != nil || gs.enter(&access.Principal{Name: "local"}) != nil {
			t.Error("grants are not those of their tokens")
		}
		time.Sleep(4*DefaultRecheck + time.Second)
		synctest.Wait()
		if asked != 4 {
			t.Errorf("asked %d times", asked)
		}
		gs.leave(one)
		time.Sleep(DefaultRecheck)
		gs.leave(two)
		synctest.Wait()
		if asked != 5 || gs.running || len(gs.open) != 0 {
			t.Errorf("asked %d times, running %v, %d open", asked, gs.running, len(gs.open))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if asked != 5 {
			t.Error("asked for nobody")
		}

		brief := gs.enter(&access.Principal{Name: "bob", Expires: time.Now().Add(100 * time.Second)})
		long := gs.enter(p)
		time.Sleep(100*time.Second - time.Millisecond)
		if brief.over() {
			t.Error("ended early")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if !brief.over() || long.over() || lapses != 1 {
			t.Errorf("bob %v, ann %v, %d lapses", brief.over(), long.over(), lapses)
		}
		say(errors.New("the disk is gone"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if long.over() {
			t.Error("ended by a store that cannot tell")
		}
		say(access.ErrInvalidToken)
		time.Sleep(DefaultRecheck)
		synctest.Wait()
		<-long.ended()
		gs.leave(long)
		gs.leave(brief)
		if !long.over() || lapses != 2 || len(gs.open) != 0 {
			t.Errorf("ann %v, %d lapses, %d open", long.over(), lapses, len(gs.open))
		}
	})
}
