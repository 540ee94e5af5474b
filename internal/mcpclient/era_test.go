package mcpclient

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// M-12: the era is found out whatever the server does.
func TestServerEras(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		words, version string
		least          time.Duration
	}{
		{"legacy", "2025-11-25", 0},
		{"exits-on-probe", "2025-11-25", 0},
		{"legacy lists-legacy", "2025-11-25", 0},
		{"lists-legacy", "2025-11-25", 0},
		{"mute-probe", "2025-11-25", 100 * time.Millisecond},
		{"slow-probe", "2026-07-28", 400 * time.Millisecond},
		{"exits-on-probe slow-start", "2025-11-25", 0},
	} {
		t.Run(tt.words, func(t *testing.T) {
			t.Parallel()
			o := quick()
			if strings.Contains(tt.words, "mute") || strings.Contains(tt.words, "slow") {
				o.ProbeTimeout = 100 * time.Millisecond
			}
			s := newTestPool(t, o, stdioSpec(tt.words))
			start := time.Now()
			info, err := s.Info(ctxOf(t))
			took := time.Since(start)
			if err != nil || info.ProtocolVersion != tt.version || took < tt.least || took > hang {
				t.Errorf("%+v, %v after %v", info, err, took)
			}
			if got := readText(t, s, "a:/1"); got != "value of a:/1" { // W-048
				t.Errorf("read %q", got)
			}
		})
	}
	t.Run("over HTTP", func(t *testing.T) {
		t.Parallel()
		s, f, _ := httpServer(t, "legacy", quick())
		info, err := s.Info(ctxOf(t))
		if err != nil || info.ProtocolVersion != "2025-11-25" || f.count("initialize") != 1 {
			t.Errorf("%+v, %v", info, err)
		}
		if got := readText(t, s, "a:/1"); got != "value of a:/1" {
			t.Errorf("read %q", got)
		}
	})
	t.Run("an error of the modern era", func(t *testing.T) {
		t.Parallel()
		s, f, _ := httpServer(t, "refuses-modern", quick())
		if _, err := s.Info(ctxOf(t)); err == nil || f.count("initialize") != 0 {
			t.Errorf("%v, %d times initialize", err, f.count("initialize"))
		}
	})
}

// M-12: when the answers to initialize and to a probe that was given up come
// together, the server is modern.
func TestHandshakeAnsweredLate(t *testing.T) {
	t.Parallel()
	table := newTaps()
	h := newHandshake(time.Millisecond, true, table)
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	send := h.middleware(func(ctx context.Context, method string, _ mcp.Request) (mcp.Result, error) {
		tapOf(ctx).register(method)
		if method == methodDiscover {
			close(asked)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		<-asked
		table.observe(methodDiscover, []byte("{}"), nil) // in the order of the wire
		return &mcp.InitializeResult{}, nil
	})
	if _, err := send(ctx, methodDiscover, nil); !errors.Is(err, errProbeTimeout) {
		t.Errorf("probe: %v", err)
	}
	if _, err := send(ctx, methodInitialize, nil); !errors.Is(err, errSlow) {
		t.Errorf("initialize: %v", err)
	}
	cancel()
	h.wait()
}

// M-12: a silent server cannot hang a start, and leaves nothing behind.
func TestServerSilent(t *testing.T) {
	t.Parallel()
	o := quick()
	o.ConnectTimeout = 500 * time.Millisecond
	s := newTestPool(t, o, stdioSpec("silent"))
	start := time.Now()
	_, err := s.Info(ctxOf(t))
	var failed *ConnectError
	if !errors.As(err, &failed) || !errors.Is(err, errConnectTimeout) || time.Since(start) > hang {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// M-12: the era is remembered, and found out anew after a failure.
func TestServerRemembersEra(t *testing.T) {
	t.Parallel()
	f := newFake("legacy")
	srv := httptest.NewServer(f)
	defer srv.Close()
	s := newTestPool(t, quick(), Spec{Name: "srv", URL: srv.URL})
	for range 2 {
		sess, err := s.session(ctxOf(t))
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.cur = nil // as if the connection had ended by itself
		s.mu.Unlock()
		sess.close()
	}
	if n := f.count("server/discover"); n != 1 {
		t.Errorf("%d probes for two connections", n)
	}
	sess, err := s.session(ctxOf(t))
	if err != nil {
		t.Fatal(err)
	}
	s.discard(sess)
	if _, err := s.session(ctxOf(t)); err != nil || f.count("server/discover") != 2 {
		t.Errorf("%d probes, %v", f.count("server/discover"), err)
	}
}
