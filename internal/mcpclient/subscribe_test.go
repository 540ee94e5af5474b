package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/watch"
)

// ear is a watch.Subscriber whose news wait in channels.
type ear struct {
	updated, restored chan struct{}
	interrupted       chan error
	failed            chan error
}

func newEar() *ear {
	return &ear{make(chan struct{}, 1000), make(chan struct{}, 1000), make(chan error, 1000), make(chan error, 1)}
}

func (e *ear) Updated()                                      { offer(e.updated, struct{}{}) }
func (e *ear) Interrupted(err error, _ int, _ time.Duration) { offer(e.interrupted, err) }
func (e *ear) Restored()                                     { offer(e.restored, struct{}{}) }
func (e *ear) Failed(err error)                              { e.failed <- err }

// offer does not block, as no callback may: what nobody fetches is dropped.
func offer[T any](c chan T, v T) {
	select {
	case c <- v:
	default:
	}
}

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("no %s came", what)
		panic("unreachable")
	}
}

func mustSubscribe(t *testing.T, s *Server, uri string) (*ear, func()) {
	t.Helper()
	e := newEar()
	cancel, err := s.Subscribe(ctxOf(t), uri, e)
	if err != nil {
		t.Fatalf("subscribe to %s: %v", uri, err)
	}
	return e, cancel
}

func touch(t *testing.T, s *Server, uri string) {
	t.Helper()
	if _, err := s.CallTool(ctxOf(t), "touch", json.RawMessage(fmt.Sprintf(`{"uri":%q}`, uri))); err != nil {
		t.Errorf("touch %s: %v", uri, err)
	}
}

// M-13, W-047, W-053: from subscribing to reconnecting, over both transports.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	everywhere(t, "", func(t *testing.T, s *Server) {
		a, cancelA := mustSubscribe(t, s, "a:/1")
		b, _ := mustSubscribe(t, s, "b:/1")
		touch(t, s, "a:/1/below")
		await(t, "update of a", a.updated)
		touch(t, s, "b:/1")
		await(t, "update of b", b.updated)
		var refused *watch.RefusedError
		if _, err := s.Subscribe(ctxOf(t), "x:/refused", newEar()); !errors.As(err, &refused) || refused.Server != "srv" || refused.URI != "x:/refused" {
			t.Errorf("refused URI: %v", err)
		}
		if _, err := s.CallTool(ctxOf(t), "end-listens", nil); err != nil {
			t.Error(err)
		}
		var end *listen.EndError
		if err := await(t, "interruption", b.interrupted); !errors.As(err, &end) || end.Reason != listen.EndGraceful {
			t.Errorf("interrupted by %v", err)
		}
		await(t, "restoration", b.restored)
		touch(t, s, "b:/1")
		await(t, "update after the restoration", b.updated)
		cancelA()
		for len(a.updated) > 0 {
			<-a.updated
		}
		touch(t, s, "a:/1")
		touch(t, s, "b:/1")
		await(t, "update of b", b.updated)
		if len(a.updated) != 0 {
			t.Error("an update came after cancel")
		}
	})
}

// W-050, M-14: a child that is killed comes back, with its watches.
func TestSubscribeSurvivesKill(t *testing.T) {
	t.Parallel()
	s := stdioServer(t, "")
	a, _ := mustSubscribe(t, s, "a:/1")
	for range 3 {
		sess, err := s.session(ctxOf(t))
		if err != nil {
			t.Fatal(err)
		}
		sess.proc.Kill()
		_ = await(t, "interruption", a.interrupted)
		await(t, "restoration", a.restored)
		touch(t, s, "a:/1")
		await(t, "update", a.updated)
	}
}

// B-031: a server that acknowledges and hangs up is given up.
func TestSubscribeCollapses(t *testing.T) {
	t.Parallel()
	everywhere(t, "hangs-up", func(t *testing.T, s *Server) {
		e, _ := mustSubscribe(t, s, "a:/1")
		_ = await(t, "failure", e.failed)
		if n := len(e.interrupted); n != 5 {
			t.Errorf("%d interruptions", n)
		}
	})
}

