package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
)

const (
	// tokenLeeway is how long before its end a token is renewed.
	tokenLeeway = time.Minute
	// refreshTimeout bounds one renewal, which has no context of a caller.
	refreshTimeout = 30 * time.Second
	// maxTokenReply bounds the reply to it, in bytes.
	maxTokenReply = 1 << 20
)

// authorizer puts the tokens of an OAuth handler on the requests to one server.
// Refused access starts the handler's flow, once for all requests that wait. A
// renewal that is refused with invalid_grant ends it: only a person can mend
// that, and asking again would lock accounts (specification M-18).
type authorizer struct {
	server  string
	handler auth.OAuthHandler
	turn    chan struct{} // capacity 1: held while a flow runs

	mu   sync.Mutex
	over error // set for good by invalid_grant
}

func newAuthorizer(server string, h auth.OAuthHandler) *authorizer {
	return &authorizer{server: server, handler: h, turn: make(chan struct{}, 1)}
}

// roundTrip makes a request with the current token, and once more with a new one
// when access is refused.
func (a *authorizer) roundTrip(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	token, err := a.token(r.Context())
	if err != nil {
		return nil, err
	}
	resp, err := base.RoundTrip(withToken(r, token))
	if err != nil || (resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden) {
		return resp, err
	}
	if token, err = a.authorize(r, resp, token); err != nil {
		return nil, err
	}
	again := withToken(r, token)
	if r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	return base.RoundTrip(again)
}

func withToken(r *http.Request, token string) *http.Request {
	out := r.Clone(r.Context())
	if token != "" {
		out.Header.Set("Authorization", "Bearer "+token)
	}
	return out
}

// token returns the current access token, empty before there is one.
func (a *authorizer) token(ctx context.Context) (string, error) {
	a.mu.Lock()
	over := a.over
	a.mu.Unlock()
	if over != nil {
		return "", over
	}
	source, err := a.handler.TokenSource(ctx)
	if err != nil || source == nil {
		return "", err
	}
	t, err := source.Token()
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode == "invalid_grant":
		a.mu.Lock()
		defer a.mu.Unlock()
		a.over = &AuthError{Server: a.server, Err: fmt.Errorf("the authorization has ended (invalid_grant); authorize it again: %w", err)}
		return "", a.over
	case err != nil:
		return "", fmt.Errorf("server %q: renew token: %w", a.server, err)
	}
	return t.AccessToken, nil
}

// authorize runs the handler's flow unless another request has just done so.
// It closes the response.
func (a *authorizer) authorize(r *http.Request, resp *http.Response, used string) (string, error) {
	select {
	case a.turn <- struct{}{}:
	case <-r.Context().Done():
		_ = resp.Body.Close()
		return "", context.Cause(r.Context())
	}
	defer func() { <-a.turn }()
	if now, err := a.token(r.Context()); err != nil || now != used {
		_ = resp.Body.Close()
		return now, err
	}
	if err := a.handler.Authorize(r.Context(), r, resp); err != nil {
		return "", &AuthError{Server: a.server, Status: resp.StatusCode, Err: err}
	}
	return a.token(r.Context())
}

// OAuthOptions configure [NewOAuth]. Either ClientID or MetadataURL says who we
// are; without both, the client registers itself where the server allows it.
type OAuthOptions struct {
	ClientID     string
	ClientSecret string
	MetadataURL  string // client id metadata document, https
	// RedirectURL is where the authorization server sends the person back to.
	RedirectURL string
	// Fetch shows a person the URL and returns what came back. It runs within the
	// time limit of the connection.
	Fetch auth.AuthorizationCodeFetcher
	// Token is a stored token to begin with, or nil; Save stores each new one. Both
	// are secrets.
	Token *oauth2.Token
	Save  func(*oauth2.Token)
	// Client makes the requests to the authorization server; nil is
	// http.DefaultClient.
	Client *http.Client
}

// NewOAuth returns the SDK's authorization code flow for a server, with tokens
// that are renewed a minute before their end, for the server's own resource
// (RFC 8707).
func NewOAuth(spec Spec, o OAuthOptions) (auth.OAuthHandler, error) {
	resource := &resourceName{name: strings.TrimSuffix(spec.URL, "#")}
	cfg := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL: o.RedirectURL, Client: o.Client, RequestRefreshToken: true,
		AuthorizationCodeFetcher: resource.learn(o.Fetch),
		NewTokenSource: func(ctx context.Context, c *oauth2.Config, t *oauth2.Token) (oauth2.TokenSource, error) {
			return newRenewer(ctx, c, t, resource, o.Save), nil
		},
	}
	switch {
	case o.MetadataURL != "":
		cfg.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: o.MetadataURL}
	case o.ClientID != "":
		cfg.PreregisteredClient = &oauthex.ClientCredentials{ClientID: o.ClientID}
		if o.ClientSecret != "" {
			cfg.PreregisteredClient.ClientSecretAuth = &oauthex.ClientSecretAuth{ClientSecret: o.ClientSecret}
		}
	default:
		cfg.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: "ossicle", RedirectURIs: []string{o.RedirectURL}, GrantTypes: []string{"authorization_code", "refresh_token"},
		}}
	}
	if o.Token != nil && o.Token.Valid() {
		cfg.InitialTokenSource = oauth2.StaticTokenSource(o.Token)
	}
	return auth.NewAuthorizationCodeHandler(cfg)
}

