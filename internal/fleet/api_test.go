package fleet_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/fleet/fleettest"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/worker"
)

// maxBody bounds requests to the API of a test, in bytes.
const maxBody = 1 << 20

// nothing is what the server of a test has of MCP.
type nothing struct{}

func (nothing) Handler() http.Handler          { return http.NotFoundHandler() }
func (nothing) Shutdown(context.Context) error { return nil }

// served is the API of a fleet behind a token.
type served struct {
	t     *testing.T
	url   string
	token string
}

func serve(t *testing.T, f *fleet.Fleet, dir string) *served {
	t.Helper()
	path := filepath.Join(dir, "token")
	tokens, err := httpserver.TokenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	api := fleet.NewAPI(f, &httpserver.API{MaxBody: maxBody})
	server, err := httpserver.New(nothing{}, &httpserver.Options{Addr: "127.0.0.1:0", Auth: tokens, Routes: api.Routes()})
	if err == nil {
		err = server.Listen(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		api.End()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &served{t: t, url: strings.TrimSuffix(server.URL(), httpserver.MCPPath), token: strings.TrimSpace(string(text))}
}

func (s *served) ask(method, path, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// What the API answers to requests that are wrong, or about sandboxes that cannot
// be had.
func TestSandboxAPIErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := mustOpen(t, dir, func(c *config.Config) { c.Gateway.Sandboxes = 2 })
	s := serve(t, g.Fleet, dir)
	fleettest.Start(t, g.Fleet, "one", "slow")
	over := fleettest.Start(t, g.Fleet, "over", "slow")
	if _, err := over.Release(t.Context(), worker.ReasonExplicit); err != nil {
		t.Fatal(err)
	}
	// It reported an artifact that has been removed since.
	const swept = "art_aaaaaaaaaaaaaaaaaaaaaaaaab"
	rec, err := g.store.Load(t.Context(), "over")
	if err != nil {
		t.Fatal(err)
	}
	rec.Outputs = []worker.Output{{URI: "store://" + swept, Name: "report", Size: 1}}
	if err := g.store.Save(t.Context(), rec, rec.Epoch); err != nil {
		t.Fatal(err)
	}
	g.boxes.Fails.Store(1)
	if status, body := s.ask("POST", "/v1/sandboxes", `{"id":"broken","profile":"slow"}`); status != http.StatusUnprocessableEntity || !strings.Contains(body, "no more of them") {
		t.Errorf("a driver that fails: %d %s", status, body)
	}
	if status, body := s.ask("GET", "/v1/sandboxes/broken", ""); status != http.StatusOK || !strings.Contains(body, `"state":"failed"`) || !strings.Contains(body, "no more of them") {
		t.Errorf("its record: %d %s", status, body)
	}
	fleettest.Start(t, g.Fleet, "two", "slow")
	for _, tc := range []struct {
		method, path, body string
		status             int
		detail             string
	}{
		{"POST", "", `{"id":"more"}`, http.StatusTooManyRequests, "as many sandboxes as there may be: 2"},
		{"POST", "", `{"ID":"x"}`, http.StatusBadRequest, `\"ID\" is no field; there are id, profile, wait`},
		{"POST", "", strings.Repeat(" ", maxBody+1), http.StatusRequestEntityTooLarge, "too large"},
		{"POST", "", `{"id":"../x"}`, http.StatusBadRequest, "use up to 63"},
		{"POST", "", `{"id":"x","profile":"heavy"}`, http.StatusBadRequest, "there are light, quick, slow"},
		{"GET", "/nobody", "", http.StatusNotFound, `find sandbox \"nobody\": there is none`},
		{"POST", "/nobody/exec", `{"command":"x"}`, http.StatusNotFound, `find sandbox \"nobody\": there is none`},
		{"POST", "/over/exec", `{"command":"x"}`, http.StatusConflict, "is over: released (explicit)"},
		{"POST", "/over/release", ``, http.StatusConflict, "is over"},
		{"POST", "/over/kill", ``, http.StatusConflict, "is over"},
		{"POST", "/one/exec", `{}`, http.StatusBadRequest, "give command or args"},
		{"POST", "/one/exec", `{"command":"x","args":["x"]}`, http.StatusBadRequest, "and not both"},
		{"POST", "/one/exec", `{"command":"x","timeout_ms":600001}`, http.StatusBadRequest, "timeout_ms"},
		{"POST", "/one/exec", `{"command":"x","detach":true,"timeout_ms":1}`, http.StatusBadRequest, "detached"},
		{"POST", "/one/exec", `{"args":["a\u0000b"]}`, http.StatusBadRequest, "NUL"},
		{"POST", "/one/exec", `{"command":"x","stdin":"` + strings.Repeat("x", fleet.MaxStdin+1) + `"}`, http.StatusRequestEntityTooLarge, "stdin has 2097153 bytes, and 2097152 are the most"},
		{"POST", "/nobody/exec", `{"command":"x","stdin":"` + strings.Repeat("x", fleet.MaxStdin) + `"}`, http.StatusNotFound, "there is none"},
		{"POST", "/one/release", `{"reason":"tired"}`, http.StatusBadRequest, "use explicit"},
		{"GET", "?al=true", "", http.StatusBadRequest, `there is no parameter \"al\"; there are all`},
		{"GET", "?all=yes", "", http.StatusBadRequest, `all=\"yes\": use true or false`},
		{"GET", "/one?audit=true", "", http.StatusBadRequest, `there is no parameter \"audit\"`},
		{"GET", "/one/tail", "", http.StatusBadRequest, "name a job"},
		{"GET", "/one/tail?job=j&offset=-1", "", http.StatusBadRequest, "use numbers"},
		{"GET", "/one/tail?job=j&wait_ms=99999", "", http.StatusBadRequest, "use numbers"},
		{"GET", "/one/tail?job=j&stream=both", "", http.StatusBadRequest, "use stdout or stderr"},
		{"GET", "/one/artifacts/art_aaaaaaaaaaaaaaaaaaaaaaaaaa", "", http.StatusNotFound, "has reported no artifact"},
		{"GET", "/over/artifacts/" + swept, "", http.StatusGone, "is gone: artifacts are kept for 30 days, and as long as all have at most 10737418240 bytes"},
		{"GET", "/one/artifacts/..%2f..%2ftoken", "", http.StatusNotFound, "has reported no artifact"},
	} {
		if status, body := s.ask(tc.method, "/v1/sandboxes"+tc.path, tc.body); status != tc.status || !strings.Contains(body, tc.detail) {
			t.Errorf("%s %s %.200s: %d %s, want %d and %q", tc.method, tc.path, tc.body, status, body, tc.status, tc.detail)
		}
	}
	s.token = "wrong-token-wrong-token"
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/one", "/v1/sandboxes/one/tail?job=j"} {
		if status, _ := s.ask("GET", path, ""); status != http.StatusUnauthorized {
			t.Errorf("%s without a good token: %d", path, status)
		}
	}
	// The way in of workers is on the same address, and knows worker tokens alone.
	if status, body := s.ask("GET", "/v1/worker", ""); status != http.StatusUnauthorized || strings.Contains(body, "problem") {
		t.Errorf("an upgrade without a worker's token: %d %s", status, body)
	}
}
