package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"golang.org/x/oauth2"

	"github.com/ossicle/ossicle/listen"
)

// issuer is an authorization server together with the MCP server that it guards.
type issuer struct {
	mcp *fake
	url string

	mu        sync.Mutex
	seq       int
	valid     map[string]bool // what opens the door
	refresh   string
	life      int // of a token, in seconds
	resources []string
	grants    []string // grant types, in order
	refuse    bool     // refuses to renew
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{mcp: newFake(""), life: 3600, valid: map[string]bool{}}
	srv := httptest.NewServer(i)
	t.Cleanup(srv.Close)
	i.url = srv.URL
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	switch r.URL.Path {
	case "/mcp":
		i.mu.Lock()
		ok := i.valid[r.Header.Get("Authorization")]
		i.mu.Unlock()
		if !ok {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer resource_metadata=%q", i.url+"/prm"))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		i.mcp.ServeHTTP(w, r)
	case "/prm":
		reply(200, map[string]any{"resource": i.url + "/mcp", "authorization_servers": []string{i.url}})
	case "/.well-known/oauth-authorization-server":
		reply(200, map[string]any{
			"issuer": i.url, "authorization_endpoint": i.url + "/authorize", "token_endpoint": i.url + "/token",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
			"token_endpoint_auth_methods_supported": []string{"client_secret_post"}, "scopes_supported": []string{"offline_access"},
		})
	case "/token":
		i.token(r, reply)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (i *issuer) token(r *http.Request, reply func(int, any)) {
	_ = r.ParseForm()
	i.mu.Lock()
	defer i.mu.Unlock()
	grant := r.PostForm.Get("grant_type")
	i.grants = append(i.grants, grant)
	i.resources = append(i.resources, r.PostForm.Get("resource"))
	if grant == "refresh_token" && (i.refuse || r.PostForm.Get("refresh_token") != i.refresh || r.PostForm.Get("client_id") != "me") {
		reply(400, map[string]any{"error": "invalid_grant"})
		return
	}
	i.seq++
	access := fmt.Sprintf("access%d", i.seq)
	i.refresh = fmt.Sprintf("refresh%d", i.seq)
	i.valid["Bearer "+access] = true
	reply(200, map[string]any{"access_token": access, "token_type": "Bearer", "refresh_token": i.refresh, "expires_in": i.life})
}

// person agrees at once.
func person(asked *int) auth.AuthorizationCodeFetcher {
	return func(_ context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
		*asked++
		u, err := url.Parse(args.URL)
		if err != nil {
			return nil, err
		}
		return &auth.AuthorizationResult{Code: "code", State: u.Query().Get("state")}, nil
	}
}

func (i *issuer) server(t *testing.T, fetch auth.AuthorizationCodeFetcher, saved *[]string) *Server {
	t.Helper()
	o := quick()
	o.OAuth = func(spec Spec) (auth.OAuthHandler, error) {
		return NewOAuth(spec, OAuthOptions{
			ClientID: "me", ClientSecret: "s3cret", RedirectURL: "http://127.0.0.1:1/cb", Fetch: fetch,
			Save: func(t *oauth2.Token) { *saved = append(*saved, t.AccessToken) },
		})
	}
	return newTestPool(t, o, Spec{Name: "srv", URL: i.url + "/mcp"})
}

// M-18: the flow runs once for all, tokens are renewed for their resource, the
// listen carries them too, and a refused renewal ends it.
func TestOAuth(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.life = 30 // less than the leeway: each use renews
	asked, saved := 0, []string{}
	s := i.server(t, person(&asked), &saved)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { readText(t, s, "a:/1") })
	}
	wg.Wait()
	e, _ := mustSubscribe(t, s, "a:/1")
	touch(t, s, "a:/1")
	await(t, "update", e.updated)
	i.mu.Lock()
	if asked != 1 || i.grants[0] != "authorization_code" || len(i.grants) < 3 || len(saved) != len(i.grants) {
		t.Errorf("asked %d times, grants %q, saved %q", asked, i.grants, saved)
	}
	for n, r := range i.resources {
		if r != i.url+"/mcp" {
			t.Errorf("grant %d is for resource %q", n, r)
		}
	}
	i.refuse = true
	before := len(i.grants)
	i.mu.Unlock()
	for range 3 {
		_, err := s.Read(ctxOf(t), "a:/1", nil)
		var refused *AuthError
		var grant *oauth2.RetrieveError
		if !errors.As(err, &refused) || !errors.As(err, &grant) || grant.ErrorCode != "invalid_grant" {
			t.Errorf("after the refusal: %v", err)
		}
	}
	i.mu.Lock()
	after := len(i.grants)
	i.mu.Unlock()
	if after != before+1 || asked != 1 {
		t.Errorf("%d renewals after the refusal, asked %d times", after-before, asked)
	}
	i.mcp.endListens()
	var permanent *listen.PermanentError
	if err := await(t, "failure", e.failed); !errors.As(err, &permanent) {
		t.Errorf("the watch failed with %v", err)
	}
}

// A token that is revoked starts the flow again, and a flow that fails is told.
func TestOAuthRevoked(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	asked, saved := 0, []string{}
	s := i.server(t, person(&asked), &saved)
	readText(t, s, "a:/1")
	i.mu.Lock()
	clear(i.valid)
	i.mu.Unlock()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { readText(t, s, "a:/1") })
	}
	wg.Wait()
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	no := errors.New("the person said no")
	s = i.server(t, func(context.Context, *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) { return nil, no }, &saved)
	var refused *AuthError
	if _, err := s.Info(ctxOf(t)); !errors.As(err, &refused) || !errors.Is(err, no) {
		t.Errorf("error %v", err)
	}
}

func TestRenewer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reply string
		code  int
		want  string // error code
	}{
		"no JSON":        {"<html>", 200, ""},
		"no token":       {"{}", 200, ""},
		"status":         {"{}", 500, ""},
		"invalid grant":  {`{"error":"invalid_grant"}`, 400, "invalid_grant"},
		"duplicate name": {`{"access_token":"a","access_token":"b"}`, 200, ""},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.code)
			_, _ = w.Write([]byte(tt.reply))
		}))
		r := newRenewer(t.Context(), &oauth2.Config{Endpoint: oauth2.Endpoint{TokenURL: srv.URL}},
			&oauth2.Token{AccessToken: "x", RefreshToken: "r", Expiry: time.Now().Add(time.Second)}, &resourceName{name: "n"}, nil)
		tok, err := r.Token()
		var refused *oauth2.RetrieveError
		if err == nil || (tt.want != "" && (!errors.As(err, &refused) || refused.ErrorCode != tt.want)) {
			t.Errorf("%s: %v, %v", name, tok, err)
		}
		srv.Close()
	}
	// Without a refresh token a token is used to its end, and no longer.
	r := newRenewer(t.Context(), &oauth2.Config{}, &oauth2.Token{AccessToken: "x", Expiry: time.Now().Add(30 * time.Second)}, &resourceName{}, nil)
	if tok, err := r.Token(); err != nil || tok.AccessToken != "x" {
		t.Errorf("within the leeway: %v, %v", tok, err)
	}
	r.token.Expiry = time.Now().Add(-time.Second)
	var refused *oauth2.RetrieveError
	if _, err := r.Token(); !errors.As(err, &refused) || refused.ErrorCode != "invalid_grant" {
		t.Errorf("after its end: %v", err)
	}
}
