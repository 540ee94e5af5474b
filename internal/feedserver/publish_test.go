package feedserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
	"github.com/ossicle/ossicle/internal/feedserver"
)

var (
	asJSON  = map[string]string{"Content-Type": "application/json"}
	asLines = map[string]string{"Content-Type": "application/x-ndjson; charset=utf-8"}
)

type answer struct {
	Epoch    string         `json:"epoch"`
	Receipts []feed.Receipt `json:"receipts"`
	Error    *struct {
		Status int    `json:"status"`
		Detail string `json:"detail"`
	} `json:"error"`
}

// answers are the lines of a body.
func answers(t *testing.T, body string) []answer {
	t.Helper()
	var all []answer
	for line := range strings.Lines(body) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, a)
	}
	return all
}

// log is all that the log has.
func (s *site) log() []feed.Event {
	s.t.Helper()
	page, err := s.store.Read(s.t.Context(), feed.Query{})
	if err != nil {
		s.t.Fatal(err)
	}
	return page.Events
}

// F-6, F-4.
func TestPublishing(t *testing.T) {
	t.Parallel()
	byEachWay(t, func() setup { return setup{} }, func(t *testing.T, s *site) {
		one := ` {"type":"up","key":"k é","data":{"n":1915883588174806058,"x":1.50, "s":"\u00e9"}} `
		for _, tc := range []struct {
			header map[string]string
			body   string
			want   []feed.Receipt
		}{
			{asJSON, one, []feed.Receipt{{ID: 1}}},
			{asJSON, `[{"data":null},{"data":[1,2]},{"data":"x","idempotency_key":"i"}]`, []feed.Receipt{{ID: 2}, {ID: 3}, {ID: 4}}},
			{asJSON, `[{"idempotency_key":"i","data":0}]`, []feed.Receipt{{ID: 4, Repeated: true}}},
			{asJSON, `[]`, []feed.Receipt{}},
		} {
			res, body := s.call(http.MethodPost, "/v1/topics/a/events", tc.header, tc.body)
			if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/json" {
				t.Fatalf("%s: %s %s", tc.body, res.Status, body)
			}
			same(t, []answer{{Epoch: s.epoch(), Receipts: tc.want}}, answers(t, body))
		}
		log := s.log()
		if e := log[0]; e.Topic != "a" || e.Type != "up" || e.Key != "k é" || string(e.Data) != `{"n":1915883588174806058,"x":1.50,"s":"\u00e9"}` {
			t.Errorf("%+v %s", e, e.Data)
		}
		if len(log) != 4 || log[1].Type != feed.DefaultType || string(log[1].Data) != "null" || s.feed.Stats().Published != 4 {
			t.Errorf("%+v", log)
		}
	})
}

// F-4.
func TestARepetitionIsTakenOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{})
	three := `{"data":1}` + "\n" + `{"data":2}` + "\n" + `{"data":3,"idempotency_key":"own"}`
	array := "[" + strings.ReplaceAll(three, "\n", ",") + "]"
	for key, send := range map[string]struct{ kind, body string }{
		"one": {"application/json", `{"data":1}`}, "array": {"application/json", array}, "lines": {"application/x-ndjson", three},
	} {
		header := map[string]string{"Content-Type": send.kind, "Idempotency-Key": key}
		topic := "/v1/topics/" + key + "/events"
		var first []feed.Receipt
		for i := range 2 {
			_, body := s.call(http.MethodPost, topic, header, send.body)
			var got []feed.Receipt
			for _, a := range answers(t, body) {
				got = append(got, a.Receipts...)
			}
			if i == 0 {
				first = got
				continue
			}
			for i := range first {
				first[i].Repeated = true
			}
			same(t, first, got)
		}
	}
	if n := len(s.log()); n != 7 {
		t.Errorf("%d events", n)
	}
}

