package feedserver_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/feedserver"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/sse"
)

// ids reads n events and returns their ids.
func (st *stream) ids(n int) []int64 {
	st.t.Helper()
	var got []int64
	for range n {
		_, e := st.event()
		got = append(got, e.ID)
	}
	return got
}

func upTo(from, to int64) []int64 {
	var all []int64
	for ; from <= to; from++ {
		all = append(all, from)
	}
	return all
}

func same(t testing.TB, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func (s *site) at(id int64) string { return feed.Position{Epoch: s.epoch(), ID: id}.String() }

func (s *site) epoch() string { return s.hub.Stats().Head.Epoch }

// F-17.
func TestAStreamGetsWhatIsPublished(t *testing.T) {
	t.Parallel()
	// Without heartbeats, so that nothing but its going tells that a client is gone.
	byEachWay(t, func() setup { return setup{feed: feedserver.Options{Heartbeat: time.Hour}} }, func(t *testing.T, s *site) {
		st := s.open("?topic=a&topic=b*", "")
		want := map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no", "Connection": "keep-alive"}
		if st.res.ProtoMajor == 2 {
			want["Connection"] = ""
		}
		for name, value := range want {
			if got := st.res.Header.Get(name); got != value {
				t.Errorf("%s: %q", name, got)
			}
		}
		if e := st.next(); e.Data != nil || e.ID != s.at(0) {
			t.Errorf("at the start %+v", e)
		}
		s.publish("a", 2)
		s.publish("c", 1)
		s.publish("b.x", 1)
		same(t, []int64{1, 2, 4}, st.ids(3))
		eventually(t, "the events are counted", func() bool { return s.feed.Stats().Events == 3 })
		got := s.feed.Stats()
		if (got.Direct == 1) != s.direct || got.Streams != 1 || got.Bytes == 0 || got.Writes == 0 {
			t.Errorf("%+v", got)
		}
		st.cancel()
		eventually(t, "the stream is freed", func() bool { return s.feed.Stats().Streams == 0 && s.hub.Stats().Subscribers == 0 })
	})
}

// still takes out of a response what is another one each time.
func still(text string) string {
	for _, r := range []struct{ what, by string }{
		{`(?m)^Date: .*\r$`, "Date: …\r"}, {`(?m)^[0-9a-f]+\r$`, "…\r"}, {`[0-9a-z]{26}-`, "…-"}, {`"epoch":"[0-9a-z]*"`, `"epoch":"…"`}, {`"time":"[^"]*"`, `"time":"…"`},
	} {
		text = regexp.MustCompile(r.what).ReplaceAllString(text, r.by)
	}
	return text
}

// F-17, F-18.
func TestAResponseOnTheWire(t *testing.T) {
	t.Parallel()
	for version, standard := range map[string]bool{"1.1": false, "1.0": false, "1.1 ": true, "1.0 ": true} {
		s := newSite(t, setup{feed: feedserver.Options{Standard: standard}})
		s.publish("a", 3)
		eventually(t, "the hub is there", func() bool { return s.hub.Stats().Head.ID == 3 }) // or they come one by one
		conn, r := s.dial("GET /v1/events?topic=a&last_event_id=" + s.at(1) + " HTTP/" + strings.TrimSpace(version) + "\nHost: " + s.addr)
		var got strings.Builder
		for !strings.HasSuffix(got.String(), `"data":{"n":2}}`+"\n\n") && !strings.HasSuffix(got.String(), `"data":{"n":2}}`+"\n\n\r\n") {
			b, err := r.ReadByte()
			if err != nil {
				t.Fatalf("%v after %s", err, got.String())
			}
			got.WriteByte(b)
		}
		_ = conn.Close()
		text := still(got.String())
		if standard {
			// net/http has its own order of headers and its own chunks; what they say is
			// the same.
			for _, line := range []string{"text/event-stream", "no-cache", "X-Accel-Buffering: no", "retry: 2000", `"data":{"n":2}`} {
				if !strings.Contains(text, line) {
					t.Errorf("no %s in %s", line, text)
				}
			}
			continue
		}
		name := filepath.Join("testdata", "http-"+version+".golden")
		if os.Getenv("OSSICLE_UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		same(t, string(want), text)
	}
}

// F-19.
func TestAStreamResumes(t *testing.T) {
	t.Parallel()
	byEachWay(t, func() setup { return setup{hub: feed.Options{Ring: 20, Lag: 10}} }, func(t *testing.T, s *site) {
		s.publish("a", 30)
		eventually(t, "the hub is there", func() bool { return s.hub.Stats().Head.ID == 30 })
		for name, from := range map[string]int64{"ring": 20, "store": 3, "all": 0, "nothing": 30} {
			st := s.open("", s.at(from))
			same(t, upTo(from+1, 30), st.ids(int(30-from)))
			st.cancel()
			_ = name
		}
		header := s.open("?last_event_id="+s.at(1), s.at(29)) // the header wins
		same(t, []int64{30}, header.ids(1))
		query := s.open("?last_event_id="+s.at(28), "")
		same(t, []int64{29, 30}, query.ids(2))
		polyfill := s.open("?lastEventId="+s.at(29), "")
		same(t, []int64{30}, polyfill.ids(1))
		for _, bad := range []string{"x", "-", "e-", "e-01", "e-9223372036854775808", "a b-1", s.at(1) + "x"} {
			if res, body := s.call(http.MethodGet, "/v1/events", map[string]string{"Last-Event-ID": bad}, ""); res.StatusCode != http.StatusBadRequest {
				t.Errorf("%q: %s %s", bad, res.Status, body)
			}
		}
	})
}

// F-19.
func TestAGapIsTold(t *testing.T) {
	t.Parallel()
	byEachWay(t, func() setup { return setup{hub: feed.Options{Ring: 5, Lag: 4}} }, func(t *testing.T, s *site) {
		s.publish("a", 30)
		eventually(t, "the hub is there", func() bool { return s.hub.Stats().Head.ID == 30 })
		for more := true; more; {
			var err error
			if more, err = s.store.Trim(t.Context(), "a", feed.Retention{Count: 10}); err != nil {
				t.Fatal(err)
			}
		}
		for _, tc := range []struct {
			last, data, id string
			then           int
		}{
			{s.at(5), `{"from":5,"to":20,"reason":"evicted"}`, s.at(20), 10},
			{"other-7", `{"from":7,"to":0,"reason":"epoch"}`, s.at(0), 0},
			{s.at(99), `{"from":99,"to":30,"reason":"future"}`, s.at(30), 0},
		} {
			st := s.open("", tc.last)
			e, _ := st.event()
			if e.Type != feed.GapType || string(e.Data) != tc.data || e.ID != tc.id {
				t.Errorf("%s: %+v %s", tc.last, e, e.Data)
			}
			if tc.then > 0 {
				same(t, upTo(21, 30), st.ids(tc.then))
			}
		}
	})
}

// F-18, F-19.
func TestSilenceIsFilledWithHeartbeats(t *testing.T) {
	t.Parallel()
	const beat = 40 * time.Millisecond
	byEachWay(t, func() setup { return setup{feed: feedserver.Options{Heartbeat: beat}} }, func(t *testing.T, s *site) {
		begun := time.Now()
		st := s.open("?topic=a", "")
		beats := 0
		st.events.Comment = func() {
			if beats++; beats == 3 {
				s.publish("a", 1) // so that the reader returns
			}
		}
		st.ids(1)
		if took := time.Since(begun); beats > int(took/beat) {
			t.Errorf("%d heartbeats in %v", beats, took)
		}
		s.publish("b", 3) // of which this one gets nothing but the position
		for e := st.next(); e.ID != s.at(4); e = st.next() {
			if e.Data != nil {
				t.Fatalf("%+v", e)
			}
		}
	})
}

// F-18: a stream that gets events needs no other sign of life.
func TestABusyStreamGetsNoHeartbeats(t *testing.T) {
	t.Parallel()
	const beat = 500 * time.Millisecond
	byEachWay(t, func() setup { return setup{feed: feedserver.Options{Heartbeat: beat}} }, func(t *testing.T, s *site) {
		st := s.open("?topic=a", "")
		var beats, silent int
		st.events.Comment = func() { beats++ }
		last := time.Now()
		for end := last.Add(2 * beat); time.Now().Before(end); last = time.Now() {
			s.publish("a", 1)
			st.ids(1)
			time.Sleep(20 * time.Millisecond)            // the pace of the events, and not a wait
			silent += int(time.Since(last) / (beat / 2)) // this machine is too busy to tell
		}
		if beats > silent {
			t.Errorf("%d heartbeats", beats)
		}
	})
}

// F-15: frames that are shared by many have the form of each.
func TestStreamsOfDifferentFormsShareFrames(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{feed: feedserver.Options{Shards: 1}})
	chunks := s.open("?topic=a", "")
	_, plain := s.dial("GET /v1/events?topic=a HTTP/1.0\nHost: " + s.addr)
	for line := "x"; line != "\r\n"; { // the head
		var err error
		if line, err = plain.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	events := sse.NewReader(plain, 0)
	for range 20 {
		s.publish("a", 5)
		chunks.ids(5)
		for range 5 {
			if e, err := events.Next(); err != nil || len(e.Data) == 0 || e.Data[0] != '{' {
				t.Fatalf("%+v, %v", e, err)
			}
		}
	}
}

func TestAStreamIsLeftToItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{http: httpserver.Options{Origins: []string{"https://app.example"}}})
	res, body := s.call(http.MethodHead, "/v1/events?topic=a", nil, "")
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" || body != "" || s.hub.Stats().Subscribers != 0 {
		t.Errorf("HEAD: %s %v", res.Status, res.Header)
	}
	page := map[string]string{"Origin": "https://app.example"}
	st := s.openBy(s.c, "?topic=a", page)
	if got := st.res.Header.Get("Access-Control-Allow-Origin"); got != page["Origin"] || s.feed.Stats().Direct != 1 {
		t.Errorf("Access-Control-Allow-Origin: %q", got)
	}
	ask := map[string]string{"Origin": page["Origin"], "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "Idempotency-Key"}
	res, _ = s.call(http.MethodOptions, "/v1/topics/a/events", ask, "")
	if res.StatusCode != http.StatusNoContent || !strings.Contains(res.Header.Get("Access-Control-Allow-Headers"), "Idempotency-Key") {
		t.Errorf("OPTIONS: %s %v", res.Status, res.Header)
	}
	if res, _ := s.call(http.MethodGet, "/v1/events", map[string]string{"Origin": "https://evil.example"}, ""); res.StatusCode != http.StatusForbidden {
		t.Errorf("another origin: %s", res.Status)
	}
	for _, bad := range []string{"?topic=A", "?topic=", "?topic=a**", "?topic=" + strings.Repeat("a", 129), strings.Repeat("&topic=a", 0) + "?" + strings.Repeat("topic=a&", 65)} {
		if res, body := s.call(http.MethodGet, "/v1/events"+bad, nil, ""); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, `"status":400`) {
			t.Errorf("%.30s: %s %s", bad, res.Status, body)
		}
	}
}

