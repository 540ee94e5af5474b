package feedserver_test

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/access/accesstest"
	"github.com/ossicle/ossicle/internal/feedserver"
	"github.com/ossicle/ossicle/internal/httpserver"
)

// guarded is a site that asks for tokens.
type guarded struct {
	*site
	store  *accesstest.Store
	stored *httpserver.StoredTokens
	log    *logged
}

// logged is all that is logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

const recheck = 30 * time.Millisecond

func newGuarded(t *testing.T, w way) *guarded {
	t.Helper()
	g := &guarded{store: &accesstest.Store{}, log: &logged{}}
	log := slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	g.stored = httpserver.NewStoredTokens(g.store, &httpserver.StoredOptions{Age: recheck})
	tickets, err := access.NewTickets([]byte(strings.Repeat("k", 32)), nil)
	if err != nil {
		t.Fatal(err)
	}
	g.site = newSiteBy(t, w, setup{
		http: httpserver.Options{Auth: g.stored, Tickets: tickets, Logger: log},
		feed: feedserver.Options{Tickets: tickets, Recheck: g.stored.Recheck, RecheckEvery: recheck, Heartbeat: time.Hour, Logger: log},
	})
	return g
}

// token gives out a token.
func (g *guarded) token(r access.Rights, expires time.Time) (access.Token, map[string]string) {
	g.t.Helper()
	record, token, err := access.New("ann", r, expires)
	if err == nil {
		err = g.store.Add(g.t.Context(), record)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return record, map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json"}
}

func reads(topics ...string) access.Rights {
	var r access.Rights
	for _, t := range topics {
		r.Topics = append(r.Topics, access.TopicURIPrefix+t)
	}
	return r
}

// F-22.
func TestRightsAreByTopic(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, ways[0])
	rights := reads("a", "b.*")
	rights.Publish = []string{"p.*"}
	_, token := g.token(rights, time.Time{})
	for _, tc := range []struct {
		method, path string
		want         int
		says         string
	}{
		{http.MethodHead, "/v1/events?topic=a", 200, ""},
		{http.MethodHead, "/v1/events?topic=a&topic=b.*", 200, ""},
		{http.MethodGet, "/v1/events?topic=a&topic=b*", 403, `\"b*\"`},
		{http.MethodGet, "/v1/events?topic=c", 403, `\"c\"`},
		{http.MethodGet, "/v1/events", 403, `\"*\"`},
		{http.MethodGet, "/v1/events?topic=c&wait=0s", 403, `\"c\"`},
		{http.MethodGet, "/v1/events?topic=b.1&wait=0s", 200, "position"},
		{http.MethodPost, "/v1/topics/a/events", 403, `\"a\"`},
		{http.MethodPost, "/v1/topics/p.x/events", 200, "receipts"},
	} {
		res, body := g.call(tc.method, tc.path, token, `{"data":1}`)
		if res.StatusCode != tc.want || !strings.Contains(body, tc.says) {
			t.Errorf("%s %s: %s %s; want %d with %s", tc.method, tc.path, res.Status, body, tc.want, tc.says)
		}
		if res, body := g.call(tc.method, tc.path, asJSON, `{"data":1}`); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("without a token: %s %s", res.Status, body)
		}
	}
	g.publish("a", 1)
	g.publish("secret", 1)
	var list struct{ Topics []feed.Topic }
	if _, body := g.call(http.MethodGet, "/v1/topics", token, ""); json.Unmarshal([]byte(body), &list) != nil || len(list.Topics) != 1 || list.Topics[0].Name != "a" {
		t.Errorf("topics: %s", body)
	}
}

// A parameter that is spelt wrongly is no stream of all topics.
func TestQueriesAreReadStrictly(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, ways[0])
	_, token := g.token(access.AllRights(), time.Time{})
	for _, tc := range []struct {
		method, path string
		want         int
		says         string
	}{
		{http.MethodGet, "/v1/events?topics=a&wait=0s", 400, `there is no parameter \"topics\"; there are wait, last_event_id, lastEventId, ticket, topic`},
		{http.MethodGet, "/v1/events?topics=a", 400, "there is no parameter"},
		{http.MethodGet, "/v1/events?topic=a&wait=0s&wait=1s", 400, "wait is there 2 times"},
		{http.MethodGet, "/v1/events?topic=a&topic=b&wait=0s&last_event_id=", 200, "position"},
		{http.MethodGet, "/v1/events?topic=%zz&wait=0s", 400, "not well formed"},
		{http.MethodGet, "/v1/events?topic=&wait=0s", 400, ""},
		{http.MethodGet, "/v1/topics?topic=a", 400, `there is no parameter \"topic\"; there are none here`},
		{http.MethodPost, "/v1/topics/a/events?key=k", 400, `there is no parameter \"key\"`},
		{http.MethodPut, "/v1/topics/a/events", 405, "POST"},
	} {
		if res, body := g.call(tc.method, tc.path, token, `{"data":1}`); res.StatusCode != tc.want || !strings.Contains(body, tc.says) {
			t.Errorf("%s %s: %s %s; want %d with %s", tc.method, tc.path, res.Status, body, tc.want, tc.says)
		}
	}
}

