package redis

import (
	"crypto/tls"
	"crypto/x509"
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
	s := testserver.Redis(t)
	feedtest.RunBus(t, func(t *testing.T) (feed.Bus, feed.Bus) {
		t.Helper()
		url := "redis://" + s.Addr + "?prefix=" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "."))
		return open(t, url, nil), open(t, url, nil)
	})
}

// F-26, F-27.
func TestServed(t *testing.T) {
	t.Parallel()
	feedtest.RunServedBus(t, func(t *testing.T) (feedtest.BusServer, func(*testing.T, feedtest.BusOptions) feedtest.ServedBus) {
		t.Helper()
		s := testserver.Redis(t)
		return s, func(t *testing.T, o feedtest.BusOptions) feedtest.ServedBus {
			t.Helper()
			return open(t, "redis://"+s.Addr, &Options{Timeout: o.Timeout, Keepalive: o.Keepalive, Retry: supervise.Options{Most: o.Pause}})
		}
	})
}

func TestPrefixesAndDatabases(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	one := feedtest.Hear(t, open(t, "redis://"+s.Addr+"/3", nil))
	two := open(t, "redis://"+s.Addr+"/3", nil)
	for _, other := range []*Bus{
		open(t, "redis://"+s.Addr, nil), open(t, "redis://"+s.Addr+"/3?prefix=x", nil), open(t, "redis://"+s.Addr+"/3", &Options{Prefix: "x"}),
	} {
		heard := feedtest.Hear(t, other)
		feedtest.Ring(t, other, 1)
		feedtest.Await(t, heard, "its own")
		feedtest.Ring(t, two, 1)
		feedtest.Await(t, one, "ours")
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
	rings := feedtest.Hear(t, b)
	feedtest.Ring(t, b, 1)
	feedtest.Await(t, rings, "over TLS")
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
	rings := feedtest.Hear(t, b)
	feedtest.Ring(t, b, 1)
	feedtest.Await(t, rings, "with a password")
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
	feedtest.Ring(t, open(t, "redis://"+s.Addr+"/2", nil), 1<<60)
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
	rings := feedtest.Hear(t, b)
	feedtest.Ring(t, b, 1)
	feedtest.Await(t, rings, "it works")
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
	feedtest.Ring(t, b, 1)
	s.Kill(t)
	s.Start(t)
	feedtest.Ring(t, b, 2)
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
