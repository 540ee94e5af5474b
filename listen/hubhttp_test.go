package listen_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/listen"
)

// ways are the two ways to a peer: the connection taken over, and the
// ResponseWriter.
var ways = map[string]func(http.Handler) http.Handler{
	"conn": func(h http.Handler) http.Handler { return h },
	"writer": func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(noHijack{w}, r)
		})
	},
}

// noHijack hides Hijack and keeps deadlines and flushes.
type noHijack struct{ http.ResponseWriter }

func (w noHijack) Hijack() (net.Conn, any, error) { return nil, nil, http.ErrNotSupported }
func (w noHijack) FlushError() error              { return http.NewResponseController(w.ResponseWriter).Flush() }
func (w noHijack) SetWriteDeadline(d time.Time) error {
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(d)
}

func (w noHijack) SetReadDeadline(d time.Time) error {
	return http.NewResponseController(w.ResponseWriter).SetReadDeadline(d)
}

func eachWay(t *testing.T, f func(t *testing.T, wrap func(http.Handler) http.Handler)) {
	for name, wrap := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, wrap)
		})
	}
}

// M-3, M-4: the bytes on the wire, with ids of every kind echoed as they came.
func TestHTTPFrames(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, &listen.HubOptions{KeepAlive: 300 * time.Millisecond, Lists: []listen.List{listen.ToolsList, listen.PromptsList, listen.ResourcesList}})
	s := newSite(t, h.Handler(teapot), nil)
	conn, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := listenFor(`"a\u00e9\/\""`, `"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["memo://n\u00f6tes","memo://notes","memo://notes"]`)
	_, err = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	read := func(until string) {
		t.Helper()
		got, err := readAvailable(conn, until)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(got)
	}
	read("acknowledged")
	h.Updated("memo://nötes")
	read("updated")
	h.ListChanged(listen.ToolsList)
	read("tools")
	h.ListChanged(listen.PromptsList)
	read("prompts")
	h.ListChanged(listen.ResourcesList)
	read("resources/list")
	read("keepalive")
	if n := h.End("memo://notes"); n != 1 {
		t.Errorf("End ended %d listens", n)
	}
	read("nothing comes, but the end")
	text := regexp.MustCompile(`Date: [^\r]*`).ReplaceAllString(all.String(), "Date: NOW")
	head, chunks, _ := strings.Cut(text, "\r\n\r\n")
	text = head + "\r\n\r\n" + withoutKeepAlives(t, chunks)
	golden(t, "http.golden", strings.ReplaceAll(text, "\r\n", "\\r\\n\n"))
}

// withoutKeepAlives takes them out of the chunks of a body. They come when it is time
// for them, in chunks of their own or beside news.
func withoutKeepAlives(t *testing.T, body string) string {
	t.Helper()
	var out strings.Builder
	for body != "" {
		head, rest, _ := strings.Cut(body, "\r\n")
		size, err := strconv.ParseUint(head, 16, 16)
		if err != nil || uint64(len(rest)) < size+2 || rest[size:size+2] != "\r\n" {
			t.Fatalf("no chunk: %.200q", body)
		}
		data := rest[:size]
		if news := strings.ReplaceAll(data, ": keepalive\n\n", ""); news != data {
			head, data = strconv.FormatInt(int64(len(news)), 16), news
		}
		if data != "" || size == 0 {
			out.WriteString(head + "\r\n" + data + "\r\n")
		}
		body = rest[size+2:]
	}
	return out.String()
}

// M-3: ids are typed and echoed exactly.
func TestHTTPIDs(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, nil)
	s := newSite(t, h.Handler(teapot), nil)
	for _, id := range []string{`1`, `"1"`, `-7`, `0`, `9007199254740993`, `123456789012345678901234567890`, `"9007199254740993"`, `"ü \u2028"`, `""`, `"` + strings.Repeat("x", 510) + `"`} {
		e := s.open(t, listenBody(id, "a://x"))
		e.want(ackFrame(id, "a://x"))
		h.Updated("a://x")
		e.want(updateFrame(id, "a://x"))
		h.End("a://x")
		e.want(resultFrame(id), ended)
	}
}

