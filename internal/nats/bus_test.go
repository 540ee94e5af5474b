package nats

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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

func open(t *testing.T, url string, o *Options) *Bus {
	t.Helper()
	b, err := Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
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

// F-26, F-27.
func TestServed(t *testing.T) {
	t.Parallel()
	feedtest.RunServedBus(t, func(t *testing.T) (feedtest.BusServer, func(*testing.T, feedtest.BusOptions) feedtest.ServedBus) {
		t.Helper()
		s := testserver.NATS(t)
		return s, func(t *testing.T, o feedtest.BusOptions) feedtest.ServedBus {
			t.Helper()
			return open(t, "nats://"+s.Addr, &Options{Timeout: o.Timeout, Keepalive: o.Keepalive, Retry: supervise.Options{Most: o.Pause}})
		}
	})
}

func TestPrefixes(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t)
	one, two := open(t, "nats://"+s.Addr, nil), open(t, "nats://"+s.Addr, nil)
	ours := feedtest.Hear(t, one)
	for _, other := range []*Bus{open(t, "nats://"+s.Addr+"?prefix=x.y", nil), open(t, "nats://"+s.Addr, &Options{Prefix: "x"})} {
		heard := feedtest.Hear(t, other)
		feedtest.Ring(t, other, 1)
		feedtest.Await(t, heard, "its own")
		feedtest.Ring(t, two, 1)
		feedtest.Await(t, ours, "ours")
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
	rings := feedtest.Hear(t, b)
	feedtest.Ring(t, b, 1)
	feedtest.Await(t, rings, "over TLS")
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
	rings := feedtest.Hear(t, b)
	feedtest.Ring(t, b, 1)
	feedtest.Await(t, rings, "with a password")
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
	rings := feedtest.Hear(t, b)
	feedtest.Ring(t, b, 1)
	feedtest.Await(t, rings, "by the second server")
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
	feedtest.Ring(t, open(t, "nats://"+s.Addr+"?prefix=x", nil), 1<<60)
	m, err := heard.NextMsg(20 * time.Second)
	if err != nil || string(m.Data) != `{"epoch":"e","head":1152921504606846976}` {
		t.Errorf("%+v, %v", m, err)
	}
}

// A flood of messages is dropped, not kept, and is heard all the same.
func TestFlood(t *testing.T) {
	t.Parallel()
	s := testserver.NATS(t)
	b := open(t, "nats://"+s.Addr, nil)
	lags := make(chan *natsgo.Conn, 1) // that of the listener, once something was dropped
	b.client.AsyncErrorCB = func(c *natsgo.Conn, _ *natsgo.Subscription, _ error) {
		select {
		case lags <- c:
		default:
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	hold, heard := make(chan struct{}), make(chan struct{}, 10_000)
	done := make(chan error, 1)
	go func() {
		done <- b.Listen(ctx, func() { heard <- struct{}{}; <-hold })
	}()
	feedtest.Await(t, heard, "greeting")
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
	// All of it has to be there before the listener goes on: then it is either kept or
	// dropped.
	select {
	case listener := <-lags:
		for deadline := time.Now().Add(20 * time.Second); listener.Stats().InMsgs < 20*pending; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d messages came", listener.Stats().InMsgs)
			}
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was dropped")
	}
	close(hold)
	feedtest.Await(t, heard, "the flood")
	feedtest.Ring(t, b, 1)
	feedtest.Await(t, heard, "after the flood")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := len(heard); n > 2*pending {
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
	rings := feedtest.Hear(t, b)
	feedtest.Ring(t, b, 1)
	feedtest.Await(t, rings, "it works")
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
	feedtest.Ring(t, b, 1)
	s.Kill(t)
	s.Start(t)
	feedtest.Ring(t, b, 2)
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
