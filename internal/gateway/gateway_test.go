package gateway_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/worker"
)

const issuer = "https://gw.example"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newTokens(t *testing.T) (*gateway.Tokens, gateway.Key) {
	t.Helper()
	key, err := gateway.NewKey()
	must(t, err)
	tokens, err := gateway.NewTokens(issuer, key)
	must(t, err)
	return tokens, key
}

// IDN-2: the session is the token's sub; and nothing else is taken for a token.
func TestTokens(t *testing.T) {
	t.Parallel()
	tokens, key := newTokens(t)
	good, err := tokens.Issue("s1", time.Hour)
	must(t, err)
	if id, err := tokens.Authenticate(t.Context(), good); err != nil || id != "s1" {
		t.Fatalf("%q, %v", id, err)
	}
	now := time.Now()
	claims := func(change func(jwt.MapClaims)) jwt.MapClaims {
		c := jwt.MapClaims{"iss": issuer, "aud": "agentfy-worker-gateway", "sub": "s1", "jti": "j", "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix()}
		change(c)
		return c
	}
	sign := func(c jwt.MapClaims, header map[string]any) string {
		token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c)
		token.Header["typ"], token.Header["kid"] = "agentfy-worker+jwt", key.ID
		maps.Copy(token.Header, header)
		s, err := token.SignedString(key.Private)
		must(t, err)
		return s
	}
	raw := func(header, payload string) string {
		text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
		return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key.Private, []byte(text)))
	}
	header := fmt.Sprintf(`{"alg":"EdDSA","typ":"agentfy-worker+jwt","kid":%q}`, key.ID)
	payload := fmt.Sprintf(`{"iss":%q,"aud":"agentfy-worker-gateway","sub":"s1","jti":"j","iat":%d,"exp":%d}`, issuer, now.Unix(), now.Add(time.Hour).Unix())
	if _, err := tokens.Authenticate(t.Context(), raw(header, payload)); err != nil {
		t.Fatalf("the token that the others vary: %v", err)
	}
	mac := func(signed string) string { // the public key taken for a secret
		head := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(header, "EdDSA", "HS256", 1)))
		text := head + "." + strings.Split(signed, ".")[1]
		h := hmac.New(sha256.New, key.Private.Public().(ed25519.PublicKey))
		h.Write([]byte(text))
		return text + "." + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
	}
	_, other := newTokens(t)
	none := func(jwt.MapClaims) {}
	for name, bad := range map[string]string{
		"empty": "", "words": "not a token", "long": strings.Repeat("a", 5000) + ".b.c",
		"expired":       sign(claims(func(c jwt.MapClaims) { c["exp"] = now.Add(-time.Minute).Unix() }), nil),
		"no exp":        sign(claims(func(c jwt.MapClaims) { delete(c, "exp") }), nil),
		"future":        sign(claims(func(c jwt.MapClaims) { c["nbf"] = now.Add(time.Minute).Unix() }), nil),
		"audience":      sign(claims(func(c jwt.MapClaims) { c["aud"] = "ossicle" }), nil),
		"issuer":        sign(claims(func(c jwt.MapClaims) { c["iss"] = "https://other" }), nil),
		"no sub":        sign(claims(func(c jwt.MapClaims) { delete(c, "sub") }), nil),
		"no jti":        sign(claims(func(c jwt.MapClaims) { delete(c, "jti") }), nil),
		"no iat":        sign(claims(func(c jwt.MapClaims) { delete(c, "iat") }), nil),
		"type":          sign(claims(none), map[string]any{"typ": "JWT"}),
		"key":           sign(claims(none), map[string]any{"kid": other.ID}),
		"alg none":      strings.Join(strings.Split(raw(strings.Replace(header, "EdDSA", "none", 1), payload), ".")[:2], ".") + ".",
		"hmac":          mac(good),
		"two subs":      raw(header, strings.Replace(payload, `"sub":"s1"`, `"sub":"s2","sub":"s1"`, 1)),
		"two kids":      raw(strings.Replace(header, `"kid"`, `"kid":"x","kid"`, 1), payload),
		"bad signature": good[:len(good)-8] + "AAAAAAAA",
		"other payload": strings.Split(good, ".")[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(payload, "s1", "s2", 1))) + "." + strings.Split(good, ".")[2],
	} {
		id, err := tokens.Authenticate(t.Context(), bad)
		if !errors.Is(err, gateway.ErrToken) || id != "" {
			t.Errorf("%s: %q, %v", name, id, err)
		}
		if err != nil && len(bad) > 40 && strings.Contains(err.Error(), bad[20:40]) {
			t.Errorf("%s: the error shows the token: %v", name, err)
		}
	}
}