// M-7: every fault, its status, code and text.
func TestHTTPFaults(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, &listen.HubOptions{MaxBody: 2048, MaxURIs: 2})
	s := newSite(t, h.Handler(teapot), nil)
	ok := listenBody(`7`, "a://x")
	set := func(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }
	var b strings.Builder
	for _, tt := range []struct {
		name, body string
		edit       func(http.Header)
	}{
		{"content type", ok, set("Content-Type", "text/plain")},
		{"no content type", ok, func(h http.Header) { h.Del("Content-Type") }},
		{"accept json only", ok, set("Accept", "application/json")},
		{"accept stream only", ok, set("Accept", "text/event-stream;q=1")},
		{"body too large", strings.Replace(ok, `"a://x"`, `"a://`+strings.Repeat("x", 2048)+`"`, 1), nil},
		{"no json", `{"jsonrpc":`, nil},
		{"duplicate member", strings.Replace(ok, `"id":7`, `"id":7,"id":8`, 1), nil},
		{"trailing data", ok + `x`, nil},
		{"bad utf-8", strings.Replace(ok, "a://x", "a://\xff", 1), nil},
		{"batch", `[` + ok + `]`, nil},
		{"other case", strings.Replace(ok, `"jsonrpc"`, `"JsonRpc"`, 1), nil},
		{"jsonrpc 1.0", strings.Replace(ok, `"2.0"`, `"1.0"`, 1), nil},
		{"no id", strings.Replace(ok, `"id":7,`, ``, 1), nil},
		{"null id", listenBody(`null`, "a://x"), nil},
		{"fraction id", listenBody(`7.5`, "a://x"), nil},
		{"exponent id", listenBody(`7e2`, "a://x"), nil},
		{"array id", listenBody(`[7]`, "a://x"), nil},
		{"long id", listenBody(`"`+strings.Repeat("x", 511)+`"`, "a://x"), nil},
		{"other method", strings.Replace(ok, "subscriptions/listen", "tools/call", 1), nil},
		{"no version header", ok, func(h http.Header) { h.Del("Mcp-Protocol-Version") }},
		{"version header differs", ok, set("Mcp-Protocol-Version", "2025-11-25")},
		{"no params", `{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen"}`, nil},
		{"no meta", `{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"notifications":{}}}`, nil},
		{"no version", strings.Replace(ok, `"io.modelcontextprotocol/protocolVersion":"2026-07-28",`, ``, 1), nil},
		{"unsupported version", strings.Replace(ok, "2026-07-28", "2099-01-01", 1), set("Mcp-Protocol-Version", "2099-01-01")},
		{"no capabilities", strings.Replace(ok, `,"io.modelcontextprotocol/clientCapabilities":{}`, ``, 1), nil},
		{"capabilities no object", strings.Replace(ok, `Capabilities":{}`, `Capabilities":[]`, 1), nil},
		{"no filter", `{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{` + meta + `}}`, nil},
		{"filter of wrong type", listenFor(`7`, `"toolsListChanged":"yes"`), nil},
		{"too many uris", listenBody(`7`, "a://1", "a://2", "a://3"), nil},
	} {
		got := s.post(t, tt.body, tt.edit)
		fmt.Fprintf(&b, "%s\n\t%s %s\n\t%s\n", tt.name, got.status, got.header.Get("Content-Type"), got.body)
	}
	golden(t, "faults.golden", b.String())
	if n := h.Stats().Listens; n != 0 {
		t.Errorf("%d listens are open", n)
	}
}

