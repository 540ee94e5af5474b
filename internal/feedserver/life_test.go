package feedserver_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
	"github.com/ossicle/ossicle/internal/feedserver"
)

// F-16, F-13.
func TestAClientThatNeverReadsIsCut(t *testing.T) {
	t.Parallel()
	const n, cut = 2000, 2 * time.Second // the one that reads must not be that late, on any machine
	byEachWay(t, func() setup { return setup{feed: feedserver.Options{WriteTime: cut}} }, func(t *testing.T, s *site) {
		good := s.open("?topic=a", "")
		s.open("?topic=a", "") // which nobody reads
		pad := strings.Repeat("x", 500)
		var most int64
		begun := time.Now()
		for i := range n / 20 {
			drafts := make([]feed.Draft, 20)
			for j := range drafts {
				drafts[j] = feed.Draft{Topic: "a", Data: fmt.Appendf(nil, `{"n":%d,"pad":%q}`, 20*i+j, pad)}
			}
			if _, err := s.hub.Publish(t.Context(), drafts); err != nil {
				t.Fatal(err)
			}
			for _, id := range good.ids(20) {
				most = max(most, s.feed.Stats().Queued)
				_ = id
			}
		}
		eventually(t, "the stuck client is gone", func() bool {
			got := s.feed.Stats()
			return got.Streams == 1 && got.Cut == 1 && got.Queued == 0 && s.hub.Stats().Subscribers == 1
		})
		if took := time.Since(begun); took < cut/2 {
			t.Errorf("it was cut after %v", took)
		}
		got := s.feed.Stats()
		if got.Cut != 1 || most > 256<<10 || got.Queued != 0 || s.direct && most == 0 {
			t.Errorf("%d bytes were held; %+v", most, got)
		}
		last := s.publish("a", 1)
		same(t, []int64{last[0].ID}, good.ids(1))
	})
}

// fds is the number of descriptors of this process.
func fds(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(all)
}

