package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
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
	s := testserver.Redis(t)
	feedtest.RunBus(t, func(t *testing.T) (feed.Bus, feed.Bus) {
		t.Helper()
		url := "redis://" + s.Addr + "?prefix=" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "."))
		return open(t, url, nil), open(t, url, nil)
	})
}

// F-26, F-27: a server that dies and comes back costs nobody anything but time.
func TestServerDies(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	o := &Options{Retry: supervise.Options{Most: 200 * time.Millisecond}}
	speaker, listener := open(t, "redis://"+s.Addr, o), open(t, "redis://"+s.Addr, o)
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
	s := testserver.Redis(t)
	store := feedtest.NewMemory()
	o := &Options{Retry: supervise.Options{Most: 200 * time.Millisecond}}
	hubs := make([]*feed.Hub, 2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, len(hubs))
	for i := range hubs {
		hub, err := feed.NewHub(ctx, store, open(t, "redis://"+s.Addr, o), nil)
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
	s := testserver.Redis(t)
	o := &Options{Timeout: 100 * time.Millisecond, Keepalive: 100 * time.Millisecond, Retry: supervise.Options{Most: 200 * time.Millisecond}}
	b := open(t, "redis://"+s.Addr, o)
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
	s := testserver.Redis(t)
	fresh, connected := open(t, "redis://"+s.Addr, nil), open(t, "redis://"+s.Addr, nil)
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
	s := testserver.Redis(t)
	b := open(t, "redis://"+s.Addr, &Options{Keepalive: 100 * time.Millisecond})
	rings := listen(t, b)
	time.Sleep(500 * time.Millisecond) // a real server, in real time
	if h := b.Health(); h.Err != "" || len(rings) != 0 {
		t.Errorf("health %+v, %d rings of a server that answers", h, len(rings))
	}
	s.Hang(t)
	sick(t, b, true)
}

func TestPrefixesAndDatabases(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	one := listen(t, open(t, "redis://"+s.Addr+"/3", nil))
	two := open(t, "redis://"+s.Addr+"/3", nil)
	for _, other := range []*Bus{
		open(t, "redis://"+s.Addr, nil), open(t, "redis://"+s.Addr+"/3?prefix=x", nil), open(t, "redis://"+s.Addr+"/3", &Options{Prefix: "x"}),
	} {
		heard := listen(t, other)
		ring(t, other, 1)
		await(t, heard, "its own")
		ring(t, two, 1)
		await(t, one, "ours")
		if len(one) != 0 || len(heard) != 0 {
			t.Errorf("%s and %s hear each other", other.channel, two.channel)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	cert := testserver.NewCertificate(t)
	s := testserver.RedisTLS(t, cert)
	b := open(t, "rediss://"+s.Addr, &Options{TLS: &tls.Config{RootCAs: cert.Pool, MinVersion: tls.VersionTLS12}})
	rings := listen(t, b)
	ring(t, b, 1)
	await(t, rings, "over TLS")
	stranger := open(t, "rediss://"+s.Addr, &Options{TLS: &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}})
	var unknown *tls.CertificateVerificationError
	if err := stranger.Ring(t.Context(), feed.Position{Epoch: "e"}); !errors.As(err, &unknown) {
		t.Errorf("a certificate of nobody: %v", err)
	}
}

func TestPassword(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, "--requirepass", "s3cret")
	b := open(t, "redis://:s3cret@"+s.Addr, nil)
	rings := listen(t, b)
	ring(t, b, 1)
	await(t, rings, "with a password")
	for _, url := range []string{"redis://:wr0ng@", "redis://wr0ng:wr0ng@"} {
		b := open(t, url+s.Addr, nil)
		err := b.Ring(t.Context(), feed.Position{Epoch: "e"})
		if err == nil || strings.Contains(err.Error(), "wr0ng") || !strings.Contains(err.Error(), s.Addr) {
			t.Errorf("error %v", err)
		}
	}
}

// F-26: the frame.
func TestFrame(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr})
	defer func() { _ = c.Close() }()
	heard := c.Subscribe(t.Context(), "ossicle:2:feed")
	defer func() { _ = heard.Close() }()
	if _, err := heard.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	ring(t, open(t, "redis://"+s.Addr+"/2", nil), 1<<60)
	m, err := heard.ReceiveMessage(t.Context())
	if err != nil || m.Payload != `{"epoch":"e","head":1152921504606846976}` {
		t.Errorf("%v, %v", m, err)
	}
}

// F-10: nothing goes over the wire while nothing happens.
func TestIdle(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	b := open(t, "redis://"+s.Addr, nil)
	rings := listen(t, b)
	ring(t, b, 1)
	await(t, rings, "it works")
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr})
	defer func() { _ = c.Close() }()
	commands := func() (n int) {
		t.Helper()
		text, err := c.Info(t.Context(), "stats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(text, "total_commands_processed:")
		for _, digit := range rest[:strings.Index(rest, "\r")] {
			n = 10*n + int(digit-'0')
		}
		return n
	}
	before := commands()
	time.Sleep(500 * time.Millisecond) // a real server, in real time
	if more := commands() - before; more != 1 {
		t.Errorf("%d commands, of which one is ours", more)
	}
}

// A publisher that had nothing to say while the server was restarted does not
// notice.
func TestRingAfterRestart(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	b := open(t, "redis://"+s.Addr, nil)
	ring(t, b, 1)
	s.Kill(t)
	s.Start(t)
	ring(t, b, 2)
}

func TestClosed(t *testing.T) {
	t.Parallel()
	b, err := Open("redis://127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	if err := b.Ring(t.Context(), feed.Position{Epoch: "e"}); !errors.Is(err, supervise.ErrClosed) {
		t.Errorf("error %v", err)
	}
}