// Everything else goes to the next handler untouched.
func TestHTTPPassesOn(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, nil)
	s := newSite(t, h.Handler(teapot), nil)
	for _, method := range []string{"", "tools/call", "Subscriptions/Listen"} {
		got := s.post(t, "body", func(h http.Header) { h.Set("Mcp-Method", method) })
		if got.status != "418 I'm a teapot" || got.body != "POST body" {
			t.Errorf("%q: %s %s", method, got.status, got.body)
		}
	}
	resp, err := http.Get(s.srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTeapot {
		t.Errorf("GET: %s", resp.Status)
	}
}

// What middlewares put into the header survives the take-over.
func TestHTTPKeepsHeader(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, wrap func(http.Handler) http.Handler) {
		h := newHub(t, nil, nil)
		handler := wrap(h.Handler(teapot))
		s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "https://a.example")
			handler.ServeHTTP(w, r)
		}), nil)
		e := s.open(t, listenBody(`1`, "a://x"))
		if got := e.header.Get("Access-Control-Allow-Origin"); got != "https://a.example" {
			t.Errorf("header is %q", got)
		}
	})
}

// M-3: the ack is on the wire before any update, however the two race; and what
// changes after the ack was sent is never lost.
func TestHTTPAckFirst(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, wrap func(http.Handler) http.Handler) {
		h := newHub(t, nil, nil)
		s := newSite(t, wrap(h.Handler(teapot)), nil)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			for ctx.Err() == nil {
				h.Updated("a://x")
				runtime.Gosched()
			}
		})
		for i := range 300 {
			id := fmt.Sprint(i)
			e := s.open(t, listenBody(id, "a://x"))
			e.want(ackFrame(id, "a://x"), updateFrame(id, "a://x"))
			_ = e.conn.Close()
		}
	})
}

// The same without a race: the first source has news at once, and the second takes
// its time.
func TestHTTPNewsWhileOpening(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, wrap func(http.Handler) http.Handler) {
		synctest.Test(t, func(t *testing.T) {
			h := newHub(t, mount(t, nil, hastySource{newFakeSource("hasty")}, slowSource()), nil)
			s := newMemorySite(t, wrap(h.Handler(teapot)), nil)
			e := s.open(t, listenBody(`1`, "hasty://x", "slow://x"))
			e.want(ackFrame(`1`, "hasty://x", "slow://x"), updateFrame(`1`, "hasty://x"))
			_ = e.conn.Close()
		})
	})
}

// Every update after the ack arrives, none is sent twice: W-015.
func TestHTTPDeliversEach(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, wrap func(http.Handler) http.Handler) {
		h := newHub(t, nil, nil)
		s := newSite(t, wrap(h.Handler(teapot)), nil)
		var streams []*events
		for i := range 20 {
			id := fmt.Sprint(i)
			e := s.open(t, listenBody(id, "a://x", "a://y"))
			e.want(ackFrame(id, "a://x", "a://y"))
			streams = append(streams, e)
		}
		for range 50 {
			h.Updated("a://x")
			for i, e := range streams {
				e.want(updateFrame(fmt.Sprint(i), "a://x"))
			}
			h.Updated("a://y")
			for i, e := range streams {
				e.want(updateFrame(fmt.Sprint(i), "a://y"))
			}
		}
	})
}

// M-3: only what exists and may be read is acknowledged; a refusal does not fail
// the rest, and says why.
func TestHTTPRefusals(t *testing.T) {
	t.Parallel()
	src := newFakeSource("a")
	src.missing["a://none"], src.static["a://still"] = true, true
	reg := mount(t, nil, src)
	h := newHub(t, reg, &listen.HubOptions{Authorize: func(_ context.Context, uri string) error {
		if uri == "a://secret" {
			return errors.New("you may not read this")
		}
		return nil
	}})
	s := newSite(t, h.Handler(teapot), nil)
	e := s.open(t, listenBody(`1`, "a://none", "a://x", "a://still", "b://nobody", "a://secret", "a://"+strings.Repeat("y", 8<<10)))
	golden(t, "refused.golden", strings.Replace(e.next(), strings.Repeat("y", 8<<10), "yyy", 1)+"\n")
	src.change("a://x")
	e.want(updateFrame(`1`, "a://x"))

	// With nothing left there is nothing to wait for.
	e = s.open(t, listenBody(`2`, "a://none"))
	if got := e.next(); !strings.Contains(got, `"notifications":{}`) || !strings.Contains(got, "did you mean: a://a") {
		t.Errorf("ack is %s", got)
	}
	e.want(resultFrame(`2`), ended)
	wantCounts(t, src, 1, 0, "after refusals")
}

