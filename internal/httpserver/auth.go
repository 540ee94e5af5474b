package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/logattr"
)

// Authenticator verifies bearer tokens. Verify returns an error that wraps
// access.ErrInvalidToken for a token that is not good, whose text the client is
// told, and any other error when it cannot tell.
type Authenticator interface {
	Verify(ctx context.Context, token string) (*access.Principal, error)
}

// Rechecker is an [Authenticator] whose principals can lose what they were let
// in with before it expires. Recheck returns an error that wraps
// access.ErrInvalidToken if that has happened, nil if not, and any other error
// when it cannot tell.
type Rechecker interface {
	Recheck(ctx context.Context, p *access.Principal) error
}

// AnyOf takes a token that one of the authenticators takes.
func AnyOf(all ...Authenticator) Authenticator { return anyOf(all) }

type anyOf []Authenticator

// Verify implements [Authenticator].
func (all anyOf) Verify(ctx context.Context, token string) (*access.Principal, error) {
	err := fmt.Errorf("%w: nobody knows it", access.ErrInvalidToken)
	for _, a := range all {
		p, aerr := a.Verify(ctx, token)
		if aerr == nil {
			return p, nil
		}
		// A verifier that could not tell is worth more than one that said no.
		if errors.Is(err, access.ErrInvalidToken) {
			err = aerr
		}
	}
	return nil, err
}

// Recheck implements [Rechecker]. One that says no is believed.
func (all anyOf) Recheck(ctx context.Context, p *access.Principal) error {
	for _, a := range all {
		if r, ok := a.(Rechecker); ok {
			if err := r.Recheck(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// authTime bounds the verification of one token.
const authTime = 10 * time.Second

// authenticate lets in who has a good token, or a good ticket where the route
// takes one.
func (s *Server) authenticate(mux *http.ServeMux) http.Handler {
	if s.opts.Auth == nil {
		return mux
	}
	// The SDK binds legacy sessions to the user by a key of its own, which only
	// its middleware can set.
	next := auth.RequireBearerToken(func(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
		return tokenInfo(ctx), nil
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true, ClockSkew: leeway})(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verify := s.opts.Auth.Verify
		var token string
		if ticket := s.ticket(r, mux); ticket != "" {
			// The SDK's middleware wants a header.
			verify, token = s.verifyTicket, ticket
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer ticket")
		} else if bearer, ok := bearer(r); ok {
			token = bearer
		} else {
			s.challenge(w, "", "send Authorization: Bearer with a token")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), authTime)
		p, err := verify(ctx, token)
		cancel()
		switch {
		case errors.Is(err, access.ErrInvalidToken):
			s.challenge(w, "invalid_token", err.Error())
			return
		case err != nil:
			s.log.Error("token could not be verified", logattr.Err(err))
			w.Header().Set("Retry-After", "5")
			WriteProblem(w, http.StatusServiceUnavailable, "the token cannot be verified now; try again in a moment")
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tokenInfoKey{}, &auth.TokenInfo{
			UserID: p.Name, Expiration: p.Expires, Extra: map[string]any{principalKey: p},
		})))
	})
}

// ticket returns the ticket of a request that may come with one. A token, where
// there is one, counts.
func (s *Server) ticket(r *http.Request, mux *http.ServeMux) string {
	if s.opts.Tickets == nil || r.Header.Get("Authorization") != "" || (r.Method != http.MethodGet && r.Method != http.MethodHead) {
		return ""
	}
	if _, pattern := mux.Handler(r); !s.ticketed[pattern] {
		return ""
	}
	return r.URL.Query().Get("ticket")
}

// verifyTicket takes a ticket of somebody whose token still stands.
func (s *Server) verifyTicket(ctx context.Context, ticket string) (*access.Principal, error) {
	p, err := s.opts.Tickets.Verify(ticket)
	if err != nil {
		return nil, err
	}
	if r, ok := s.opts.Auth.(Rechecker); ok {
		if err := r.Recheck(ctx, p); err != nil {
			return nil, err
		}
	}
	return p, nil
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
	WriteProblem(w, http.StatusUnauthorized, detail)
}

// plain keeps the characters that RFC 6750 allows in a description.
func plain(r rune) rune {
	if r < ' ' || r > '~' || r == '"' || r == '\\' {
		return '\''
	}
	return r
}