// ends reports whether a stream ends, as a whole.
func ends(st *stream) bool {
	for {
		if _, err := st.events.Next(); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// F-22.
func TestStreamsEndWithTheirToken(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t, way)
			_, forever := g.token(access.AllRights(), time.Time{})
			revoked, one := g.token(reads("a"), time.Time{})
			expires := access.Moment(time.Now().Add(4 * time.Second)) // four streams are opened until then
			_, other := g.token(reads("a"), expires)
			stays := g.openBy(g.c, "", forever)
			first, second := g.openBy(g.c, "?topic=a", one), g.openBy(g.c, "?topic=a", one)
			third := g.openBy(g.c, "?topic=a", other)
			// By another process: nobody here is told.
			if err := g.store.Revoke(t.Context(), revoked.ID, time.Now()); err != nil {
				t.Fatal(err)
			}
			if !ends(first) || !ends(second) || !ends(third) || time.Now().Before(expires) {
				t.Errorf("ended %v too early, or cut", time.Until(expires))
			}
			eventually(t, "they are counted", func() bool { return g.feed.Stats().Lapsed == 3 && g.feed.Stats().Streams == 1 })
			g.publish("a", 1)
			same(t, []int64{1}, stays.ids(1))
			// A store that does not answer ends nobody's stream.
			g.store.Fail(errors.New("the disk is gone"))
			reads := g.store.Reads()
			eventually(t, "it was asked", func() bool { return g.store.Reads() > reads+1 })
			g.publish("a", 1)
			same(t, []int64{2}, stays.ids(1))
			stays.cancel()
			eventually(t, "it is freed", func() bool { return g.feed.Stats().Streams == 0 })
			eventually(t, "nobody is asked for", func() bool { // one question may be under way
				reads = g.store.Reads()
				time.Sleep(5 * recheck)
				return g.store.Reads() == reads
			})
		})
	}
}

// F-22.
func TestTicketsForBrowsers(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, ways[0])
	record, token := g.token(reads("a", "b.*"), time.Time{})
	ticket := func(body string) (string, string) {
		res, text := g.call(http.MethodPost, "/v1/tickets", token, body)
		var got struct {
			Ticket  string
			Expires time.Time
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || res.StatusCode != http.StatusOK || res.Header.Get("Cache-Control") != "no-store" {
			return "", res.Status + " " + text
		}
		if left := time.Until(got.Expires); left > time.Minute || left < time.Minute/2 {
			t.Errorf("it ends in %v", left)
		}
		return got.Ticket, ""
	}
	all, problem := ticket("")
	if problem != "" {
		t.Fatal(problem)
	}
	one, problem := ticket(`{"topics":["b.1"]}`)
	if problem != "" {
		t.Fatal(problem)
	}
	for body, want := range map[string]string{`{"topics":["c"]}`: "403", `{"topics":["B"]}`: "400", `{"topic":"a"}`: "400", `{"topics":"a"}`: "400", `[`: "400"} {
		if _, problem := ticket(body); !strings.HasPrefix(problem, want) {
			t.Errorf("%s: %s", body, problem)
		}
	}
	st := g.openBy(g.c, "?topic=a&ticket="+all, nil)
	again := g.openBy(g.c, "?topic=a&ticket="+all, nil) // a browser that comes again
	narrow := g.openBy(g.c, "?topic=b.1&ticket="+one, nil)
	g.publish("a", 1)
	g.publish("b.1", 1)
	same(t, []int64{1}, st.ids(1))
	same(t, []int64{1}, again.ids(1))
	same(t, []int64{2}, narrow.ids(1))
	for path, want := range map[string]int{
		"/v1/events?topic=a&ticket=" + one: 403, "/v1/events?topic=a&ticket=" + one + "x": 401, "/v1/topics?ticket=" + all: 401, "/v1/events?topic=a&wait=0s&ticket=" + all: 200,
	} {
		if res, body := g.call(http.MethodGet, path, nil, ""); res.StatusCode != want {
			t.Errorf("%.40s: %s %s", path, res.Status, body)
		}
	}
	if res, _ := g.call(http.MethodPost, "/v1/tickets?ticket="+all, nil, ""); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("a ticket for a ticket: %s", res.Status)
	}
	if err := g.stored.Revoke(t.Context(), record.ID); err != nil {
		t.Fatal(err)
	}
	if !ends(st) || !ends(again) || !ends(narrow) {
		t.Error("cut")
	}
	if res, _ := g.call(http.MethodGet, "/v1/events?topic=a&ticket="+all, nil, ""); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("of a revoked token: %s", res.Status)
	}
	g.store.Fail(errors.New("the disk is gone"))
	eventually(t, "the failure is in the log", func() bool {
		for _, header := range []map[string]string{nil, token} {
			_, _ = g.call(http.MethodGet, "/v1/events?topic=a&ticket="+all, header, "")
		}
		return g.log.has("could not be verified")
	})
	if g.log.has(access.TokenPrefix) {
		t.Error("a secret is in the log")
	}
}

func TestWhereNobodyIsAskedThereAreNoTickets(t *testing.T) {
	t.Parallel()
	tickets, err := access.NewTickets([]byte(strings.Repeat("k", 32)), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, setup{feed: feedserver.Options{Tickets: tickets}})
	if res, body := s.call(http.MethodPost, "/v1/tickets", nil, ""); res.StatusCode != http.StatusConflict {
		t.Errorf("%s %s", res.Status, body)
	}
}