// resourceName is the resource that tokens are for: what the flow asked for, or
// the server's URL before there was one.
type resourceName struct {
	mu   sync.Mutex
	name string
}

func (r *resourceName) learn(fetch auth.AuthorizationCodeFetcher) auth.AuthorizationCodeFetcher {
	if fetch == nil {
		return nil
	}
	return func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
		if u, err := url.Parse(args.URL); err == nil && u.Query().Get("resource") != "" {
			r.mu.Lock()
			r.name = u.Query().Get("resource")
			r.mu.Unlock()
		}
		return fetch(ctx, args)
	}
}

func (r *resourceName) get() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.name
}

// renewer is a token source that renews with the resource parameter, which
// that of x/oauth2 leaves out.
type renewer struct {
	config   *oauth2.Config
	client   *http.Client
	resource *resourceName
	save     func(*oauth2.Token)

	mu    sync.Mutex // held during a renewal: one for all
	token *oauth2.Token
}

func newRenewer(ctx context.Context, c *oauth2.Config, t *oauth2.Token, resource *resourceName, save func(*oauth2.Token)) *renewer {
	client, _ := ctx.Value(oauth2.HTTPClient).(*http.Client)
	if client == nil {
		client = http.DefaultClient
	}
	if save == nil {
		save = func(*oauth2.Token) {}
	}
	save(t)
	return &renewer{config: c, client: client, resource: resource, save: save, token: t}
}

// Token implements oauth2.TokenSource.
func (r *renewer) Token() (*oauth2.Token, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.token.Expiry.IsZero() || time.Until(r.token.Expiry) > tokenLeeway {
		return r.token, nil
	}
	if r.token.RefreshToken == "" {
		if r.token.Valid() {
			return r.token, nil
		}
		return nil, &oauth2.RetrieveError{ErrorCode: "invalid_grant", ErrorDescription: "the token has expired and cannot be renewed"}
	}
	t, err := r.renew()
	if err != nil {
		return nil, err
	}
	r.token = t
	r.save(t)
	return t, nil
}

// tokenJSON is the reply of a token endpoint (RFC 6749, 5.1 and 5.2).
type tokenJSON struct {
	AccessToken      string `json:"access_token"`
	TokenType        string `json:"token_type"`
	RefreshToken     string `json:"refresh_token"`
	ExpiresIn        int64  `json:"expires_in"`
	Error            string `json:"error"`
	ErrorDescription string `json:"error_description"`
}

func (r *renewer) renew() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), refreshTimeout)
	defer cancel()
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {r.token.RefreshToken}, "resource": {r.resource.get()}}
	inHeader := r.config.Endpoint.AuthStyle == oauth2.AuthStyleInHeader
	if !inHeader {
		form.Set("client_id", r.config.ClientID)
		if r.config.ClientSecret != "" {
			form.Set("client_secret", r.config.ClientSecret)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.config.Endpoint.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if inHeader {
		req.SetBasicAuth(url.QueryEscape(r.config.ClientID), url.QueryEscape(r.config.ClientSecret))
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxTokenReply))
	if err != nil {
		return nil, err
	}
	return r.read(resp, body)
}

func (r *renewer) read(resp *http.Response, body []byte) (*oauth2.Token, error) {
	var j tokenJSON
	err := json.Unmarshal(body, &j, lax)
	if resp.StatusCode != http.StatusOK || j.Error != "" {
		return nil, &oauth2.RetrieveError{Response: resp, ErrorCode: j.Error, ErrorDescription: clip(j.ErrorDescription)}
	}
	if err != nil || j.AccessToken == "" {
		return nil, errors.New("token endpoint answered without a token")
	}
	t := &oauth2.Token{AccessToken: j.AccessToken, TokenType: j.TokenType, RefreshToken: j.RefreshToken}
	if t.RefreshToken == "" {
		t.RefreshToken = r.token.RefreshToken
	}
	if j.ExpiresIn > 0 {
		t.Expiry = time.Now().Add(time.Duration(j.ExpiresIn) * time.Second)
	}
	return t, nil
}
