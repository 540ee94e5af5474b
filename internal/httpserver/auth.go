package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/ossicle/ossicle/internal/logattr"
)

// ErrInvalidToken is wrapped by what an [Authenticator] says of a token that is
// not good.
var ErrInvalidToken = errors.New("invalid token")

// Authenticator verifies bearer tokens. Verify returns an error that wraps
// ErrInvalidToken for a token that is not good, whose text the client is told,
// and any other error when it cannot tell.
type Authenticator interface {
	Verify(ctx context.Context, token string) (*Principal, error)
}

// AnyOf takes a token that one of the authenticators takes.
func AnyOf(all ...Authenticator) Authenticator { return anyOf(all) }

type anyOf []Authenticator

// Verify implements [Authenticator].
func (all anyOf) Verify(ctx context.Context, token string) (*Principal, error) {
	err := fmt.Errorf("%w: nobody knows it", ErrInvalidToken)
	for _, a := range all {
		p, aerr := a.Verify(ctx, token)
		if aerr == nil {
			return p, nil
		}
		// A verifier that could not tell is worth more than one that said no.
		if errors.Is(err, ErrInvalidToken) {
			err = aerr
		}
	}
	return nil, err
}

// authTime bounds the verification of one token.
const authTime = 10 * time.Second

// authenticate lets in who has a good token.
func (s *Server) authenticate(next http.Handler) http.Handler {
	if s.opts.Auth == nil {
		return next
	}
	// The SDK binds legacy sessions to the user by a key of its own, which only
	// its middleware can set.
	next = auth.RequireBearerToken(func(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
		return tokenInfo(ctx), nil
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true, ClockSkew: leeway})(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := bearer(r)
		if !ok {
			s.challenge(w, "", "send Authorization: Bearer with a token")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), authTime)
		p, err := s.opts.Auth.Verify(ctx, token)
		cancel()
		switch {
		case errors.Is(err, ErrInvalidToken):
			s.challenge(w, "invalid_token", err.Error())
			return
		case err != nil:
			s.log.Error("token could not be verified", logattr.Err(err))
			w.Header().Set("Retry-After", "5")
			writeProblem(w, http.StatusServiceUnavailable, "the token cannot be verified now; try again in a moment")
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tokenInfoKey{}, &auth.TokenInfo{
			UserID: p.Name, Expiration: p.Expires, Extra: map[string]any{principalKey: p},
		})))
	})
}

// tokenInfoKey carries what was verified to the SDK's middleware.
type tokenInfoKey struct{}

func tokenInfo(ctx context.Context) *auth.TokenInfo {
	info, _ := ctx.Value(tokenInfoKey{}).(*auth.TokenInfo)
	return info
}

// bearer returns the token of a request. The scheme has no case.
func bearer(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && token != "" && !strings.ContainsAny(token, " \t")
}

// challenge answers 401 as RFC 6750 and RFC 9728 want it.
func (s *Server) challenge(w http.ResponseWriter, code, detail string) {
	c := "Bearer"
	sep := " "
	add := func(name, value string) {
		c += fmt.Sprintf("%s%s=%q", sep, name, value)
		sep = ", "
	}
	if code != "" {
		add("error", code)
		add("error_description", strings.Map(plain, detail))
	}
	if s.opts.OAuth != nil {
		add("resource_metadata", s.metadataURL())
		if len(s.opts.OAuth.Scopes) > 0 {
			add("scope", strings.Join(s.opts.OAuth.Scopes, " "))
		}
	}
	w.Header().Set("WWW-Authenticate", c)
	writeProblem(w, http.StatusUnauthorized, detail)
}

// plain keeps the characters that RFC 6750 allows in a description.
func plain(r rune) rune {
	if r < ' ' || r > '~' || r == '"' || r == '\\' {
		return '\''
	}
	return r
}