// Keys rotate: the newest signs, the older still verifies.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	old, oldKey := newTokens(t)
	token, err := old.Issue("s1", time.Hour)
	must(t, err)
	key, err := gateway.NewKey()
	must(t, err)
	both, err := gateway.NewTokens(issuer, key, oldKey)
	must(t, err)
	if _, err := both.Authenticate(t.Context(), token); err != nil {
		t.Error(err)
	}
	fresh, err := both.Issue("s1", time.Hour)
	must(t, err)
	if _, err := old.Authenticate(t.Context(), fresh); err == nil {
		t.Error("the old key verified what the new one signed")
	}
	if _, err := gateway.NewTokens(issuer, key, key); err == nil {
		t.Error("one key twice")
	}
}

func FuzzToken(f *testing.F) {
	key, err := gateway.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	tokens, err := gateway.NewTokens(issuer, key)
	if err != nil {
		f.Fatal(err)
	}
	good, err := tokens.Issue("s1", time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, token string) {
		if id, err := tokens.Authenticate(context.Background(), token); err == nil && token != good { //nolint:usetesting // a fuzz target has no test's time
			t.Errorf("%q passed for %q", token, id)
		}
	})
}

// site is a gateway in an HTTP server.
type site struct {
	host   *worker.Host
	gw     *gateway.Gateway
	tokens *gateway.Tokens
	dir    *gateway.Dir
	path   string
	server *httptest.Server
}

func newSite(t *testing.T, o *gateway.DirOptions) *site {
	t.Helper()
	s := &site{path: filepath.Join(t.TempDir(), "artifacts")}
	s.tokens, _ = newTokens(t)
	var err error
	s.dir, err = gateway.OpenDir(s.path, o)
	must(t, err)
	s.host = worker.NewHost(s.tokens, nil, &worker.HostOptions{Image: "api:1"})
	s.gw = gateway.New(s.host, s.tokens, s.dir, nil)
	mux := http.NewServeMux()
	s.gw.Mount(mux)
	s.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		s.host.Close()
		s.server.Close()
		_ = s.dir.Close()
	})
	return s
}

