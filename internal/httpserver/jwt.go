package httpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/ossicle/ossicle/internal/access"
)

// leeway is how far the clocks of an issuer and of ours may be apart.
const leeway = 60 * time.Second

// algorithms are those of public keys. A shared secret would let every
// resource server make tokens.
var algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// JWTOptions configure a [JWT].
type JWTOptions struct {
	// JWKSURL is where the issuer's keys are. Empty means that the issuer's
	// metadata tells (RFC 8414, OpenID Connect Discovery).
	JWKSURL string
	// ScopeRights are the rights that each scope gives. Nil means that a token
	// for us has all rights, whatever its scopes.
	ScopeRights map[string]access.Rights
	// Client fetches keys. Nil means one that follows no redirects.
	Client *http.Client
	// Now is the clock. Nil is the system's.
	Now func() time.Time
}

// JWT verifies access tokens of an OAuth 2.1 authorization server: signature,
// issuer, audience and expiry (RFC 9068, RFC 8707). The principal is the
// subject.
type JWT struct {
	opts   JWTOptions
	keys   *keySet
	parser *jwt.Parser
}

// NewJWT makes a verifier of the tokens that issuer gives out for audience,
// which is the URL of our MCP endpoint.
func NewJWT(issuer, audience string, opts *JWTOptions) (*JWT, error) {
	v := &JWT{}
	if opts != nil {
		v.opts = *opts
	}
	if err := checkFetchURL(issuer); err != nil {
		return nil, fmt.Errorf("verify JWT: issuer: %w", err)
	}
	if audience == "" {
		return nil, errors.New("verify JWT: the audience is empty: name the URL of the MCP endpoint")
	}
	if v.opts.JWKSURL != "" {
		if err := checkFetchURL(v.opts.JWKSURL); err != nil {
			return nil, fmt.Errorf("verify JWT: keys: %w", err)
		}
	}
	if v.opts.Now == nil {
		v.opts.Now = time.Now
	}
	if v.opts.Client == nil {
		v.opts.Client = &http.Client{
			Timeout:       fetchLimit,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	v.keys = &keySet{issuer: issuer, url: v.opts.JWKSURL, client: v.opts.Client, now: v.opts.Now}
	v.parser = jwt.NewParser(
		jwt.WithValidMethods(algorithms), jwt.WithIssuer(issuer), jwt.WithAudience(audience),
		jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(v.opts.Now),
	)
	return v, nil
}

// claims are what we read of a token beside the registered ones.
type claims struct {
	jwt.RegisteredClaims
	Scope string     `json:"scope"` // RFC 8693
	SCP   stringList `json:"scp"`   // what some servers use instead
}

// stringList is a string with spaces, or an array.
type stringList []string

// UnmarshalJSON implements json.Unmarshaler.
func (l *stringList) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*l = strings.Fields(one)
		return nil
	}
	return json.Unmarshal(b, (*[]string)(l))
}

// Verify implements [Authenticator].
func (v *JWT) Verify(ctx context.Context, token string) (*access.Principal, error) {
	var c claims
	var keyErr error
	_, err := v.parser.ParseWithClaims(token, &c, func(t *jwt.Token) (any, error) {
		// Other tokens of the same issuer, such as ID tokens, are no access
		// tokens; those have the first type, or by older servers the second.
		switch typ, _ := t.Header["typ"].(string); strings.ToLower(typ) {
		case "at+jwt", "application/at+jwt", "jwt", "":
		default:
			return nil, fmt.Errorf("a token of type %q is no access token", typ)
		}
		id, _ := t.Header["kid"].(string)
		key, err := v.keys.key(ctx, id)
		keyErr = err
		return key, err
	})
	switch {
	case keyErr != nil && !errors.Is(keyErr, access.ErrInvalidToken):
		return nil, keyErr // not the token's fault
	case err != nil:
		return nil, fmt.Errorf("%w: %w", access.ErrInvalidToken, err)
	case c.Subject == "":
		return nil, fmt.Errorf("%w: it has no subject", access.ErrInvalidToken)
	}
	return &access.Principal{Name: c.Subject, Rights: v.rights(&c), Expires: c.ExpiresAt.Time}, nil
}

func (v *JWT) rights(c *claims) access.Rights {
	if v.opts.ScopeRights == nil {
		return access.AllRights()
	}
	var r access.Rights
	for _, scope := range append(strings.Fields(c.Scope), c.SCP...) {
		r = r.Union(v.opts.ScopeRights[scope])
	}
	return r
}