// What a client sends on a stream is not read, and takes no memory of ours.
func TestWhatAClientSendsIsNotRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{})
	conn, r := s.dial("GET /v1/events?topic=a HTTP/1.1\nHost: " + s.addr)
	_ = conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	n, err := io.Copy(conn, strings.NewReader(strings.Repeat("x", 64<<20)))
	if err == nil || n > 16<<20 {
		t.Errorf("%d bytes were taken: %v", n, err)
	}
	s.publish("a", 1)
	for line := ""; !strings.HasPrefix(line, "data: "); {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
}

// F-20: a panic that nobody foresees costs one stream.
func TestAPanicEndsOneStream(t *testing.T) {
	t.Parallel()
	first := true
	s := newSite(t, setup{feed: feedserver.Options{Shards: 1, Latency: func(time.Duration) {
		if first {
			first = false
			panic("oh")
		}
	}}})
	one := s.open("?topic=a", "")
	s.publish("a", 1)
	eventually(t, "the stream is freed", func() bool { return s.feed.Stats().Streams == 0 && s.hub.Stats().Subscribers == 0 })
	one.cancel()
	other := s.open("?topic=a", s.at(0))
	same(t, []int64{1}, other.ids(1))
}

// F-31.
func TestDeliveriesAreTimed(t *testing.T) {
	t.Parallel()
	for _, standard := range []bool{false, true} {
		seen := make(chan time.Duration, 100)
		s := newSite(t, setup{feed: feedserver.Options{Standard: standard, Latency: func(d time.Duration) { seen <- d }}})
		st := s.open("?topic=a", "")
		for range 130 {
			s.publish("a", 1)
			st.ids(1)
		}
		if n := len(seen); n < 2 || n > 4 {
			t.Errorf("%d of 130 were timed", n)
		}
		if d := <-seen; d < 0 || d > limit {
			t.Errorf("%v", d)
		}
	}
}

