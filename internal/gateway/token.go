package gateway

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
)

// What a worker token says of itself. A token of another kind, for instance of
// the HTTP API, is not one.
const (
	tokenType     = "agentfy-worker+jwt"
	tokenAudience = "agentfy-worker-gateway"
	peerType      = "agentfy-peer+jwt"
	peerAudience  = "agentfy-worker-gateway-peer"
	peerLife      = time.Minute // from one gateway to another
	tokenLeeway   = 5 * time.Second
	maxToken      = 4 << 10 // bytes
)

// ErrToken is for a token that is not good; the text says why, for our log.
var ErrToken = errors.New("the worker token is not valid")

// Key is a pair of keys with its id. Tokens are signed by the newest key and
// verified by all: to rotate, put the new one first and drop the old one when no
// token of it can be alive.
type Key struct {
	ID      string
	Private ed25519.PrivateKey
}

// NewKey makes a key with a random id.
func NewKey() (Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("make key of worker tokens: %w", err)
	}
	return Key{ID: rand.Text()[:16], Private: private}, nil
}

// Tokens issues and verifies worker tokens: JWTs signed with Ed25519, whose sub
// is the id of the session. The jti is for audit; a token is presented at every
// dial, so it is not for single use.
type Tokens struct {
	issuer string
	keys   []Key // newest first
	// worker reads the tokens of workers, peer those that gateways show each other.
	worker, peer *jwt.Parser
}

// NewTokens returns tokens of an issuer, usually the URL of the gateway. keys is
// newest first and not empty.
func NewTokens(issuer string, keys ...Key) (*Tokens, error) {
	if issuer == "" || len(keys) == 0 {
		return nil, errors.New("make worker tokens: an issuer and a key are needed")
	}
	seen := map[string]bool{}
	for _, k := range keys {
		if k.ID == "" || seen[k.ID] || len(k.Private) != ed25519.PrivateKeySize {
			return nil, fmt.Errorf("make worker tokens: the key %q is not a key or is there twice", k.ID)
		}
		seen[k.ID] = true
	}
	parser := func(audience string) *jwt.Parser {
		return jwt.NewParser(
			jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithAudience(audience), jwt.WithIssuer(issuer),
			jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(tokenLeeway), jwt.WithStrictDecoding(),
		)
	}
	return &Tokens{issuer: issuer, keys: keys, worker: parser(tokenAudience), peer: parser(peerAudience)}, nil
}

// Issue makes the token of a session that is good for life.
func (t *Tokens) Issue(session string, life time.Duration) (string, error) {
	if session == "" || life <= 0 {
		return "", errors.New("issue worker token: a session and a time are needed")
	}
	return t.sign(tokenType, tokenAudience, session, life)
}

// issuePeer makes the token with which a gateway asks another one for a session.
func (t *Tokens) issuePeer(session string) (string, error) {
	return t.sign(peerType, peerAudience, session, peerLife)
}

func (t *Tokens) sign(typ, audience, session string, life time.Duration) (string, error) {
	now := time.Now()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.RegisteredClaims{
		Issuer: t.issuer, Subject: session, Audience: jwt.ClaimStrings{audience}, ID: rand.Text(),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(life)),
	})
	token.Header["typ"], token.Header["kid"] = typ, t.keys[0].ID
	signed, err := token.SignedString(t.keys[0].Private)
	if err != nil {
		return "", fmt.Errorf("issue worker token: %w", err)
	}
	return signed, nil
}

// Authenticate implements worker.Authenticator. Its errors wrap ErrToken and
// never hold the token.
func (t *Tokens) Authenticate(_ context.Context, token string) (string, error) {
	return t.verify(t.worker, tokenType, token)
}

// authenticatePeer is Authenticate for the tokens of gateways.
func (t *Tokens) authenticatePeer(token string) (string, error) {
	return t.verify(t.peer, peerType, token)
}

func (t *Tokens) verify(parser *jwt.Parser, typ, token string) (string, error) {
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return "", fmt.Errorf("%w: not a JWT", ErrToken)
	}
	for part := range strings.SplitSeq(token[:strings.LastIndexByte(token, '.')], ".") {
		// The parser lets the last of two equal names win; whoever reads the token
		// elsewhere may see the first.
		raw, err := base64.RawURLEncoding.Strict().DecodeString(part)
		if err != nil || !jsontext.Value(raw).IsValid() {
			return "", fmt.Errorf("%w: a part is not exact JSON", ErrToken)
		}
	}
	var claims jwt.RegisteredClaims
	parsed, err := parser.ParseWithClaims(token, &claims, t.key)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %s", ErrToken, cause(err))
	case parsed.Header["typ"] != typ:
		return "", fmt.Errorf("%w: of another type", ErrToken)
	case claims.Subject == "" || claims.ID == "" || claims.IssuedAt == nil:
		return "", fmt.Errorf("%w: sub, jti or iat is missing", ErrToken)
	}
	return claims.Subject, nil
}

func (t *Tokens) key(token *jwt.Token) (any, error) {
	for _, k := range t.keys {
		if token.Header["kid"] == k.ID {
			return k.Private.Public(), nil
		}
	}
	return nil, errors.New("unknown key")
}

// cause names what is wrong in words of ours: the parser's text may quote the
// token.
func cause(err error) string {
	for _, c := range []struct {
		is   error
		text string
	}{
		{jwt.ErrTokenExpired, "expired"},
		{jwt.ErrTokenNotValidYet, "not valid yet"},
		{jwt.ErrTokenUsedBeforeIssued, "issued in the future"},
		{jwt.ErrTokenInvalidAudience, "for another audience"},
		{jwt.ErrTokenInvalidIssuer, "of another issuer"},
		{jwt.ErrTokenRequiredClaimMissing, "a claim is missing"},
		{jwt.ErrTokenSignatureInvalid, "the signature does not fit"},
		{jwt.ErrTokenUnverifiable, "of an unknown key"},
	} {
		if errors.Is(err, c.is) {
			return c.text
		}
	}
	return "malformed"
}
