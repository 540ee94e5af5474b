package feedserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/feedserver"
)

type polled struct {
	Events   []feed.Event `json:"events"`
	Position string       `json:"position"`
	Gap      *feed.Gap    `json:"gap"`
}

// poll asks once, and returns the ids.
func (s *site) poll(query, last string) (polled, []int64) {
	s.t.Helper()
	res, body := s.call(http.MethodGet, "/v1/events?"+query+"&last_event_id="+url.QueryEscape(last), nil, "")
	var p polled
	if err := json.Unmarshal([]byte(body), &p); err != nil || res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/json" {
		s.t.Fatalf("%s %s: %v", res.Status, body, err)
	}
	var ids []int64
	for _, e := range p.Events {
		ids = append(ids, e.ID)
	}
	return p, ids
}

// F-21.
func TestALongPoll(t *testing.T) {
	t.Parallel()
	byEachWay(t, func() setup { return setup{hub: feed.Options{Ring: 20, Lag: 5}} }, func(t *testing.T, s *site) {
		p, ids := s.poll("wait=0s&topic=a", "")
		if len(ids) != 0 || p.Events == nil || p.Position != s.at(0) {
			t.Errorf("at the start %+v", p)
		}
		s.publish("a", 50)
		eventually(t, "the hub is there", func() bool { return s.hub.Stats().Head.ID == 50 })
		var all []int64
		for last := s.at(0); last != s.at(50); last = p.Position {
			p, ids = s.poll("wait=10s&topic=a", last)
			all = append(all, ids...)
		}
		same(t, upTo(1, 50), all)
		// Who does not wait gets what is there all the same, from the store too.
		if p, ids := s.poll("wait=0s&topic=a", s.at(3)); len(ids) == 0 || ids[0] != 4 || p.Position == s.at(3) {
			t.Errorf("without waiting: %+v", p)
		}
		begun := time.Now()
		p, ids = s.poll("wait=50ms&topic=a", s.at(50))
		if took := time.Since(begun); len(ids) != 0 || p.Position != s.at(50) || took < 50*time.Millisecond {
			t.Errorf("%+v after %v", p, took)
		}
		s.publish("b", 1)
		eventually(t, "the hub is there", func() bool { return s.hub.Stats().Head.ID == 51 })
		if p, _ = s.poll("wait=1ms&topic=a", s.at(50)); p.Position != s.at(51) {
			t.Errorf("behind what is not wanted: %+v", p)
		}
		time.AfterFunc(30*time.Millisecond, func() { s.publish("a", 1) })
		if _, ids = s.poll("wait=20s&topic=a", s.at(51)); len(ids) != 1 {
			t.Errorf("waiting: %v", ids)
		}
		if p, _ = s.poll("wait=20s&topic=a", "other-3"); p.Gap == nil || p.Gap.Reason != feed.Epoch || p.Position != s.at(0) {
			t.Errorf("another log: %+v", p)
		}
		for _, bad := range []string{"", "x", "25", "-1s", "61s"} {
			if res, body := s.call(http.MethodGet, "/v1/events?wait="+bad, nil, ""); res.StatusCode != http.StatusBadRequest {
				t.Errorf("%q: %s %s", bad, res.Status, body)
			}
		}
		eventually(t, "nobody polls", func() bool { return s.feed.Stats().Polls == 0 && s.hub.Stats().Subscribers == 0 })
	})
}

// F-21: an answer has a bound, and begins again behind it.
func TestAPollIsBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{})
	for range 40 {
		if _, err := s.hub.Publish(t.Context(), []feed.Draft{{Topic: "a", Data: fmt.Appendf(nil, "%q", strings.Repeat("x", 100<<10))}}); err != nil {
			t.Fatal(err)
		}
	}
	var all []int64
	polls := 0
	for last := s.at(0); len(all) < 40; polls++ {
		p, ids := s.poll("wait=10s", last)
		if len(ids) == 0 || len(ids) > 12 {
			t.Fatalf("%d events", len(ids))
		}
		all, last = append(all, ids...), p.Position
	}
	same(t, upTo(1, 40), all)
}

// F-21.
func TestShutdownAnswersPolls(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{feed: feedserver.Options{Spread: time.Millisecond}})
	got := make(chan polled, 1)
	go func() {
		p, _ := s.poll("wait=60s", s.at(0))
		got <- p
	}()
	eventually(t, "it waits", func() bool { return s.feed.Stats().Polls == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := s.feed.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if p := <-got; p.Position != s.at(0) || len(p.Events) != 0 {
		t.Errorf("%+v", p)
	}
}