// F-14.
func TestASlowReaderIsToldOrEnded(t *testing.T) {
	t.Parallel()
	for _, policy := range []feed.Policy{feed.DropOldest, feed.DropNewest, feed.Disconnect} {
		byEachWay(t, func() setup {
			return setup{hub: feed.Options{Lag: 20, Policy: func(string) feed.Policy { return policy }}}
		}, func(t *testing.T, s *site) {
			st := s.open("?topic=a", "")
			const n = 120 // far more than sockets and lag have room for
			drafts := make([]feed.Draft, n)
			for i := range drafts {
				drafts[i] = feed.Draft{Topic: "a", Data: fmt.Appendf(nil, "%q", strings.Repeat("x", 10<<10))}
			}
			for part := range slices.Chunk(drafts, 10) {
				if _, err := s.hub.Publish(t.Context(), part); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the hub is there", func() bool { return s.hub.Stats().Head.ID == n })
			seen, dropped := followSlowly(t, s, st, n)
			if policy == feed.Disconnect {
				if dropped != 0 || seen != n || s.feed.Stats().Slow == 0 {
					t.Errorf("%d events, %d dropped, %d ended as slow", seen, dropped, s.feed.Stats().Slow)
				}
			} else if dropped == 0 || seen+dropped != n {
				t.Errorf("%d events and %d dropped", seen, dropped)
			}
		})
	}
}

// followSlowly reads up to event n, again from where it was if it is ended.
func followSlowly(t *testing.T, s *site, st *stream, n int64) (seen, dropped int64) {
	t.Helper()
	id := s.at(0)
	for last := int64(0); last < n; {
		e, err := st.events.Next()
		if err != nil {
			st.cancel()
			st = s.open("?topic=a", id)
			continue
		}
		if id = e.ID; e.Data == nil {
			continue
		}
		p, err := feed.ParsePosition(e.ID)
		if err != nil || p.ID <= last && e.Type != feed.GapType {
			t.Fatalf("%s after %d: %v", e.ID, last, err)
		}
		if e.Type == feed.GapType {
			dropped += p.ID - last
		} else {
			if p.ID != last+1 {
				t.Fatalf("%d after %d", p.ID, last)
			}
			seen++
		}
		last = p.ID
	}
	return seen, dropped
}

func TestThereIsAnEndToReaders(t *testing.T) {
	t.Parallel()
	byEachWay(t, func() setup { return setup{hub: feed.Options{Subscribers: 1}} }, func(t *testing.T, s *site) {
		s.open("", "")
		res, body := s.call(http.MethodGet, "/v1/events", nil, "")
		if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
			t.Errorf("%s %s", res.Status, body)
		}
	})
}