// F-20. It is not parallel: it counts what is there in the whole process.
func TestTenThousandConnectsLeaveNothing(t *testing.T) {
	cycles := 10_000
	if testing.Short() || raceEnabled {
		cycles = 1000
	}
	for _, way := range ways[:3] {
		t.Run(way.name, func(t *testing.T) {
			s := newSiteBy(t, way, setup{feed: feedserver.Options{Heartbeat: time.Hour}})
			s.publish("a", 10)
			n := cycles
			if way.tls || way.standard {
				n /= 10 // handshakes are slow, and the other way is that of net/http
			}
			connect := func(count int) {
				var wg sync.WaitGroup
				var turn atomic.Int64
				for range 8 {
					wg.Go(func() {
						for i := turn.Add(1); i <= int64(count); i = turn.Add(1) {
							if err := s.abort(way, int(i)); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				eventually(t, "all are gone", func() bool {
					return s.feed.Stats().Streams == 0 && s.hub.Stats().Subscribers == 0 && s.feed.Stats().Queued == 0
				})
			}
			connect(100) // what there is but once
			var before, after runtime.MemStats
			goroutines, files := runtime.NumGoroutine(), fds(t)
			runtime.GC()
			runtime.ReadMemStats(&before)
			connect(n)
			eventually(t, fmt.Sprintf("%d goroutines and %d descriptors as before", goroutines, files), func() bool {
				return runtime.NumGoroutine() <= goroutines && fds(t) <= files
			})
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
				t.Errorf("%d bytes are left of %d streams", grown, n)
			}
			if got := s.feed.Stats(); got.Streams != 0 || got.Direct != 0 || got.Replaying != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// abort connects and goes away, in one of several manners.
func (s *site) abort(way way, i int) error {
	conn, err := s.raw(way)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(limit))
	version := "HTTP/1." + fmt.Sprint(i/3%2)
	last := ""
	if i%5 == 0 {
		last = "Last-Event-ID: " + s.at(int64(i%11)) + "\r\n"
	}
	if _, err := io.WriteString(conn, "GET /v1/events?topic=a "+version+"\r\nHost: "+s.addr+"\r\n"+last+"\r\n"); err != nil {
		return err
	}
	if i%3 != 0 { // else it does not wait for an answer
		if _, err := conn.Read(make([]byte, 1024)); err != nil {
			return err
		}
	}
	tcp, ok := conn.(*net.TCPConn)
	if ok && i%2 == 0 {
		return tcp.SetLinger(0) // a reset
	}
	if ok && i%7 == 0 {
		return tcp.CloseWrite()
	}
	return nil
}

// F-21.
func TestShutdownEndsStreamsPolitely(t *testing.T) {
	t.Parallel()
	const streams, spread = 20, 2 * time.Second // a machine that stands still in it ends all at once
	byEachWay(t, func() setup { return setup{feed: feedserver.Options{Spread: spread}} }, func(t *testing.T, s *site) {
		var all []*stream
		for range streams {
			all = append(all, s.open("?topic=a", ""))
		}
		s.publish("a", 3)
		type end struct {
			at    time.Duration
			retry string
			err   error
			last  string
		}
		begun := time.Now()
		ends := make(chan end, streams)
		for _, st := range all {
			go func() {
				var e end
				for {
					ev, err := st.events.Next()
					if err != nil {
						e.at, e.err = time.Since(begun), err
						ends <- e
						return
					}
					if ev.Retry != "" {
						e.retry = ev.Retry
					}
					if ev.Data != nil {
						e.last = ev.ID
					}
				}
			}()
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if err := s.feed.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		retries := map[string]bool{}
		var first, last time.Duration
		for i := range streams {
			e := <-ends
			if !errors.Is(e.err, io.EOF) || e.last != s.at(3) || len(e.retry) != 4 {
				t.Errorf("ended with %v after event %s, retry %q", e.err, e.last, e.retry)
			}
			retries[e.retry] = true
			if i == 0 {
				first = e.at
			}
			last = e.at
		}
		if len(retries) < streams/2 || last-first < spread/10 {
			t.Errorf("%d times to reconnect; the ends came from %v to %v", len(retries), first, last)
		}
		if res, body := s.call(http.MethodGet, "/v1/events", nil, ""); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
			t.Errorf("afterwards: %s %s", res.Status, body)
		}
		if got := s.feed.Stats(); got.Streams != 0 || s.hub.Stats().Subscribers != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// F-21: the end of the server is that of the streams that it does not know any
// more.
func TestTheServerEndsWhatWasTakenOver(t *testing.T) {
	t.Parallel()
	byEachWay(t, func() setup { return setup{feed: feedserver.Options{Spread: time.Millisecond}} }, func(t *testing.T, s *site) {
		st := s.open("?topic=a", "")
		r := s.publish("a", 1)
		s.end()
		same(t, []int64{r[0].ID}, st.ids(1))
		if e := st.next(); e.Retry == "" || e.Data != nil {
			t.Errorf("%+v", e)
		}
		if _, err := st.events.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v", err)
		}
	})
}

// tap keeps what is read.
type tap struct {
	net.Conn
	read []byte
}

func (c *tap) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read = append(c.read, b[:n]...)
	return n, err
}

// F-21: over TLS an end without a goodbye would be a cut.
func TestTheEndIsSaidOverTLS(t *testing.T) {
	t.Parallel()
	s := newSiteBy(t, way{tls: true}, setup{feed: feedserver.Options{Spread: time.Millisecond}})
	plain, err := s.raw(way{})
	if err != nil {
		t.Fatal(err)
	}
	wire := &tap{Conn: plain}
	// Of this version the types of the records can be seen.
	conn := tls.Client(wire, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}) //nolint:gosec // our own server
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(conn, "GET /v1/events?topic=a HTTP/1.0\r\nHost: "+s.addr+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is taken over", func() bool { return s.feed.Stats().Direct == 1 })
	s.end()
	b, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.0 200 OK\r\n") || !strings.Contains(string(b), ": bye\n") {
		t.Errorf("%q, %v", b, err)
	}
	var last byte
	for rest := wire.read; len(rest) >= 5; {
		last = rest[0]
		rest = rest[min(5+int(binary.BigEndian.Uint16(rest[3:])), len(rest)):]
	}
	if alert := byte(21); last != alert {
		t.Errorf("the last record is of type %d", last)
	}
}

// F-21: who does not read does not hold up the end.
func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, setup{})
	s.open("?topic=a", "")
	for range 100 {
		if _, err := s.hub.Publish(t.Context(), []feed.Draft{{Topic: "a", Data: fmt.Appendf(nil, "%q", strings.Repeat("x", 10<<10))}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the client is stuck", func() bool { return s.feed.Stats().Queued > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if err := s.feed.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > limit/2 {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
	if got := s.feed.Stats(); got.Streams != 0 {
		t.Errorf("%+v", got)
	}
	if err := s.feed.Shutdown(t.Context()); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// The hub ends before the server: streams end all the same.
func TestAHubThatStopsEndsStreams(t *testing.T) {
	t.Parallel()
	for _, standard := range []bool{false, true} {
		store := feedtest.NewMemory()
		hub, err := feed.NewHub(t.Context(), store, nil, nil) // without frames: they are made
		if err != nil {
			t.Fatal(err)
		}
		s := newSite(t, setup{other: hub, feed: feedserver.Options{Standard: standard}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- hub.Run(ctx) }()
		st := s.open("?topic=a", "")
		if _, err := hub.Publish(t.Context(), []feed.Draft{{Topic: "a", Data: []byte("1")}}); err != nil {
			t.Fatal(err)
		}
		same(t, []int64{1}, st.ids(1))
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for err = nil; err == nil; {
			_, err = st.events.Next()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v", err)
		}
		if res, _ := s.call(http.MethodGet, "/v1/events", nil, ""); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("afterwards: %s", res.Status)
		}
	}
}

// slowStore reads behind an id only when it is let.
type slowStore struct {
	feed.Store
	let    chan struct{}
	behind int64
	asked  atomic.Int64
}

func (s *slowStore) Read(ctx context.Context, q feed.Query) (feed.Page, error) {
	if q.After < s.behind && q.Limit > 1 {
		s.asked.Add(1)
		select {
		case <-s.let:
		case <-ctx.Done():
			return feed.Page{}, ctx.Err()
		}
	}
	return s.Store.Read(ctx, q)
}

// F-19: replays are limited, and a store that hangs holds up nobody else.
func TestASlowStoreDoesNotStopLiveDelivery(t *testing.T) {
	t.Parallel()
	byEachWay(t, func() setup {
		memory := feedtest.NewMemory()
		if _, err := memory.Append(t.Context(), manyDrafts(t, 100)); err != nil {
			t.Fatal(err)
		}
		store := &slowStore{Store: memory, let: make(chan struct{}), behind: 50}
		return setup{store: store, hub: feed.Options{Ring: 10, Lag: 5, Replays: 2}, feed: feedserver.Options{Replays: 2}}
	}, func(t *testing.T, s *site) {
		live := s.open("?topic=live", "")
		var behind []*stream
		for range 6 {
			behind = append(behind, s.open("?topic=a", s.at(10)))
		}
		eventually(t, "the replays wait", func() bool { return s.feed.Stats().Replaying == 6 })
		for range 3 {
			r := s.publish("live", 1)
			same(t, []int64{r[0].ID}, live.ids(1))
		}
		behind[0].cancel() // one that is under way, and one that waits for its turn
		behind[5].cancel()
		eventually(t, "who has gone is freed", func() bool { return s.feed.Stats().Streams == 5 && s.hub.Stats().Subscribers == 5 })
		store, _ := s.set.store.(*slowStore)
		close(store.let)
		for _, st := range behind[1:5] {
			same(t, upTo(11, 100), st.ids(90))
		}
		eventually(t, "nobody replays", func() bool { return s.feed.Stats().Replaying == 0 })
	})
}

func manyDrafts(t testing.TB, n int) []feed.Draft {
	t.Helper()
	drafts := make([]feed.Draft, n)
	for i := range drafts {
		drafts[i] = feed.Draft{Topic: "a", Data: fmt.Appendf(nil, `{"n":%d}`, i)}
	}
	clean, err := feed.Clean(drafts)
	if err != nil {
		t.Fatal(err)
	}
	return clean
}

// A store that fails is asked again; the stream stays.
func TestAStoreThatFailsIsAskedAgain(t *testing.T) {
	t.Parallel()
	byEachWay(t, func() setup {
		return setup{hub: feed.Options{Ring: 10, Lag: 5}, feed: feedserver.Options{Heartbeat: 2 * limit}}
	}, func(t *testing.T, s *site) {
		s.publish("a", 100)
		eventually(t, "the hub is there", func() bool { return s.hub.Stats().Head.ID == 100 })
		s.store.Fail(errors.New("the disk is gone"))
		st := s.open("?topic=a", s.at(0))
		time.AfterFunc(50*time.Millisecond, func() { s.store.Fail(nil) })
		same(t, upTo(1, 100), st.ids(100))
	})
}

// F-19.
func TestAReaderFarBehindGetsAllInOneConnection(t *testing.T) {
	t.Parallel()
	n := 100_000
	if testing.Short() || raceEnabled {
		n = 5_000
	}
	memory := feedtest.NewMemory()
	for range n / 1000 {
		if _, err := memory.Append(t.Context(), manyDrafts(t, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	byEachWay(t, func() setup { return setup{store: memory} }, func(t *testing.T, s *site) {
		st := s.open("?topic=a", s.at(0))
		for want := int64(1); want <= int64(n); want++ {
			e := st.next()
			if e.Data == nil {
				want--
				continue
			}
			if p, err := feed.ParsePosition(e.ID); err != nil || p.ID != want {
				t.Fatalf("%s, want %d", e.ID, want)
			}
		}
	})
}