// Lists that are not announced are not honoured.
func TestHTTPLists(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, &listen.HubOptions{Lists: []listen.List{listen.PromptsList}})
	s := newSite(t, h.Handler(teapot), nil)
	e := s.open(t, listenFor(`1`, `"toolsListChanged":true,"promptsListChanged":true`))
	e.want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1},"notifications":{"promptsListChanged":true}}}`)
	h.ListChanged(listen.ToolsList)
	h.ListChanged(listen.List(99))
	h.ListChanged(listen.PromptsList)
	e.want(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`)
}

// M-3, known fault B-005: a comment line every 15 s.
func TestHTTPKeepAlive(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, wrap func(http.Handler) http.Handler) {
		synctest.Test(t, func(t *testing.T) {
			h := newHub(t, nil, nil)
			s := newMemorySite(t, wrap(h.Handler(teapot)), nil)
			begin := time.Now()
			first := s.open(t, listenBody(`1`, "a://x"))
			first.want(ackFrame(`1`, "a://x"))
			time.Sleep(7 * time.Second)
			second := s.open(t, listenBody(`2`, "a://x"))
			second.want(ackFrame(`2`, "a://x"))
			for i := range 4 {
				first.want(": keepalive")
				if got, want := time.Since(begin), time.Duration(i+1)*15*time.Second; got != want {
					t.Errorf("keep-alive %d of the first stream after %v, want %v", i, got, want)
				}
				second.want(": keepalive")
				if got, want := time.Since(begin), time.Duration(i+1)*15*time.Second+7*time.Second; got != want {
					t.Errorf("keep-alive %d of the second stream after %v, want %v", i, got, want)
				}
			}
			_ = first.conn.Close()
			_ = second.conn.Close()
		})
	})
}

// Known fault B-006: the timeouts of the server do not end a stream.
func TestHTTPServerTimeouts(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, wrap func(http.Handler) http.Handler) {
		synctest.Test(t, func(t *testing.T) {
			h := newHub(t, nil, &listen.HubOptions{KeepAlive: -1})
			s := newMemorySite(t, wrap(h.Handler(teapot)), func(srv *http.Server) {
				srv.WriteTimeout, srv.ReadTimeout = time.Second, time.Second
			})
			e := s.open(t, listenBody(`1`, "a://x"))
			e.want(ackFrame(`1`, "a://x"))
			for range 3 {
				time.Sleep(time.Minute)
				h.Updated("a://x")
				e.want(updateFrame(`1`, "a://x"))
			}
			_ = e.conn.Close()
		})
	})
}

// M-3: a peer that does not read is cut off after the write timeout, not before.
func TestHTTPWriteTimeout(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, wrap func(http.Handler) http.Handler) {
		synctest.Test(t, func(t *testing.T) {
			h := newHub(t, nil, &listen.HubOptions{KeepAlive: -1})
			s := newMemorySite(t, wrap(h.Handler(teapot)), nil)
			stuck := s.open(t, listenBody(`1`, "a://x"))
			stuck.want(ackFrame(`1`, "a://x"))
			healthy := s.open(t, listenBody(`2`, "a://x"))
			healthy.want(ackFrame(`2`, "a://x"))
			h.Updated("a://x")
			begin := time.Now()
			healthy.want(updateFrame(`2`, "a://x"))
			if d := time.Since(begin); d != 0 {
				t.Errorf("the healthy peer waited %v for the stuck one", d)
			}
			time.Sleep(listen.DefaultWriteTimeout - 1)
			synctest.Wait()
			if got := h.Stats(); got.CutOff != 0 || got.Listens != 2 {
				t.Errorf("a moment before the write timeout: %+v", got)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if got := h.Stats(); got.CutOff != 1 || got.Listens != 1 {
				t.Errorf("after the write timeout: %+v", got)
			}
			_ = healthy.conn.Close()
		})
	})
}