// B-032: a child that dies after each start exhausts its budget, and its watch
// fails with its last words.
func TestSubscribeRestartBudget(t *testing.T) {
	t.Parallel()
	o := quick()
	o.RestartBudget, o.RestartWindow = 2, time.Hour
	s := newTestPool(t, o, stdioSpec(""))
	e, _ := mustSubscribe(t, s, "a:/1")
	for range 3 {
		if _, err := s.CallTool(ctxOf(t), "touch", json.RawMessage(`{"uri":"a:/1"}`)); err != nil {
			t.Fatal(err)
		}
		await(t, "update", e.updated) // resets the count of attempts
		_, _ = s.CallTool(ctxOf(t), "die", nil)
		select {
		case <-e.restored:
		case err := <-e.failed:
			var budget *RestartError
			if !errors.As(err, &budget) || budget.Starts != 3 || len(e.interrupted) > 3 {
				t.Errorf("failed with %v after %d interruptions", err, len(e.interrupted))
			}
			return
		case <-time.After(time.Minute):
			t.Fatal("neither restored nor failed")
		}
	}
	t.Error("started again and again")
}

// W-014, W-049: a legacy server is watched only when that was opted in; the
// error names the versions and the switch.
func TestSubscribeLegacy(t *testing.T) {
	t.Parallel()
	s := stdioServer(t, "legacy")
	var version *watch.VersionError
	_, err := s.Subscribe(ctxOf(t), "a:/1", newEar())
	if !errors.As(err, &version) || version.Version != "2025-11-25" {
		t.Errorf("error %v", err)
	}
	for _, word := range []string{"2025-11-25", "2026-07-28", "--legacy-watch"} {
		if err != nil && !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not name %s", err, word)
		}
	}
	if info, err := s.Info(ctxOf(t)); err != nil || info.Listens {
		t.Errorf("%+v, %v", info, err)
	}

	o := quick()
	o.LegacyWatch = true
	s = newTestPool(t, o, stdioSpec("legacy"))
	a, cancelA := mustSubscribe(t, s, "a:/1")
	b, _ := mustSubscribe(t, s, "b:/1")
	touch(t, s, "a:/1")
	touch(t, s, "b:/1")
	await(t, "update of a", a.updated)
	await(t, "update of b", b.updated)
	var refused *watch.RefusedError // C1: a rejection is noticed
	if _, err := s.Subscribe(ctxOf(t), "x:/refused", newEar()); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "no such resource") {
		t.Errorf("refused URI: %v", err)
	}
	cancelA()
	touch(t, s, "b:/1")
	await(t, "update of b", b.updated)
	sess, err := s.session(ctxOf(t))
	if err != nil {
		t.Fatal(err)
	}
	sess.proc.Kill()
	_ = await(t, "interruption", b.interrupted)
	await(t, "restoration", b.restored)
	touch(t, s, "b:/1")
	await(t, "update after the restoration", b.updated)
}

// M-12, W-049: a server that came back as an older one is found out.
func TestSubscribeServerReplaced(t *testing.T) {
	t.Parallel()
	modern, legacy := newFake(""), newFake("legacy")
	var replaced atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !replaced.Load():
			modern.ServeHTTP(w, r)
		case r.Header.Get("Mcp-Method") == "subscriptions/listen":
			http.Error(w, "no session", http.StatusBadRequest) // as legacy servers say
		default:
			legacy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	s := newTestPool(t, quick(), Spec{Name: "srv", URL: srv.URL})
	e, _ := mustSubscribe(t, s, "a:/1")
	replaced.Store(true)
	modern.endListens()
	var version *watch.VersionError
	if err := await(t, "failure", e.failed); !errors.As(err, &version) {
		t.Errorf("failed with %v", err)
	}
}

// B-017: a server of the new version without listen is used, and not asked again.
func TestSubscribeNoListen(t *testing.T) {
	t.Parallel()
	everywhere(t, "no-listen", func(t *testing.T, s *Server) {
		var none *listen.NoListenError
		if _, err := s.Subscribe(ctxOf(t), "a:/1", newEar()); !errors.As(err, &none) {
			t.Errorf("error %v", err)
		}
		first, _ := s.session(ctxOf(t))
		if got := readText(t, s, "a:/1"); got != "value of a:/1" {
			t.Errorf("read %q", got)
		}
		if again, _ := s.session(ctxOf(t)); again != first {
			t.Error("the connection was given up")
		}
	})
}