func (s *site) put(t *testing.T, session, token, sum string, body io.Reader) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.server.URL+"/v1/sessions/"+session+"/artifacts/"+sum, body)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(text)
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// The upload of artifacts: who may, what it must be, and that nothing half or
// false is kept (AMB-39).
func TestArtifacts(t *testing.T) {
	t.Parallel()
	s := newSite(t, &gateway.DirOptions{MaxArtifact: 1000, SessionQuota: 1500, SessionFiles: 4})
	for _, id := range []string{"s1", "s2"} {
		_, err := s.gw.Open(t.Context(), s.tokens, id, "ws://127.0.0.1/", worker.Light())
		must(t, err)
	}
	token := func(id string) string {
		text, err := s.tokens.Issue(id, time.Hour)
		must(t, err)
		return text
	}
	status, body := s.put(t, "s1", token("s1"), sumOf("hello"), strings.NewReader("hello"))
	var stored struct {
		URI  string
		Size int64
	}
	must(t, json.Unmarshal([]byte(body), &stored))
	if status != 201 || stored.URI != gateway.ArtifactURI(sha256.Sum256([]byte("hello"))) || !strings.HasPrefix(stored.URI, "store://art_") || stored.Size != 5 {
		t.Errorf("%d %s", status, body)
	}
	r, size, err := s.dir.Open(stored.URI)
	must(t, err)
	content, err := io.ReadAll(r)
	must(t, err)
	_ = r.Close()
	if string(content) != "hello" || size != 5 {
		t.Errorf("read %q", content)
	}
	for name, c := range map[string]struct {
		session, token, sum string
		body                string
		status              int
	}{
		"other session": {"s2", token("s1"), sumOf("x"), "x", 401},
		"no token":      {"s1", "", sumOf("x"), "x", 401},
		"no session":    {"s9", token("s9"), sumOf("x"), "x", 403},
		"other content": {"s1", token("s1"), sumOf("x"), "y", 422},
		"upper case":    {"s1", token("s1"), strings.ToUpper(sumOf("x")), "x", 400},
		"a path":        {"s1", token("s1"), "..%2F..%2Fetc", "x", 400},
		"too large":     {"s1", token("s1"), sumOf(strings.Repeat("x", 1001)), strings.Repeat("x", 1001), 413},
	} {
		if status, body := s.put(t, c.session, c.token, c.sum, strings.NewReader(c.body)); status != c.status {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	for i, want := range []int{201, 413} { // 5 + 900 fit, 900 more do not
		text := strings.Repeat(fmt.Sprint(i), 900)
		if status, body := s.put(t, "s1", token("s1"), sumOf(text), strings.NewReader(text)); status != want {
			t.Errorf("%d: %d %s", i, status, body)
		}
	}
	entries, err := os.ReadDir(s.path)
	must(t, err)
	if len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
	for _, uri := range []string{"store://art_", "store://art_../../etc/passwd", "file:///etc/passwd", stored.URI + "x"} {
		if _, _, err := s.dir.Open(uri); !errors.Is(err, gateway.ErrNoArtifact) {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

// Uploads of one content at once leave one whole file.
func TestArtifactsAtOnce(t *testing.T) {
	t.Parallel()
	dir, err := gateway.OpenDir(t.TempDir(), nil)
	must(t, err)
	defer dir.Close()
	content := bytes.Repeat([]byte("0123456789"), 20000)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, _, err := dir.Put(t.Context(), "s", sha256.Sum256(content), bytes.NewReader(content)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	r, size, err := dir.Open(gateway.ArtifactURI(sha256.Sum256(content)))
	must(t, err)
	defer r.Close()
	if size != int64(len(content)) {
		t.Errorf("%d bytes", size)
	}
}

// ENV-1, ENV-4, CON-1: what a sandbox is given is enough to call home over real
// HTTP, and its tools are then an MCP server like any other; the token is not in
// the environment.
func TestSandboxCallsHome(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	sb, err := s.gw.Open(t.Context(), s.tokens, "s1", strings.Replace(s.server.URL, "http", "ws", 1)+gateway.WorkerPath, worker.Light())
	must(t, err)
	for name, v := range sb.Env {
		if strings.Contains(v, sb.Token) || strings.HasPrefix(name, "WORKER_TOKEN") {
			t.Errorf("%s holds the token", name)
		}
	}
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte(sb.Token+"\n"), 0o600))
	sb.Env[worker.EnvTokenFile] = file
	env, err := worker.ReadEnvironment(func(name string) (string, bool) { v, ok := sb.Env[name]; return v, ok })
	must(t, err)

	server := mcp.NewServer(&mcp.Implementation{Name: "inner", Version: "1"}, nil)
	type say struct {
		Text string `json:"text"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "exec"}, func(ctx context.Context, req *mcp.CallToolRequest, a say) (*mcp.CallToolResult, any, error) {
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: 1, Message: "half"})
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Text}}, StructuredContent: json.RawMessage(`{"n":9007199254740993}`)}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "file"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, errors.New("no such file")
	})
	exit := make(chan worker.Exit, 1)
	go func() { exit <- worker.New(server, env, nil).Run(context.WithoutCancel(t.Context())) }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must(t, sb.Session.Running(ctx))

	ours, theirs := mcp.NewInMemoryTransports()
	_, err = gateway.ToolServer(sb.Session).Connect(ctx, ours, nil)
	must(t, err)
	progress := make(chan string, 8)
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Message },
	})
	cs, err := client.Connect(ctx, theirs, nil)
	must(t, err)
	list, err := cs.ListTools(ctx, nil)
	must(t, err)
	if len(list.Tools) != 2 {
		t.Errorf("tools %v", list.Tools)
	}
	params := &mcp.CallToolParams{Name: "exec", Arguments: map[string]any{"text": "hello"}}
	params.SetProgressToken("t")
	res, err := cs.CallTool(ctx, params)
	must(t, err)
	if text, ok := res.Content[0].(*mcp.TextContent); !ok || text.Text != "hello" {
		t.Errorf("%+v", res)
	}
	select {
	case m := <-progress:
		if m != "half" {
			t.Errorf("progress %q", m)
		}
	case <-ctx.Done():
		t.Error("no progress")
	}
	if res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "file"}); err != nil || !res.IsError {
		t.Errorf("a failing tool: %+v %v", res, err)
	}
	must(t, cs.Close())
	_, err = sb.Session.Release(ctx, worker.ReasonExplicit)
	must(t, err)
	if got := <-exit; got.Code != worker.ExitReleased {
		t.Errorf("%+v", got)
	}
	if _, err := sb.Session.CallTool(ctx, "exec", nil, nil); !errors.Is(err, worker.ErrOver) {
		t.Error(err)
	}
}

// What a worker uploads at its end is in the store under its hash, links are not
// followed, and a file that cannot be stored makes the report say so (AMB-39).
//
// REL-2.
func TestUploadOfOutputs(t *testing.T) {
	t.Parallel()
	s := newSite(t, &gateway.DirOptions{MaxArtifact: 1000})
	sb, err := s.gw.Open(t.Context(), s.tokens, "s1", strings.Replace(s.server.URL, "http", "ws", 1)+gateway.WorkerPath, worker.Light())
	must(t, err)
	env := worker.Environment{SessionID: "s1", ControlURL: sb.Env[worker.EnvControlURL], Token: func() (string, error) { return sb.Token, nil }}
	out := filepath.Join(t.TempDir(), "out")
	if r, err := worker.Upload(t.Context(), env, out, nil); err != nil || !r.OutputsFlushed || len(r.Outputs) != 0 {
		t.Errorf("no directory: %+v %v", r, err)
	}
	must(t, os.MkdirAll(filepath.Join(out, "a"), 0o755))
	must(t, os.WriteFile(filepath.Join(out, "a", "report й.txt"), []byte("done"), 0o600))
	must(t, os.WriteFile(filepath.Join(out, "empty"), nil, 0o600))
	must(t, os.Symlink("/etc/passwd", filepath.Join(out, "link")))
	r, err := worker.Upload(t.Context(), env, out, nil)
	if err != nil || !r.OutputsFlushed || len(r.Outputs) != 2 {
		t.Fatalf("%+v %v", r, err)
	}
	if o := r.Outputs[0]; o.Name != "a/report й.txt" || o.URI != gateway.ArtifactURI(sha256.Sum256([]byte("done"))) || o.Size != 4 || !strings.HasPrefix(o.MIMEType, "text/plain") {
		t.Errorf("%+v", o)
	}
	stored, _, err := s.dir.Open(r.Outputs[0].URI)
	must(t, err)
	content, err := io.ReadAll(stored)
	_ = stored.Close()
	if err != nil || string(content) != "done" {
		t.Errorf("stored %q %v", content, err)
	}
	must(t, os.WriteFile(filepath.Join(out, "large"), make([]byte, 2000), 0o600))
	if r, err := worker.Upload(t.Context(), env, out, nil); err == nil || r.OutputsFlushed || len(r.Outputs) != 2 || !strings.Contains(err.Error(), "large") || strings.Contains(err.Error(), sb.Token) {
		t.Errorf("with one too large: %+v %v", r, err)
	}
	env.Token = func() (string, error) { return "bad", nil }
	if r, err := worker.Upload(t.Context(), env, out, nil); err == nil || r.OutputsFlushed {
		t.Errorf("with a bad token: %+v %v", r, err)
	}
}

// A gateway that shuts down sends its workers away and ends.
func TestShutdown(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	sb, err := s.gw.Open(t.Context(), s.tokens, "s1", "ws://127.0.0.1/", worker.Light())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(t, s.gw.Shutdown(ctx))
	<-sb.Session.Left()
	if _, err := s.gw.Open(t.Context(), s.tokens, "s2", "ws://127.0.0.1/", worker.Light()); !errors.Is(err, worker.ErrDraining) {
		t.Error(err)
	}
}
