package app

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/fleet"
)

// served is a process that serves sessions, and how to reach it.
type served struct {
	t     *testing.T
	dir   string
	url   string
	token string
	ended chan error
	stop  context.CancelFunc
}

func serve(t *testing.T, a *Agents, dir, session string) *served {
	t.Helper()
	return serveAll(t, a, ServeOptions{Data: dir, Session: session})
}

// serveWith serves sandboxes too.
func serveWith(t *testing.T, a *Agents, dir string, f *fleet.Fleet) *served {
	t.Helper()
	return serveAll(t, a, ServeOptions{Data: dir, Sandboxes: f})
}

func serveAll(t *testing.T, a *Agents, o ServeOptions) *served {
	t.Helper()
	dir := o.Data
	ctx, stop := context.WithCancel(t.Context())
	s := &served{t: t, dir: dir, ended: make(chan error, 1), stop: stop}
	ready := make(chan string, 1)
	go func() {
		o.Ready = func(url string) error { ready <- url; return nil }
		s.ended <- a.Serve(ctx, o)
	}()
	select {
	case s.url = <-ready:
	case err := <-s.ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := <-s.ended; err != nil {
			t.Error(err)
		}
	})
	token, err := os.ReadFile(filepath.Join(dir, TokenName))
	if err != nil {
		t.Fatal(err)
	}
	s.token = strings.TrimSpace(string(token))
	return s
}

// ask makes a request and returns its status and body.
func (s *served) ask(method, path, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := apiClient.Do(r)
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

// Who has no token gets nothing, a web page neither; wrong requests are told
// what is wrong with them.
//
// N-19.
func TestAPIErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	s := serve(t, a, dir, "")
	if _, err := a.Start(t.Context(), AgentSpec{ID: "a", Engine: agenttest.New(agenttest.Abort(), agenttest.Abort()).New}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		method, path, body string
		status             int
		detail             string
	}{
		{"GET", "/v1/sessions/nobody", "", http.StatusNotFound, `find session \"nobody\": there is none`},
		{"POST", "/v1/sessions/nobody/prompt", `{"text":"x"}`, http.StatusNotFound, "there is none"},
		{"POST", "/v1/sessions/a/prompt", `{"text":" "}`, http.StatusBadRequest, "the text is empty"},
		{"POST", "/v1/sessions/a/prompt", `{"Text":"x"}`, http.StatusBadRequest, `\"Text\" is no field; there are text, from, wait`},
		{"POST", "/v1/sessions/a/prompt", `{"text":7}`, http.StatusBadRequest, `\"text\" is a number; give a string`},
		{"GET", "/v1/sessions/" + strings.Repeat("x", 5000), "", http.StatusNotFound, `find session \"` + strings.Repeat("x", 80) + `\": there is none`},
		{"POST", "/v1/sessions/a/prompt", `{"text":"x","wait":true}`, http.StatusUnprocessableEntity, "aborted"},
		{"POST", "/v1/sessions/a/answer", `{"question":"q","option":"o"}`, http.StatusNotFound, "answer question"},
		{"POST", "/v1/sessions", `{"id":"a b","agent":["x"],"dir":"/"}`, http.StatusBadRequest, `"check session name \"a b\": it is not 1 to 128 letters`},
		{"POST", "/v1/sessions", `{"id":"b","agent":["x"],"dir":"here"}`, http.StatusBadRequest, "absolute"},
		{"POST", "/v1/sessions", `{"id":"b","dir":"/"}`, http.StatusBadRequest, "neither an agent nor a model"},
		{"POST", "/v1/sessions", `{"id":"b","dir":"/","agent":["x"],"model":{"url":"http://x"}}`, http.StatusBadRequest, "agent and model exclude each other"},
		{"POST", "/v1/sessions", `{"id":"b","dir":"/","agent":["x"],"kind":"claude"}`, http.StatusBadRequest, "kind goes with passthrough"},
		{"POST", "/v1/sessions", `{"id":"b","profile":"p","dir":"/"}`, http.StatusBadRequest, `profile \"p\"`},
		{"POST", "/v1/sessions", `{"id":"a","agent":["x"],"dir":"/"}`, http.StatusConflict, "runs already"},
		{"POST", "/v1/sessions", `{"id":"c","agent":["x"],"dir":"/","watches":[{"name":"w","uri":"memo://x"}]}`, http.StatusUnprocessableEntity, "watch w"},
		{"GET", "/v1/sessions/a/transcript?limit=0", "", http.StatusBadRequest, "limit="},
		{"GET", "/v1/sessions/a/transcript?last=yes", "", http.StatusBadRequest, `last=\"yes\": use true or false`},
		{"GET", "/v1/sessions/a/transcript?form=1", "", http.StatusBadRequest, `there is no parameter \"form\"; there are after, limit, last`},
		{"GET", "/v1/sessions/a/transcript?limit=1&limit=2", "", http.StatusBadRequest, "limit is there 2 times"},
		{"GET", "/v1/sessions/a/transcript?limit=%zz", "", http.StatusBadRequest, "not well formed"},
		{"GET", "/v1/sessions?all=true", "", http.StatusBadRequest, `there is no parameter \"all\"; there are none here`},
		{"POST", "/v1/sessions/a/cancel?force=1", "", http.StatusBadRequest, `there is no parameter \"force\"`},
		{"GET", "/v1/nothing", "", http.StatusNotFound, ""},
		{"GET", "/mcp", "", http.StatusNotFound, ""},
	} {
		if status, body := s.ask(tc.method, tc.path, tc.body); status != tc.status || !strings.Contains(body, tc.detail) {
			t.Errorf("%s %s %s: %d %s, want %d and %q", tc.method, tc.path, tc.body, status, body, tc.status, tc.detail)
		}
	}
	s.token = "wrong-token-wrong-token"
	if status, _ := s.ask("GET", "/v1/sessions", ""); status != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d", status)
	}
}

