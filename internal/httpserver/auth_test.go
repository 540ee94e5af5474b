//nolint:bodyclose // do and get read bodies to their end and close them.
package httpserver

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/mcpserver"
)

// M-9, RFC 6750: who has no good token is told how to get in, and no more.
func TestTokensAreAskedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t, &Options{OAuth: &OAuth{
		Resource: "https://ears.example/mcp", AuthorizationServers: []string{"https://as.example"}, Scopes: []string{"watch", "call"},
	}})
	const metadata = `resource_metadata="https://ears.example/.well-known/oauth-protected-resource/mcp", scope="watch call"`
	for header, want := range map[string]string{
		"":                             `Bearer ` + metadata,
		"Basic YTpi":                   `Bearer ` + metadata,
		"Bearer":                       `Bearer ` + metadata,
		"Bearer a b":                   `Bearer ` + metadata,
		"Bearer wrong-but-long-enough": `Bearer error="invalid_token", error_description="invalid token: it is not one of those that were given out", ` + metadata,
	} {
		for _, method := range []string{"tools/list", "subscriptions/listen"} {
			req := s.request(method, "")
			req.Header.Del("Authorization")
			if header != "" {
				req.Header.Set("Authorization", header)
			}
			res, body := s.do(req)
			if diff := cmp.Diff(want, res.Header.Get("WWW-Authenticate")); diff != "" || res.StatusCode != http.StatusUnauthorized || !strings.Contains(body, `"status":401`) {
				t.Errorf("%q: %s %s (-want +got):\n%s", header, res.Status, body, diff)
			}
		}
	}
	// RFC 9728: the description is for everybody, at both places.
	for _, path := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"} {
		res, body := s.get(path)
		var got map[string]any
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%s: %s %s", path, res.Status, body)
		}
		want := map[string]any{
			"resource": "https://ears.example/mcp", "authorization_servers": []any{"https://as.example"},
			"scopes_supported": []any{"watch", "call"}, "bearer_methods_supported": []any{"header"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// M-9: a principal sees, reads, watches and calls what it may, in both eras.
func TestPrincipalsHaveRights(t *testing.T) {
	t.Parallel()
	const narrow, wide = "narrow-token-0123456789", "wide-token-0123456789"
	s := newSite(t, &Options{Auth: StaticTokens{
		staticToken(t, "ann", narrow, access.Rights{Topics: []string{"other://*"}, Tools: []string{"memo_g*"}}),
		staticToken(t, "ann", wide, access.AllRights()),
	}})
	s.token = narrow
	for request, want := range map[*http.Request]string{
		s.request("tools/call", `"name":"memo_get"`):                                                    `"{}"`,
		s.request("tools/call", `"name":"memo_set","arguments":{"key":"a","value":1}`):                  `-31003`,
		s.request("resources/read", `"uri":"memo://notes"`):                                             `ann lacks the right`,
		s.request("resources/list", ""):                                                                 `"resources":[]`,
		s.request("subscriptions/listen", `"notifications":{"resourceSubscriptions":["memo://notes"]}`): `"notifications":{}`,
	} {
		if res, body := s.do(request); !strings.Contains(body, want) {
			t.Errorf("%s: %s %s, want %s", request.Header.Get("Mcp-Method"), res.Status, body, want)
		}
	}
	if _, body := s.do(s.request("tools/list", "")); strings.Contains(body, "memo_set") || !strings.Contains(body, "memo_get") {
		t.Errorf("tools/list: %s", body)
	}
	// A legacy session that a wide token began gives a narrow one no more.
	id := s.initialize(wide)
	for token, want := range map[string]string{wide: `"contents"`, narrow: `-31003`} {
		if _, body := s.legacy(token, id, "resources/read", `"uri":"memo://notes"`); !strings.Contains(body, want) {
			t.Errorf("legacy read with the token %s: %s", token, body)
		}
	}
	for token, want := range map[string]string{wide: `"result":{}`, narrow: `"error"`} {
		if _, body := s.legacy(token, id, "resources/subscribe", `"uri":"memo://notes"`); !strings.Contains(body, want) {
			t.Errorf("legacy subscribe with the token %s: %s", token, body)
		}
	}
}

// A session belongs to who began it.
func TestSessionsAreBoundToTheirPrincipal(t *testing.T) {
	t.Parallel()
	const ann, bob = "token-of-ann-0123456789", "token-of-bob-0123456789"
	s := newSite(t, &Options{Auth: StaticTokens{staticToken(t, "ann", ann, access.AllRights()), staticToken(t, "bob", bob, access.AllRights())}})
	id := s.initialize(ann)
	if res, body := s.legacy(ann, id, "tools/list", ""); res.StatusCode != http.StatusOK {
		t.Errorf("ann: %s %s", res.Status, body)
	}
	if res, body := s.legacy(bob, id, "tools/list", ""); res.StatusCode != http.StatusForbidden {
		t.Errorf("bob: %s %s", res.Status, body)
	}
}

// initialize begins a legacy session.
func (s *site) initialize(token string) string {
	s.t.Helper()
	res, body := s.legacy(token, "", "initialize", `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}`)
	id := res.Header.Get("Mcp-Session-Id")
	if id == "" {
		s.t.Fatalf("initialize: %s %s", res.Status, body)
	}
	return id
}

func (s *site) legacy(token, session, method, params string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`}}`))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+token)
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	return s.do(req)
}

