package nats

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
	"github.com/ossicle/ossicle/internal/supervise"
	"github.com/ossicle/ossicle/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for a server.
const patience = 20 * time.Second

func open(t *testing.T, url string, o *Options) *Bus {
	t.Helper()
	b, err := Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// listen returns where the rings of a bus arrive. It waits for the first.
func listen(t *testing.T, b *Bus) <-chan struct{} {
	t.Helper()
	rings := make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Listen(ctx, func() { rings <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	await(t, rings, "greeting")
	return rings
}

func await(t *testing.T, rings <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-rings:
	case <-time.After(patience):
		t.Fatalf("no ring: %s", what)
	}
}

// sick waits until a bus says that something is wrong, or that nothing is. A
// connection breaks without telling the test, so it looks again and again.
func sick(t *testing.T, b *Bus, want bool) feed.Health {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		h := b.Health()
		if (h.Err != "") == want && h.Since.IsZero() != want {
			return h
		}
		if time.Now().After(deadline) {
			t.Fatalf("health %+v, want an error: %v", h, want)
		}
	}
}

func ring(t *testing.T, b *Bus, id int64) {
	t.Helper()
	if err := b.Ring(t.Context(), feed.Position{Epoch: "e", ID: id}); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) { // F-26
	t.Parallel()
	s := testserver.NATS(t)
	feedtest.RunBus(t, func(t *testing.T) (feed.Bus, feed.Bus) {
		t.Helper()
		url := "nats://" + s.Addr + "?prefix=" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "."))
		return open(t, url, nil), open(t, url, nil)
	})
}

// F-26, F-27: a server that dies and comes back costs nobody anything but time.
func TestServerDies(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t)
	o := &Options{Retry: supervise.Options{Most: 200 * time.Millisecond}}
	speaker, listener := open(t, "nats://"+s.Addr, o), open(t, "nats://"+s.Addr, o)
	rings := listen(t, listener)
	for i := range 3 {
		ring(t, speaker, int64(i))
		await(t, rings, "it works")
		s.Kill(t)
		if h := sick(t, listener, true); !strings.Contains(h.Err, s.Addr) {
			t.Errorf("health %+v", h)
		}
		for range 3 {
			begun := time.Now()
			if err := speaker.Ring(t.Context(), feed.Position{Epoch: "e", ID: 9}); err == nil || time.Since(begun) > 2*DefaultTimeout {
				t.Errorf("rang a dead server: %v after %v", err, time.Since(begun))
			}
		}
		sick(t, speaker, true)
		s.Start(t)
		await(t, rings, "it may have been deaf")
		sick(t, listener, false)
		sick(t, speaker, false) // has delivered what it owed
		for len(rings) > 0 {
			<-rings
		}
	}
}

// F-26: what is published while the bus is down reaches the other replica when
// it is back.
func TestHubsBehindABrokenBus(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t)
	store := feedtest.NewMemory()
	o := &Options{Retry: supervise.Options{Most: 200 * time.Millisecond}}
	hubs := make([]*feed.Hub, 2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, len(hubs))
	for i := range hubs {
		hub, err := feed.NewHub(ctx, store, open(t, "nats://"+s.Addr, o), nil)
		if err != nil {
			t.Fatal(err)
		}
		hubs[i] = hub
		go func() { done <- hub.Run(ctx) }()
	}
	defer func() {
		cancel()
		for range hubs {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}()
	sub, err := hubs[1].Subscribe(feed.Subscribe{})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	next := func(want int64) {
		t.Helper()
		waiting, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		b, err := sub.Next(waiting)
		if err != nil || len(b.Items) != 1 || b.Items[0].ID != want {
			t.Fatalf("batch %+v, %v, want event %d", b, err, want)
		}
	}
	publish := func() {
		t.Helper()
		if _, err := hubs[0].Publish(ctx, []feed.Draft{{Topic: "a", Data: json.RawMessage("1")}}); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	next(1)
	s.Kill(t)
	publish()
	s.Start(t)
	next(2)
	publish()
	next(3)
}

// A server that hangs is found out, and holds no publisher up for long.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t)
	o := &Options{Timeout: 100 * time.Millisecond, Keepalive: 100 * time.Millisecond, Retry: supervise.Options{Most: 200 * time.Millisecond}}
	b := open(t, "nats://"+s.Addr, o)
	rings := listen(t, b)
	ring(t, b, 1)
	await(t, rings, "it works")
	s.Hang(t)
	begun := time.Now()
	if err := b.Ring(t.Context(), feed.Position{Epoch: "e", ID: 2}); err == nil || time.Since(begun) > time.Second {
		t.Errorf("rang a server that hangs: %v after %v", err, time.Since(begun))
	}
	sick(t, b, true)
	s.Resume(t)
	await(t, rings, "it hears again")
	sick(t, b, false)
}

// A server that hangs does not hold up the end.
func TestCloseWhileServerHangs(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t)
	fresh, connected := open(t, "nats://"+s.Addr, nil), open(t, "nats://"+s.Addr, nil)
	ring(t, connected, 1)
	s.Hang(t)
	for _, b := range []*Bus{fresh, connected} {
		if err := b.Ring(t.Context(), feed.Position{Epoch: "e", ID: 2}); !errors.Is(err, supervise.ErrSlow) {
			t.Errorf("error %v", err)
		}
		begun := time.Now()
		_ = b.Close()
		if d := time.Since(begun); d > time.Second {
			t.Errorf("the end took %v", d)
		}
	}
}

