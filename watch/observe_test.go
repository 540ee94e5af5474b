package watch_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Whoever lists the watches whenever it is told to has the list that there is.
func TestObserve(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, h *harness) {
		told := make(chan struct{}, 1)
		stop := h.Observe(func() {
			select {
			case told <- struct{}{}:
			default:
			}
		})
		seen := h.List()
		look := func(what string) {
			t.Helper()
			synctest.Wait()
			select {
			case <-told:
				seen = h.List()
			default:
				t.Errorf("%s: nothing was told", what)
			}
			if d := cmp.Diff(h.List(), seen); d != "" {
				t.Errorf("%s: %s", what, d)
			}
		}
		h.start(t, "n", notes, "")
		look("start")
		h.server.Change(notes, `{"owner":"me","todo":"b"}`)
		look("event")
		time.Sleep(4 * time.Second)
		look("notice")
		h.sink.Next(t)
		h.server.Fail(notes, errors.New("gone"))
		look("failure")
		h.Stop("n")
		look("stop")
		stop()
		h.start(t, "m", notes, "")
		select {
		case <-told:
			t.Error("told after the end")
		default:
		}
		h.Stop("m")
	})
}