func TestRightsMatch(t *testing.T) {
	t.Parallel()
	r := access.Rights{Topics: []string{"memo://notes", "file:///a/*"}, Tools: []string{"*"}}
	for uri, want := range map[string]bool{
		"memo://notes": true, "memo://notes2": false, "file:///a/": true, "file:///a/b": true, "file:///ab": false, "": false,
	} {
		if got := r.Topic(uri); got != want {
			t.Errorf("Topic(%q) = %v", uri, got)
		}
	}
	if !r.Tool("anything") || r.Session("any") || !access.AllRights().Session("any") {
		t.Error("Tool or Session is wrong")
	}
	if err := Authorize(t.Context(), mcpserver.Access{Verb: mcpserver.Call, Target: "x"}); err != nil {
		t.Errorf("where nobody is asked: %v", err)
	}
}

// M-9: the token file is made at the first start, and is its owner's alone.
func TestTokenFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "home", "token")
	if _, err := ReadTokenFile(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadTokenFile makes one: %v", err)
	}
	first, err := TokenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	token, err := ReadTokenFile(path)
	if err != nil || len(token) != 43 {
		t.Fatalf("token %q, %v", token, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("files %v", left)
	}
	again, err := TokenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []StaticTokens{first, again} {
		p, err := a.Verify(t.Context(), token)
		if err != nil || p.Name != "local" || !p.Rights.Tool("x") {
			t.Errorf("Verify = %+v, %v", p, err)
		}
		if _, err := a.Verify(t.Context(), token+"x"); !errors.Is(err, access.ErrInvalidToken) {
			t.Errorf("Verify of another = %v", err)
		}
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := TokenFile(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
	short := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(short, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := TokenFile(short); err == nil {
		t.Error("a short token is taken")
	}
}

func TestTokenFileIsMadeOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	var wg sync.WaitGroup
	tokens := make([]StaticTokens, 8)
	for i := range tokens {
		wg.Go(func() { tokens[i], _ = TokenFile(path) })
	}
	wg.Wait()
	for i := range tokens {
		if len(tokens[i]) != 1 || tokens[i][0].SHA256 != tokens[0][0].SHA256 {
			t.Fatalf("two processes have two tokens")
		}
	}
}

// brokenAuth cannot tell.
type brokenAuth struct{}

func (brokenAuth) Verify(context.Context, string) (*access.Principal, error) {
	return nil, errors.New("the issuer is away: secret detail")
}

func TestWhoCannotVerifyDoesNotLetIn(t *testing.T) {
	t.Parallel()
	tokens := StaticTokens{staticToken(t, "a", testToken, access.AllRights())}
	s := newSite(t, &Options{Auth: AnyOf(brokenAuth{}, tokens)})
	if res, body := s.do(s.request("tools/list", "")); res.StatusCode != http.StatusOK {
		t.Errorf("known by the second: %s %s", res.Status, body)
	}
	s.token = "another-token-0123456789"
	if res, body := s.do(s.request("tools/list", "")); res.StatusCode != http.StatusServiceUnavailable || strings.Contains(body, "secret detail") {
		t.Errorf("known by nobody: %s %s", res.Status, body)
	}
	if _, err := AnyOf().Verify(t.Context(), "x"); !errors.Is(err, access.ErrInvalidToken) {
		t.Errorf("AnyOf nobody = %v", err)
	}
}

func TestExpiredTokensAreRefused(t *testing.T) {
	t.Parallel()
	for age, status := range map[time.Duration]int{-time.Hour: 200, leeway / 2: 200, 2 * leeway: 401} {
		token := staticToken(t, "a", testToken, access.AllRights())
		token.Principal.Expires = time.Now().Add(-age)
		s := newSite(t, &Options{Auth: StaticTokens{token}})
		if res, body := s.do(s.request("tools/list", "")); res.StatusCode != status {
			t.Errorf("expired %v ago: %s %s", age, res.Status, body)
		}
	}
}