// A server that hangs is found out also by those who only listen.
func TestListenerAsks(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t)
	b := open(t, "nats://"+s.Addr, &Options{Keepalive: 100 * time.Millisecond})
	rings := listen(t, b)
	time.Sleep(500 * time.Millisecond) // a real server, in real time
	if h := b.Health(); h.Err != "" || len(rings) != 0 {
		t.Errorf("health %+v, %d rings of a server that answers", h, len(rings))
	}
	s.Hang(t)
	sick(t, b, true)
}

func TestPrefixes(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t)
	one, two := open(t, "nats://"+s.Addr, nil), open(t, "nats://"+s.Addr, nil)
	ours := listen(t, one)
	for _, other := range []*Bus{open(t, "nats://"+s.Addr+"?prefix=x.y", nil), open(t, "nats://"+s.Addr, &Options{Prefix: "x"})} {
		heard := listen(t, other)
		ring(t, other, 1)
		await(t, heard, "its own")
		ring(t, two, 1)
		await(t, ours, "ours")
		if len(ours) != 0 || len(heard) != 0 {
			t.Errorf("%s and %s hear each other", other.subject, two.subject)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert := testserver.NewCertificate(t)
	s := testserver.NATSTLS(t, cert)
	b := open(t, "tls://"+s.Addr, &Options{TLS: &tls.Config{RootCAs: cert.Pool, MinVersion: tls.VersionTLS12}})
	rings := listen(t, b)
	ring(t, b, 1)
	await(t, rings, "over TLS")
	stranger := open(t, "tls://"+s.Addr, &Options{TLS: &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}})
	var unknown *tls.CertificateVerificationError
	if err := stranger.Ring(t.Context(), feed.Position{Epoch: "e"}); !errors.As(err, &unknown) {
		t.Errorf("a certificate of nobody: %v", err)
	}
}

func TestPassword(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t, "--user", "u", "--pass", "s3cret")
	b := open(t, "nats://u:s3cret@"+s.Addr, nil)
	rings := listen(t, b)
	ring(t, b, 1)
	await(t, rings, "with a password")
	for _, url := range []string{"nats://u:wr0ng@", "nats://wr0ng@"} {
		b := open(t, url+s.Addr, nil)
		err := b.Ring(t.Context(), feed.Position{Epoch: "e"})
		if err == nil || strings.Contains(err.Error(), "wr0ng") || !strings.Contains(err.Error(), s.Addr) {
			t.Errorf("error %v", err)
		}
	}
}

// Of a cluster, one server is enough.
func TestCluster(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t)
	b := open(t, "nats://127.0.0.1:1,nats://"+s.Addr, nil)
	rings := listen(t, b)
	ring(t, b, 1)
	await(t, rings, "by the second server")
}

// F-26: the frame.
func TestFrame(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t)
	c, err := natsgo.Connect("nats://" + s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	heard, err := c.SubscribeSync("x.feed")
	if err == nil {
		err = c.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	ring(t, open(t, "nats://"+s.Addr+"?prefix=x", nil), 1<<60)
	m, err := heard.NextMsg(patience)
	if err != nil || string(m.Data) != `{"epoch":"e","head":1152921504606846976}` {
		t.Errorf("%+v, %v", m, err)
	}
}

// A flood of messages is dropped, not kept, and is heard all the same.
func TestFlood(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t)
	b := open(t, "nats://"+s.Addr, nil)
	ctx, cancel := context.WithCancel(t.Context())
	hold, heard := make(chan struct{}), make(chan struct{}, 10_000)
	done := make(chan error, 1)
	go func() {
		done <- b.Listen(ctx, func() { heard <- struct{}{}; <-hold })
	}()
	await(t, heard, "greeting")
	c, err := natsgo.Connect("nats://" + s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 20 * pending {
		if err := c.Publish("ossicle.feed", []byte("not even JSON")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	close(hold)
	await(t, heard, "the flood")
	ring(t, b, 1)
	await(t, heard, "after the flood")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := len(heard); n > 10*pending {
		t.Errorf("%d of %d messages were kept", n, 20*pending)
	}
	if h := b.Health(); h.Err != "" {
		t.Errorf("health %+v", h)
	}
}

// relay passes a connection on and keeps what it has passed.
type relay struct {
	net.Listener

	mu   sync.Mutex
	text []byte
}

func (r *relay) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = append(r.text, b...)
	return len(b), nil
}

// cut returns what was passed since the last call.
func (r *relay) cut() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := string(r.text)
	r.text = nil
	return text
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					_, _ = io.Copy(io.MultiWriter(r, pair[0]), pair[1])
					_ = pair[0].Close()
				})
			}
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return r
}

// F-10: nothing but keepalives goes over the wire while nothing happens.
func TestIdle(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t)
	r := newRelay(t, s.Addr)
	b := open(t, "nats://"+r.Addr().String(), nil)
	rings := listen(t, b)
	ring(t, b, 1)
	await(t, rings, "it works")
	if r.cut() == "" {
		t.Error("the relay is out of the way")
	}
	time.Sleep(500 * time.Millisecond) // a real server, in real time
	if text := strings.NewReplacer("PING\r\n", "", "PONG\r\n", "").Replace(r.cut()); text != "" {
		t.Errorf("%q", text)
	}
}

// A publisher that had nothing to say while the server was restarted does not
// notice.
func TestRingAfterRestart(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t)
	b := open(t, "nats://"+s.Addr, nil)
	ring(t, b, 1)
	s.Kill(t)
	s.Start(t)
	ring(t, b, 2)
}

func TestClosed(t *testing.T) {
	t.Parallel()
	b, err := Open("nats://127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	if err := b.Ring(t.Context(), feed.Position{Epoch: "e"}); !errors.Is(err, supervise.ErrClosed) {
		t.Errorf("error %v", err)
	}
}
