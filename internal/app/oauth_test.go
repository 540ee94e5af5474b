package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/internal/memo"
)

// guarded is our own memo server behind an authorization server that registers
// clients and says yes to everyone.
func guarded(t *testing.T) string {
	t.Helper()
	store, err := memo.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	host, err := NewHost(store, mcpserver.MemoTools(store), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close(t.Context()) })
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	reply := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer opened" {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer resource_metadata=%q", server.URL+"/prm"))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		host.MCP.Handler().ServeHTTP(w, r)
	})
	mux.HandleFunc("/prm", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{"resource": server.URL + "/mcp", "authorization_servers": []string{server.URL}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{
			"issuer": server.URL, "authorization_endpoint": server.URL + "/authorize", "token_endpoint": server.URL + "/token",
			"registration_endpoint": server.URL + "/register", "response_types_supported": []string{"code"},
			"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none", "client_secret_post"},
		})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, r *http.Request) {
		var c map[string]any
		_ = json.NewDecoder(r.Body).Decode(&c)
		c["client_id"] = "registered"
		reply(w, http.StatusCreated, c)
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {"c"}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{"access_token": "opened", "token_type": "Bearer", "expires_in": 3600})
	})
	return server.URL + "/mcp"
}

// M-18: a person is shown an address, agrees in a browser, and the server's
// resource can be read.
func TestConsent(t *testing.T) {
	t.Parallel()
	endpoint := guarded(t)
	shown := make(chan string, 2)
	client, err := NewClient(config.Default(), []mcpclient.Spec{{Name: "memo", URL: endpoint}}, &ClientOptions{
		Authorize: func(server, target string) { shown <- server + " " + target },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	browsed := make(chan struct{})
	go func() {
		defer close(browsed)
		_, target, _ := strings.Cut(<-shown, " ")
		resp, err := http.Get(target) //nolint:noctx // the person's browser
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		if page, _ := io.ReadAll(resp.Body); !strings.HasPrefix(string(page), "Done.") {
			t.Errorf("the browser shows %q", page)
		}
	}()
	value, err := client.Watches.Read(t.Context(), "memo://notes")
	if err != nil || string(value) != "{}" {
		t.Fatalf("%s, %v", value, err)
	}
	<-browsed
	if len(shown) > 0 {
		t.Error("the person was asked twice")
	}
}

// Without --mcp-oauth the server's refusal is told.
func TestNoConsent(t *testing.T) {
	t.Parallel()
	client, err := NewClient(config.Default(), []mcpclient.Spec{{Name: "memo", URL: guarded(t)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close(t.Context()) }()
	if _, err := client.Watches.Read(t.Context(), "memo://notes"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Fatalf("got %v", err)
	}
}