// stuckTime is how long peers that do not read may hold up a write, where buffers are
// the kernel's: far longer than a busy machine holds up anybody else.
const stuckTime = 5 * time.Second

// The same with real buffers of the kernel, which must fill up first.
func TestHTTPStuckPeer(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, wrap func(http.Handler) http.Handler) {
		h := newHub(t, nil, &listen.HubOptions{WriteTimeout: stuckTime, KeepAlive: -1})
		s := newSite(t, wrap(h.Handler(teapot)), nil)
		uri := "a://" + strings.Repeat("long", 2000)
		stuck, err := s.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer stuck.Close()
		_ = stuck.(*net.TCPConn).SetReadBuffer(4096)
		exchange(t, stuck, listenBody(`1`, uri), nil)
		healthy := s.open(t, listenBody(`2`, uri))
		healthy.want(ackFrame(`2`, uri))
		var slowest time.Duration
		deadline := time.Now().Add(60 * time.Second)
		for h.Stats().CutOff == 0 {
			if time.Now().After(deadline) {
				t.Fatal("the stuck peer is not cut off")
			}
			begin := time.Now()
			h.Updated(uri)
			healthy.want(updateFrame(`2`, uri))
			slowest = max(slowest, time.Since(begin))
		}
		if slowest > stuckTime-time.Second {
			t.Errorf("the healthy peer waited %v", slowest)
		}
		// Who counts the cut need not be the one who removes the listen.
		waitFor(t, func() bool { return h.Stats() == listen.Stats{Listens: 1, CutOff: 1} })
	})
}

// A slow peer gets each URI once, and the latest news at last: the pending set
// coalesces and is bounded (known fault B-009).
func TestHTTPCoalesces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, nil, &listen.HubOptions{KeepAlive: -1})
		s := newMemorySite(t, h.Handler(teapot), nil)
		e := s.open(t, listenBody(`1`, "a://x", "a://y", "a://z"))
		e.want(ackFrame(`1`, "a://x", "a://y", "a://z"))
		h.Updated("a://x")
		synctest.Wait() // is being written, to a peer that does not read
		for range 100 {
			h.Updated("a://z")
			h.Updated("a://x")
			h.Updated("a://z")
		}
		e.want(updateFrame(`1`, "a://x"), updateFrame(`1`, "a://z"), updateFrame(`1`, "a://x"))
		synctest.Wait()
		h.Updated("a://y")
		e.want(updateFrame(`1`, "a://y"))
		_ = e.conn.Close()
	})
}

// Slow but alive: a full kernel buffer, then everything in order by the one that
// takes over, then the fast way again.
func TestHTTPCatchesUp(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, &listen.HubOptions{WriteTimeout: stuckTime, KeepAlive: -1})
	s := newSite(t, h.Handler(teapot), nil)
	var uris []string
	for i := range 300 {
		uris = append(uris, fmt.Sprintf("a://%d/%s", i, strings.Repeat("x", 3000)))
	}
	conn, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	e := exchange(t, conn, listenBody(`1`, uris...), nil).served()
	e.want(ackFrame(`1`, uris...))
	for range 3 {
		for _, uri := range uris {
			h.Updated(uri)
		}
		seen := map[string]bool{}
		for len(seen) < len(uris) {
			seen[e.next()] = true
		}
		for _, uri := range uris {
			if !seen[updateFrame(`1`, uri)] {
				t.Fatalf("no update for %.20s", uri)
			}
		}
	}
	// The deadline of the slow way passes, and must not spoil the fast one.
	time.Sleep(stuckTime + stuckTime/10)
	h.Updated(uris[0])
	for got := e.next(); got != updateFrame(`1`, uris[0]); got = e.next() {
		if strings.HasPrefix(got, "[") {
			t.Fatal(got)
		}
	}
}