// M-14: 50 watches on one server that is down make one attempt at a time.
func TestSubscribeStorm(t *testing.T) {
	t.Parallel()
	f := newFake("")
	var mu sync.Mutex
	now, most, total, down := 0, 0, 0, false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		isDown := down
		if isDown {
			now, total = now+1, total+1
			most = max(most, now)
		}
		mu.Unlock()
		if !isDown {
			f.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
		mu.Lock()
		now--
		mu.Unlock()
	}))
	defer srv.Close()
	s := newTestPool(t, quick(), Spec{Name: "srv", URL: srv.URL})
	ears := make([]*ear, 50)
	var wg sync.WaitGroup
	for i := range ears {
		ears[i] = newEar()
		wg.Go(func() {
			if _, err := s.Subscribe(ctxOf(t), fmt.Sprintf("a:/%d", i), ears[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	mu.Lock()
	down = true
	mu.Unlock()
	srv.CloseClientConnections()
	for _, e := range ears {
		_ = await(t, "failure", e.failed)
	}
	mu.Lock()
	defer mu.Unlock()
	// Each attempt is a listen or a probe with its three repetitions.
	if most > 1 || total > 1+4*5 {
		t.Errorf("%d requests, %d at a time", total, most)
	}
}

// M-12: a moment's trouble does not make an old server of a new one, and one
// that stays in trouble is not connected to.
func TestTransientStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 500, 502, 503, 504} {
		f := newFake("")
		var mu sync.Mutex
		bad := 2
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			bad--
			refuse := bad >= 0
			mu.Unlock()
			if refuse {
				w.WriteHeader(status)
				return
			}
			f.ServeHTTP(w, r)
		}))
		s := newTestPool(t, quick(), Spec{Name: "srv", URL: srv.URL})
		if info, err := s.Info(ctxOf(t)); err != nil || info.ProtocolVersion != "2026-07-28" {
			t.Errorf("%d twice: %+v, %v", status, info, err)
		}
		mu.Lock()
		bad = 1000
		mu.Unlock()
		if status != 503 {
			srv.Close()
			continue
		}
		again := newTestPool(t, quick(), Spec{Name: "srv", URL: srv.URL})
		if _, err := again.Info(ctxOf(t)); err == nil || !strings.Contains(err.Error(), "503") || f.count("initialize") != 0 {
			t.Errorf("503 for good: %v, %d times initialize", err, f.count("initialize"))
		}
		srv.Close()
	}
}

// M-12: refused access is told as such, at once.
func TestRefusedAccess(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403} {
		requests := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="http://x"`)
			w.WriteHeader(status)
		}))
		for _, transport := range []Transport{HTTP, SSE} {
			requests = 0
			s := newTestPool(t, quick(), Spec{Name: "srv", URL: srv.URL, Transport: transport})
			_, err := s.Info(ctxOf(t))
			var auth *AuthError
			if !errors.As(err, &auth) || auth.Status != status || !strings.Contains(auth.Detail, "resource_metadata") || requests != 1 {
				t.Errorf("%s %d: %v after %d requests", transport, status, err, requests)
			}
		}
		srv.Close()
	}
}

// Headers go to the configured server and to no other.
func TestHeaders(t *testing.T) {
	t.Parallel()
	var other []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		other = append(other, r.Header.Get("X-Secret")+r.Header.Get("Authorization"))
		newFake("").ServeHTTP(w, r)
	}))
	defer elsewhere.Close()
	var here []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		here = append(here, r.Header.Get("X-Secret"))
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	s := newTestPool(t, quick(), Spec{Name: "srv", URL: srv.URL, Headers: map[string]string{"X-Secret": "s", "Authorization": "Bearer s"}})
	if _, err := s.Info(ctxOf(t)); err != nil {
		t.Fatal(err)
	}
	if len(here) == 0 || here[0] != "s" || len(other) == 0 || strings.Join(other, "") != "" {
		t.Errorf("here %q, elsewhere %q", here, other)
	}
}

// The context of one caller does not end the listen of all.
func TestSubscribeContext(t *testing.T) {
	t.Parallel()
	s := stdioServer(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	e := newEar()
	if _, err := s.Subscribe(ctx, "a:/1", e); err != nil {
		t.Fatal(err)
	}
	cancel()
	touch(t, s, "a:/1")
	await(t, "update", e.updated)
}