// A profile may leave its directory out; a command may not, since its caller can be
// anywhere.
func TestStartRequestWithoutADirectory(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.Profiles = map[string]config.Profile{"p": {Profile: agent.Profile{Name: "p", Command: []string{"x"}}}}
	s := &sessionAPI{agents: &Agents{config: c}}
	for _, tc := range []struct {
		req  StartRequest
		want string
	}{
		{StartRequest{ID: "a", Profile: "p"}, here},
		{StartRequest{ID: "a", Profile: "p", Dir: "/elsewhere"}, "/elsewhere"},
		{StartRequest{ID: "a", Agent: []string{"x"}}, ""},
	} {
		spec, err := s.spec(&tc.req)
		switch {
		case (err == nil) != (tc.want != ""):
			t.Errorf("%+v: %v", tc.req, err)
		case err == nil && spec.Profile.Dir != tc.want:
			t.Errorf("%+v starts in %q, want %q", tc.req, spec.Profile.Dir, tc.want)
		}
	}
}

// A session from its prompt to its end.
//
// N-19.
func TestAPI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	s := serve(t, a, dir, "")
	one, err := a.Start(t.Context(), AgentSpec{ID: "a", Engine: agenttest.New(agenttest.Say("hello")).New})
	if err != nil {
		t.Fatal(err)
	}
	status, body := s.ask("POST", "/v1/sessions/a/prompt", `{"text":"hi","from":"me","wait":true}`)
	var result PromptResult
	if err := json.Unmarshal([]byte(body), &result); err != nil || status != http.StatusOK || result.Text != "hello" || result.Stop != agent.StopEndTurn {
		t.Errorf("%d %s", status, body)
	}
	if _, body := s.ask("GET", "/v1/sessions", ""); !strings.Contains(body, `"id":"a"`) || !strings.Contains(body, `"running":true`) {
		t.Errorf("list: %s", body)
	}
	_, all := s.ask("GET", "/v1/sessions/a/transcript", "")
	_, last := s.ask("GET", "/v1/sessions/a/transcript?last=true&limit=1", "")
	if !strings.HasSuffix(all, last) || strings.Count(last, "\n") != 1 || !strings.Contains(all, `"from":"me"`) {
		t.Errorf("transcript %q, of which the last %q", all, last)
	}
	if err := one.Session.WaitIdle(t.Context()); err != nil { // who waits is answered before the run is over
		t.Fatal(err)
	}
	for _, step := range []struct{ method, path, want string }{
		{"POST", "/v1/sessions/a/cancel", `{"cancelled":false}`},
		{"POST", "/v1/sessions/a/reset", `{"reset":true}`},
		{"POST", "/v1/sessions/a/stop", `{"stopped":true}`},
		{"POST", "/v1/sessions/a/stop", "does not run here"},
		{"GET", "/v1/sessions/a", `"state":"stopped"`},
		{"DELETE", "/v1/sessions/a", `{"removed":true}`},
		{"GET", "/v1/sessions/a", "there is none"},
	} {
		if _, body := s.ask(step.method, step.path, ""); !strings.Contains(body, step.want) {
			t.Errorf("%s %s: %s, want %s", step.method, step.path, body, step.want)
		}
	}
	if agents, err := a.Inbox.Agents(t.Context()); err != nil || len(agents) != 0 {
		t.Errorf("inboxes %v, %v", agents, err)
	}
}