// M-5: closing the stream is a cancellation; the source stops after its linger.
func TestHTTPHangUp(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, wrap func(http.Handler) http.Handler) {
		synctest.Test(t, func(t *testing.T) {
			src := newFakeSource("a")
			h := newHub(t, mount(t, nil, src), nil)
			s := newMemorySite(t, wrap(h.Handler(teapot)), nil)
			e := s.open(t, listenBody(`1`, "a://x"))
			e.want(ackFrame(`1`, "a://x"))
			_ = e.conn.Close()
			synctest.Wait()
			if n := h.Stats().Listens; n != 0 {
				t.Errorf("%d listens after the peer went", n)
			}
			wantCounts(t, src, 1, 0, "within the linger")
			time.Sleep(listen.DefaultLinger)
			synctest.Wait()
			wantCounts(t, src, 1, 1, "after the linger")
		})
	})
}

// A peer that goes on sending on its stream is cut off: nothing belongs there.
func TestHTTPTrailingBytes(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, nil)
	s := newSite(t, h.Handler(teapot), nil)
	conn, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	e := exchange(t, conn, listenBody(`1`, "a://x"), nil).served()
	e.want(ackFrame(`1`, "a://x"))
	_, _ = io.Copy(conn, strings.NewReader(strings.Repeat("x", 1<<20)))
	if got := e.next(); !strings.HasPrefix(got, "[") {
		t.Errorf("stream goes on with %s", got)
	}
}

// Limits, at the boundary.
func TestHTTPMaxListens(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, &listen.HubOptions{MaxListens: 2, MaxURIs: 2})
	s := newSite(t, h.Handler(teapot), nil)
	first := s.open(t, listenBody(`1`, "a://x", "a://y"))
	first.want(ackFrame(`1`, "a://x", "a://y"))
	s.open(t, listenBody(`2`, "a://x")).want(ackFrame(`2`, "a://x"))
	got := s.post(t, listenBody(`3`, "a://x"), nil)
	want := `{"jsonrpc":"2.0","id":3,"error":{"code":-31001,"message":"this server has its 2 listens: end one, put more URIs into one, or try later","data":{"limit":2}}}`
	if got.status != "503 Service Unavailable" || got.body != want || got.header.Get("Retry-After") == "" {
		t.Errorf("over the limit: %s %s", got.status, got.body)
	}
	if n := h.End("a://y"); n != 1 {
		t.Errorf("ended %d listens", n)
	}
	first.want(resultFrame(`1`), ended)
	s.open(t, listenBody(`3`, "a://x")).want(ackFrame(`3`, "a://x"))
}

// The opening is bounded; what was not said by then is a refusal.
func TestHTTPOpenTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow, quick := newFakeSource("slow"), newFakeSource("quick")
		slow.onWatch = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		h := newHub(t, mount(t, nil, slow, quick), nil)
		s := newMemorySite(t, h.Handler(teapot), nil)
		begin := time.Now()
		e := s.open(t, listenBody(`1`, "quick://x", "slow://x"))
		if got := e.next(); !strings.Contains(got, `"notifications":{"resourceSubscriptions":["quick://x"]}`) || !strings.Contains(got, `"code":-32603`) {
			t.Errorf("ack is %s", got)
		}
		if d := time.Since(begin); d != listen.DefaultOpenTimeout {
			t.Errorf("opening took %v", d)
		}
		_ = e.conn.Close()
	})
}