// F-5.
func TestWhatIsNotPublished(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{})
	for _, tc := range []struct {
		path   string
		header map[string]string
		body   string
		want   int
		says   string
	}{
		{"a", nil, `{"data":1}`, 415, "Content-Type"},
		{"a", map[string]string{"Content-Type": "text/plain"}, `{"data":1}`, 415, "x-ndjson"},
		{"a", map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}, `{"data":1}`, 415, "Content-Encoding"},
		{"A", asJSON, `{"data":1}`, 400, "topic"},
		{strings.Repeat("a", 129), asJSON, `{"data":1}`, 413, "topic"},
		{"a", asJSON, ``, 400, "JSON"},
		{"a", asJSON, `{"data":1`, 400, "JSON"},
		{"a", asJSON, `{"data":1} 2`, 400, "JSON"},
		{"a", asJSON, `1`, 400, "object"},
		{"a", asJSON, `{"type":"x"}`, 400, "data"},
		{"a", asJSON, `{"data":1,"topic":"b"}`, 400, `\"topic\"`},
		{"a", asJSON, `{"data":1,"Data":1}`, 400, `\"Data\"`},
		{"a", asJSON, `{"data":1,"data":2}`, 400, "duplicate"},
		{"a", asJSON, `{"data":{"a":1,"a":2}}`, 400, "duplicate"},
		{"a", asJSON, `{"data":1,"type":2}`, 400, "string"},
		{"a", asJSON, `{"data":1,"key":null}`, 400, "string"},
		{"a", asJSON, `{"data":1,"type":"gap"}`, 400, "gap"},
		{"a", asJSON, `{"data":1,"type":"a\nid: 9"}`, 400, "control"},
		{"a", asJSON, `[{"data":1},{"data":1,"key":"` + strings.Repeat("k", 513) + `"}]`, 413, "event 1"},
		{"a", asJSON, `[{"data":1},7]`, 400, "event 1"},
		{"a", asJSON, `{"data":"` + strings.Repeat("x", feed.MaxData-1) + `"}`, 413, "262144"},
		{"a", asJSON, `[` + strings.Repeat(`{"data":1},`, feed.MaxBatch) + `{"data":1}]`, 413, "1001"},
		// Without Expect the client may see the connection end before it has read why.
		{"a", map[string]string{"Content-Type": "application/json", "Expect": "100-continue"}, strings.Repeat(" ", feedserver.MaxBody) + `{"data":1}`, 413, "x-ndjson"},
		{"a", map[string]string{"Content-Type": "application/json", "Idempotency-Key": strings.Repeat("k", 500)}, `{"data":1}`, 413, "Idempotency-Key"},
		{"a", asLines, `{"data":1,"x":1}`, 400, "line 1"},
		{"a", asLines, `[{"data":1}]`, 400, "line 1"},
		{"a", asLines, "\n\n" + strings.Repeat(" ", 600<<10), 413, "line 3"},
	} {
		res, body := s.call(http.MethodPost, "/v1/topics/"+tc.path+"/events", tc.header, tc.body)
		if res.StatusCode != tc.want || res.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, tc.says) {
			t.Errorf("%.60s: %s %s; want %d with %s", tc.body, res.Status, body, tc.want, tc.says)
		}
	}
	if log := s.log(); len(log) != 0 {
		t.Errorf("published: %+v", log)
	}
	ok := `{"data":"` + strings.Repeat("x", feed.MaxData-2) + `"}`
	for _, header := range []map[string]string{asJSON, asLines} {
		if res, body := s.call(http.MethodPost, "/v1/topics/a/events", header, ok); res.StatusCode != http.StatusOK {
			t.Errorf("as much as is allowed: %s %s", res.Status, body)
		}
	}
	s.store.Fail(errors.New("the disk is gone"))
	res, body := s.call(http.MethodPost, "/v1/topics/a/events", asJSON, `{"data":1}`)
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || strings.Contains(body, "disk") {
		t.Errorf("%s %s", res.Status, body)
	}
}

// lines is a stream of events that is being sent.
type lines struct {
	t    *testing.T
	to   *io.PipeWriter
	res  chan *http.Response
	body *bufio.Scanner
}

func (s *site) stream(t *testing.T, header map[string]string) *lines {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/topics/a/events", r)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	l := &lines{t: t, to: w, res: make(chan *http.Response, 1)}
	go func() {
		res, err := s.c.Do(req) //nolint:bodyclose // answer closes it
		if err != nil {
			t.Error(err)
		}
		l.res <- res
	}()
	t.Cleanup(func() { _ = w.Close() })
	return l
}

func (l *lines) send(text string) {
	l.t.Helper()
	if _, err := io.WriteString(l.to, text); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lines) answer() answer {
	l.t.Helper()
	if l.body == nil {
		res := <-l.res
		if res == nil {
			l.t.FailNow()
		}
		l.t.Cleanup(func() { _ = res.Body.Close() })
		l.body = bufio.NewScanner(res.Body)
	}
	if !l.body.Scan() {
		l.t.Fatalf("no answer: %v", l.body.Err())
	}
	return answers(l.t, l.body.Text())[0]
}

// F-6: events are published, and told of, as they come.
func TestLinesArePublishedAsTheyCome(t *testing.T) {
	t.Parallel()
	byEachWay(t, func() setup { return setup{} }, func(t *testing.T, s *site) {
		st := s.open("?topic=a", "")
		l := s.stream(t, asLines)
		l.send(`{"data":1}` + "\r\n\n" + `{"data":`)
		same(t, []int64{1}, st.ids(1))
		same(t, []feed.Receipt{{ID: 1}}, l.answer().Receipts)
		l.send("2}\n")
		same(t, []feed.Receipt{{ID: 2}}, l.answer().Receipts)
		l.send(`{"data":3}`)
		_ = l.to.Close() // a last line needs no end
		same(t, []feed.Receipt{{ID: 3}}, l.answer().Receipts)
		if l.body.Scan() {
			t.Errorf("and %s", l.body.Text())
		}
		same(t, []int64{2, 3}, st.ids(2))
	})
}