// Who waits for a turn when the process ends is told so, in time.
func TestAPIEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	s := serve(t, a, dir, "")
	began := make(chan struct{})
	fake := agenttest.New(func(turn *agenttest.Turn) (agent.Outcome, error) {
		close(began)
		turn.Wait(time.Hour)
		return agenttest.Aborted()
	})
	if _, err := a.Start(t.Context(), AgentSpec{ID: "a", Engine: fake.New}); err != nil {
		t.Fatal(err)
	}
	answered := make(chan int, 1)
	go func() {
		status, _ := s.ask("POST", "/v1/sessions/a/prompt", `{"text":"hi","wait":true}`)
		answered <- status
	}()
	<-began
	s.stop()
	if status := <-answered; status != http.StatusConflict {
		t.Errorf("status %d", status)
	}
}

// The data directory says who serves what, and one process serves one thing; the
// file of a process that was killed misleads nobody.
func TestFindServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := testAgents(t, dir)
	if url := FindServer(t.Context(), dir, ""); url != "" {
		t.Errorf("found %s", url)
	}
	if err := writePlace(filepath.Join(dir, daemonFile), "http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	if url := FindServer(t.Context(), dir, ""); url != "" {
		t.Errorf("found %s", url)
	}
	daemon, run := serve(t, a, dir, ""), serve(t, a, dir, "mine")
	for id, want := range map[string]string{"": daemon.url, "other": daemon.url, "mine": run.url, "../mine": daemon.url} {
		if got := FindServer(t.Context(), dir, id); got != want {
			t.Errorf("session %q: %s, want %s", id, got, want)
		}
	}
	if got := FindServers(t.Context(), dir); len(got) != 2 {
		t.Errorf("servers %v", got)
	}
	var other *RunningDaemonError
	if err := a.Serve(t.Context(), ServeOptions{Data: dir}); !errors.As(err, &other) || other.URL != daemon.url {
		t.Errorf("got %v", err)
	}
	var running *RunningError
	if err := a.Serve(t.Context(), ServeOptions{Data: dir, Session: "mine"}); !errors.As(err, &running) || running.ID != "mine" || !running.Elsewhere {
		t.Errorf("got %v", err)
	}
	for _, path := range []string{"/v1/sessions", "/v1/sessions/mine/stop"} {
		if status, _ := run.ask("POST", path, `{"id":"x","agent":["x"],"dir":"/"}`); status == http.StatusOK {
			t.Errorf("%s: a process of one session took it", path)
		}
	}
	info, err := os.Stat(filepath.Join(dir, TokenName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token file: %v %v", info.Mode(), err)
	}
}

func TestOfflineAPI(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Home = filepath.Join(t.TempDir(), "none")
	if _, _, err := OfflineAPI(t.Context(), c, ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(c.Home); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a look has made the directory")
	}
}

// A process that listens at all addresses is found by the loopback one, whose name
// its guard takes.
func TestTheWayInIsLocal(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"http://[::]:7717": "http://127.0.0.1:7717", "http://0.0.0.0:1": "http://127.0.0.1:1", "https://10.0.0.5:2": "https://10.0.0.5:2", "http://127.0.0.1:3": "http://127.0.0.1:3",
	} {
		if got := local(address); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}