// So is the wait for the body.
func TestHTTPSlowBody(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, wrap func(http.Handler) http.Handler) {
		synctest.Test(t, func(t *testing.T) {
			h := newHub(t, nil, nil)
			s := newMemorySite(t, wrap(h.Handler(teapot)), nil)
			conn, err := s.dial()
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: */*\r\nMcp-Protocol-Version: 2026-07-28\r\n"+
				"Mcp-Method: subscriptions/listen\r\nContent-Length: 100\r\n\r\n{")
			if err != nil {
				t.Fatal(err)
			}
			got, _ := readAvailable(conn, "send it at once")
			if !strings.HasPrefix(got, "HTTP/1.1 408 ") {
				t.Errorf("answer is %q", got)
			}
			if d := time.Since(begin); d != listen.DefaultOpenTimeout {
				t.Errorf("it took %v", d)
			}
			_ = conn.Close()
		})
	})
}

// A peer that goes while its listen opens leaves nothing behind.
func TestHTTPGoneWhileOpening(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource("a")
		src.onWatch = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		h := newHub(t, mount(t, nil, src), nil)
		s := newMemorySite(t, h.Handler(teapot), nil)
		conn, err := s.dial()
		if err != nil {
			t.Fatal(err)
		}
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/", strings.NewReader(listenBody(`1`, "a://x")))
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}}
		if err := req.Write(conn); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := h.Stats().Listens; n != 1 {
			t.Errorf("%d listens while one opens", n)
		}
		_ = conn.Close()
		synctest.Wait()
		if n := h.Stats().Listens; n != 0 {
			t.Errorf("%d listens after the peer went", n)
		}
	})
}

// M-4, known fault B-007: Shutdown ends all politely, and takes no more.
func TestHTTPShutdown(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, wrap func(http.Handler) http.Handler) {
		src := newFakeSource("a")
		h := newHub(t, mount(t, &listen.RegistryOptions{Linger: -1}, src), nil)
		s := newSite(t, wrap(h.Handler(teapot)), nil)
		var streams []*events
		for i := range 50 {
			e := s.open(t, listenBody(fmt.Sprint(i), "a://x"))
			e.want(ackFrame(fmt.Sprint(i), "a://x"))
			streams = append(streams, e)
		}
		src.change("a://x") // is delivered before the end
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		for i, e := range streams {
			e.want(updateFrame(fmt.Sprint(i), "a://x"), resultFrame(fmt.Sprint(i)), ended)
		}
		wantCounts(t, src, 1, 1, "after Shutdown")
		got := s.post(t, listenBody(`1`, "a://x"), nil)
		if got.status != "503 Service Unavailable" || !strings.Contains(got.body, `"code":-31002`) {
			t.Errorf("after Shutdown: %s %s", got.status, got.body)
		}
		if err := h.Shutdown(t.Context()); err != nil {
			t.Errorf("second Shutdown: %v", err)
		}
	})
}

// M-4: Shutdown is bounded by its context, whatever peers do.
func TestHTTPShutdownStuck(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, wrap func(http.Handler) http.Handler) {
		synctest.Test(t, func(t *testing.T) {
			h := newHub(t, nil, &listen.HubOptions{KeepAlive: -1, WriteTimeout: time.Hour})
			s := newMemorySite(t, wrap(h.Handler(teapot)), nil)
			stuck := s.open(t, listenBody(`1`, "a://x"))
			stuck.want(ackFrame(`1`, "a://x"))
			healthy := s.open(t, listenBody(`2`, "a://x"))
			healthy.want(ackFrame(`2`, "a://x"))
			var wg sync.WaitGroup
			wg.Go(func() { healthy.want(resultFrame(`2`), ended) })
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			begin := time.Now()
			if err := h.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown: %v", err)
			}
			if d := time.Since(begin); d != 3*time.Second {
				t.Errorf("Shutdown took %v", d)
			}
			wg.Wait()
			_ = stuck.conn.Close()
		})
	})
}

// A listen that is opening when the hub shuts down is told so.
func TestHTTPShutdownWhileOpening(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := newFakeSource("a")
		src.onWatch = func(context.Context) error { time.Sleep(time.Second); return nil }
		h := newHub(t, mount(t, nil, src), nil)
		s := newMemorySite(t, h.Handler(teapot), nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			got := s.post(t, listenBody(`1`, "a://x"), nil)
			if got.status != "503 Service Unavailable" || !strings.Contains(got.body, `"code":-31002`) {
				t.Errorf("%s %s", got.status, got.body)
			}
		})
		synctest.Wait()
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		time.Sleep(2 * listen.DefaultLinger)
		synctest.Wait()
		wantCounts(t, src, 1, 1, "after the linger")
	})
}

// A ResponseWriter that buffers is found out before anything is sent.
func TestHTTPCannotStream(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, nil)
	s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.Handler(teapot).ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	}), nil)
	got := s.post(t, listenBody(`1`, "a://x"), nil)
	if got.status != "500 Internal Server Error" || !strings.Contains(got.body, `"code":-32603`) {
		t.Errorf("%s %s", got.status, got.body)
	}
}

// HTTP/2 and TLS of both versions.
func TestHTTPSecure(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			// Idle for longer than a write may take, and than the server allows: on
			// HTTP/2 a deadline that passes resets the stream even if it is idle.
			h := newHub(t, nil, &listen.HubOptions{KeepAlive: stuckTime + time.Second, WriteTimeout: stuckTime})
			srv := httptest.NewUnstartedServer(h.Handler(teapot))
			srv.EnableHTTP2 = proto == "HTTP/2.0"
			srv.Config.WriteTimeout, srv.Config.ReadTimeout = stuckTime, stuckTime // which the handshake has, too
			srv.StartTLS()
			t.Cleanup(srv.Close)
			open := func(id string) *events {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(listenBody(id, "a://x")))
				req.Header = http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Accept": {"*/*"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}}
				resp, err := srv.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if resp.Proto != proto {
					t.Errorf("protocol is %s", resp.Proto)
				}
				t.Cleanup(func() { _ = resp.Body.Close() })
				return newEvents(t, resp.Body, resp).served()
			}
			a, b := open(`1`), open(`2`)
			a.want(ackFrame(`1`, "a://x"), ": keepalive", ": keepalive")
			b.want(ackFrame(`2`, "a://x"))
			_ = b.conn.Close() // cancels
			h.Updated("a://x")
			for got := a.next(); got != updateFrame(`1`, "a://x"); got = a.next() {
				if got != ": keepalive" {
					t.Fatal(got)
				}
			}
			if err := h.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			for got := a.next(); got != resultFrame(`1`); got = a.next() {
				if got != ": keepalive" {
					t.Fatal(got)
				}
			}
			a.want(ended)
			srv.Client().CloseIdleConnections()
		})
	}
}

// On HTTP/2 a peer that gives its stream no window is cut off, and the other
// streams of its connection are not.
func TestHTTPStuckStream(t *testing.T) {
	t.Parallel()
	h := newHub(t, nil, &listen.HubOptions{WriteTimeout: stuckTime, KeepAlive: -1})
	srv := httptest.NewUnstartedServer(h.Handler(teapot))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	uri := "a://" + strings.Repeat("long", 2000)
	open := func(id string) *events {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(listenBody(id, uri)))
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}}
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		e := newEvents(t, resp.Body, resp).served()
		e.want(ackFrame(id, uri))
		return e
	}
	open(`1`) // reads no further
	healthy := open(`2`)
	var slowest time.Duration
	deadline := time.Now().Add(60 * time.Second)
	for h.Stats().CutOff == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the stuck peer is not cut off")
		}
		begin := time.Now()
		h.Updated(uri)
		healthy.want(updateFrame(`2`, uri))
		slowest = max(slowest, time.Since(begin))
	}
	if slowest > stuckTime-time.Second {
		t.Errorf("the healthy stream waited %v", slowest)
	}
	waitFor(t, func() bool { return h.Stats() == listen.Stats{Listens: 1, CutOff: 1} })
}