// F-6, F-5: a stream has no length, its batches have.
func TestLinesComeInBatches(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{})
	const n = 2500
	res, body := s.call(http.MethodPost, "/v1/topics/a/events", asLines, strings.Repeat(`{"data":1}`+"\n", n)+`{"data":`)
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%s %.200s", res.Status, body)
	}
	next := int64(1)
	all := answers(t, body)
	for _, a := range all[:len(all)-1] {
		if len(a.Receipts) > feed.MaxBatch {
			t.Errorf("a batch of %d", len(a.Receipts))
		}
		for _, r := range a.Receipts {
			if r.ID != next {
				t.Fatalf("%d, want %d", r.ID, next)
			}
			next++
		}
	}
	if last := all[len(all)-1]; next != n+1 || last.Error == nil || last.Error.Status != 400 || !strings.Contains(last.Error.Detail, fmt.Sprintf("line %d", n+1)) {
		t.Errorf("%d events, then %+v", next-1, last)
	}
	if _, body := s.call(http.MethodPost, "/v1/topics/a/events", asLines, "\n \n"); !strings.Contains(body, `"receipts":[]`) {
		t.Errorf("nothing: %s", body)
	}
}

// A body is not awaited for ever, nor by a server that ends.
func TestASilentBodyIsNotAwaited(t *testing.T) {
	t.Parallel()
	byEachWay(t, func() setup {
		return setup{feed: feedserver.Options{BodySilence: 2 * time.Second, Spread: time.Millisecond}}
	}, func(t *testing.T, s *site) {
		l := s.stream(t, asLines)
		l.send(`{"data":1}` + "\n")
		l.answer()
		if a := l.answer(); a.Error == nil || a.Error.Status != http.StatusRequestTimeout {
			t.Errorf("%+v", a)
		}
	})
	byEachWay(t, func() setup { return setup{feed: feedserver.Options{Spread: time.Millisecond}} }, func(t *testing.T, s *site) {
		l := s.stream(t, asLines)
		l.send(`{"data":1}` + "\n")
		l.answer()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if err := s.feed.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if a := l.answer(); a.Error == nil || a.Error.Status != http.StatusServiceUnavailable {
			t.Errorf("%+v", a)
		}
		if res, _ := s.call(http.MethodPost, "/v1/topics/a/events", asJSON, `{"data":1}`); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("afterwards: %s", res.Status)
		}
	})
}

// F-21: nor is a body that is no stream.
func TestAnUnfinishedBodyDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{feed: feedserver.Options{Spread: time.Millisecond}})
	conn, r := s.dial("POST /v1/topics/a/events HTTP/1.1\nHost: " + s.addr + "\nContent-Type: application/json\nContent-Length: 100\nExpect: 100-continue")
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") { // it is being read
		t.Fatalf("%s %v", line, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begun := time.Now()
	if err := s.feed.Shutdown(ctx); err != nil || time.Since(begun) > limit/2 {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
	if b, _ := io.ReadAll(r); !strings.Contains(string(b), "503 Service Unavailable") {
		t.Errorf("%s", b)
	}
	_ = conn.Close()
}

// What is being published at once is bounded.
func TestTooManyBodiesWait(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{feed: feedserver.Options{BodyBytes: 1}}) // which is one body
	conn, _ := s.dial("POST /v1/topics/a/events HTTP/1.1\nHost: " + s.addr + "\nContent-Type: application/json\nContent-Length: " + fmt.Sprint(feedserver.MaxBody))
	if _, err := io.WriteString(conn, "{"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next one has no room", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/topics/a/events", strings.NewReader(`{"data":1}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := s.c.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		return errors.Is(err, context.DeadlineExceeded)
	})
	_ = conn.Close()
	if res, body := s.call(http.MethodPost, "/v1/topics/a/events", asJSON, `{"data":1}`); res.StatusCode != http.StatusOK {
		t.Errorf("%s %s", res.Status, body)
	}
}

// halfClosed is the body of a request whose sender has then closed its side of the
// connection: net/http takes it for one that has gone.
type halfClosed struct {
	io.Reader

	gone context.CancelFunc
}

func (b halfClosed) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		b.gone()
	}
	return n, err
}

// obedient is a store that does nothing for callers that have gone, as stores on disk.
type obedient struct{ *feedtest.Memory }

func (o obedient) Append(ctx context.Context, drafts []feed.Draft) ([]feed.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return o.Memory.Append(ctx, drafts)
}

// F-4, F-6, F-21: who has closed its side of the connection is answered all the same.
func TestASenderThatHasNothingMoreToSendIsAnswered(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{store: obedient{feedtest.NewMemory()}})
	mux := http.NewServeMux()
	for _, route := range s.feed.Routes() {
		mux.Handle(route.Pattern, route.Handler)
	}
	ctx, gone := context.WithCancel(t.Context())
	answer, publish := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/topics/a/events", halfClosed{strings.NewReader(`{"data":1}`), gone})
	publish.Header.Set("Content-Type", "application/json")
	mux.ServeHTTP(answer, publish)
	if want := `"receipts":[{"id":1}]`; answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), want) {
		t.Errorf("publishing is answered with %d %s, want %s", answer.Code, answer.Body, want)
	}
	answer = httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events?wait=30s", http.NoBody))
	if want := `"position":"` + s.hub.Stats().Head.Epoch + "-"; answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), want) {
		t.Errorf("a poll is answered with %d %s, want %s", answer.Code, answer.Body, want)
	}
}
