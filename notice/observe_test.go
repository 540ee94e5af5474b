package notice_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// Whoever looks at the inbox whenever it is told to has seen everything that can
// be seen there: after each change the notices that it was told of, and no others,
// are other than before.
func TestObserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := noticetest.NewStore()
		in := notice.New(store, nil)
		var mu sync.Mutex
		var told []notice.Change
		stop := in.Observe(func(c notice.Change) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, c)
		})
		records := func() map[string]notice.Record {
			page, err := in.List(t.Context(), notice.Query{})
			if err != nil {
				t.Fatal(err)
			}
			all := map[string]notice.Record{}
			for _, r := range page.Records {
				all[r.ID] = r
			}
			return all
		}
		seen, gone := records(), false
		look := func(what string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			for _, c := range told {
				if c.Agent != "a" {
					t.Errorf("%s: %+v", what, c)
				}
				if c.Unknown || c.Gone {
					seen = records()
				}
				gone = gone || c.Gone
				for _, id := range c.IDs {
					r, err := in.Get(t.Context(), "", id)
					if err != nil {
						t.Fatal(err)
					}
					r.Steps = nil
					seen[id] = r
				}
			}
			if len(told) == 0 {
				t.Errorf("%s: nothing was told", what)
			}
			told = nil
			if d := cmp.Diff(records(), seen); d != "" {
				t.Errorf("%s: %s", what, d)
			}
		}
		do := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(what, err)
			}
			look(what)
		}
		post := func(id string) error {
			_, err := in.Post(t.Context(), notice.Notice{ID: id, Agent: "a", Source: notice.SourceWatch, Text: "x"})
			return err
		}
		do("register", in.Register(t.Context(), "a"))
		do("post", post("one"))
		do("post another", post("two"))
		pull, err := in.Pull(t.Context(), "a", "tool", &notice.PullOptions{Limit: 1})
		do("pull", err)
		do("release", pull.Release(t.Context()))
		pull, err = in.Pull(t.Context(), "a", "tool", nil)
		do("pull again", err)
		do("seen", pull.Seen(t.Context()))
		_, err = in.Ack(t.Context(), "a", "me", "one")
		do("ack", err)
		do("hold", in.Hold(t.Context(), "a", "because"))
		do("reset", in.Reset(t.Context(), "a"))
		do("post", post("three"))
		host := noticetest.NewHost("h")
		host.WakeFunc = func(_ context.Context, d notice.Delivery, proved func(notice.State)) (notice.State, error) {
			proved(notice.Woken)
			if len(host.Deliveries()) < 3 {
				return notice.Persisted, errors.New("the turn broke")
			}
			return notice.Seen, nil
		}
		do("attach", in.Attach(t.Context(), "a", notice.Route{Waker: host, Patience: time.Minute}))
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- in.Run(ctx) }()
		look("delivery")
		time.Sleep(2 * time.Hour)
		look("delivery goes on")
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		_, err = in.Delete(t.Context(), "a", "one")
		do("delete", err)
		do("unregister", in.Unregister(t.Context(), "a"))
		stop()
		err = in.Register(t.Context(), "a")
		mu.Lock()
		defer mu.Unlock()
		if err != nil || len(told) != 0 || !gone {
			t.Errorf("told after the end: %+v, %v; gone: %t", told, err, gone)
		}
	})
}
