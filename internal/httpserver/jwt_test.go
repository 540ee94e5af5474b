//nolint:bodyclose // do and get read bodies to their end and close them.
package httpserver

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/access"
)

const audience = "https://ears.example/mcp"

// issuer is an authorization server's keys.
type issuer struct {
	t       testing.TB
	url     string
	keys    atomic.Value // of string: the document
	fetches atomic.Int64
	down    atomic.Bool
	mux     *http.ServeMux
	ed      ed25519.PrivateKey
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	i := &issuer{t: t, mux: http.NewServeMux()}
	ts := httptest.NewServer(i.mux)
	t.Cleanup(ts.Close)
	i.url = ts.URL + "/tenant"
	i.mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.fetches.Add(1)
		if i.down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write([]byte(i.keys.Load().(string)))
	})
	i.mux.HandleFunc("/.well-known/oauth-authorization-server/tenant", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.url, "jwks_uri": ts.URL + "/keys"})
	})
	_, i.ed, _ = ed25519.GenerateKey(rand.Reader)
	i.setKeys(okp("ed", i.ed))
	return i
}

func (i *issuer) setKeys(keys ...string) {
	i.keys.Store(`{"keys":[` + strings.Join(keys, ",") + `]}`)
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func okp(id string, k ed25519.PrivateKey) string {
	return `{"kty":"OKP","crv":"Ed25519","kid":"` + id + `","use":"sig","x":"` + b64(k.Public().(ed25519.PublicKey)) + `"}`
}

func (i *issuer) sign(method jwt.SigningMethod, key any, id string, change func(jwt.MapClaims, map[string]any)) string {
	i.t.Helper()
	c := jwt.MapClaims{"iss": i.url, "aud": audience, "sub": "ann", "exp": time.Now().Add(time.Hour).Unix()}
	tok := jwt.NewWithClaims(method, c)
	tok.Header["typ"], tok.Header["kid"] = "at+jwt", id
	if change != nil {
		change(c, tok.Header)
	}
	s, err := tok.SignedString(key)
	if err != nil {
		i.t.Fatal(err)
	}
	return s
}

func (i *issuer) token(change func(c jwt.MapClaims, header map[string]any)) string {
	return i.sign(jwt.SigningMethodEdDSA, i.ed, "ed", change)
}

func newJWT(t testing.TB, i *issuer, o *JWTOptions) *JWT {
	t.Helper()
	v, err := NewJWT(i.url, audience, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// M-9: issuer, audience, expiry, signature and type of a token are checked.
func TestAccessTokensAreChecked(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	v := newJWT(t, i, nil)
	p, err := v.Verify(t.Context(), i.token(nil))
	if err != nil || p.Name != "ann" || !p.Rights.Tool("x") || time.Until(p.Expires) < 50*time.Minute {
		t.Fatalf("a good token: %+v, %v", p, err)
	}
	_, other, _ := ed25519.GenerateKey(rand.Reader)
	public := i.ed.Public().(ed25519.PublicKey)
	set := func(name string, value any) string {
		return i.token(func(c jwt.MapClaims, _ map[string]any) {
			if value == nil {
				delete(c, name)
			} else {
				c[name] = value
			}
		})
	}
	typed := func(typ string) string { return i.token(func(_ jwt.MapClaims, h map[string]any) { h["typ"] = typ }) }
	for name, token := range map[string]string{
		"several audiences": set("aud", []string{"x", audience}),
		"within the leeway": set("exp", time.Now().Add(-leeway/2).Unix()),
		"older type":        typed("JWT"),
	} {
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, token := range map[string]string{
		"other issuer":     set("iss", "https://evil.example"),
		"no issuer":        set("iss", nil),
		"other audience":   set("aud", "https://other.example/mcp"),
		"no audience":      set("aud", nil),
		"expired":          set("exp", time.Now().Add(-2*leeway).Unix()),
		"no expiry":        set("exp", nil),
		"not yet":          set("nbf", time.Now().Add(2*leeway).Unix()),
		"no subject":       set("sub", nil),
		"ID token":         typed("id+jwt"),
		"proof":            typed("dpop+jwt"),
		"other key":        i.sign(jwt.SigningMethodEdDSA, other, "ed", nil),
		"no signature":     i.sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "ed", nil),
		"public as secret": i.sign(jwt.SigningMethodHS256, []byte(public), "ed", nil),
		"no token":         "x.y.z",
		"cut":              i.token(nil)[:100],
	} {
		if p, err := v.Verify(t.Context(), token); !errors.Is(err, access.ErrInvalidToken) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func TestKeysOfAllKinds(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // this is the point
	if err != nil {
		t.Skip(err)
	}
	curves := map[string]*ecdsa.PrivateKey{}
	keys := []string{`{"kty":"oct","kid":"secret","k":"AAAA"}`, `7`, okp("ed", i.ed), strings.Replace(okp("enc", i.ed), `"sig"`, `"enc"`, 1)}
	rsaJSON := func(id string, k *rsa.PrivateKey) string {
		return `{"kty":"RSA","kid":"` + id + `","n":"` + b64(k.N.Bytes()) + `","e":"` + b64(big.NewInt(int64(k.E)).Bytes()) + `"}`
	}
	keys = append(keys, rsaJSON("rs", rs), rsaJSON("weak", weak))
	for name, curve := range map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()} {
		k, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		curves[name] = k
		point, _ := k.PublicKey.Bytes()
		half := (len(point) - 1) / 2
		keys = append(keys, `{"kty":"EC","crv":"`+name+`","kid":"`+name+`","x":"`+b64(point[1:1+half])+`","y":"`+b64(point[1+half:])+`"}`)
	}
	i.setKeys(keys...)
	v := newJWT(t, i, nil)
	for name, token := range map[string]string{
		"RS256": i.sign(jwt.SigningMethodRS256, rs, "rs", nil),
		"PS512": i.sign(jwt.SigningMethodPS512, rs, "rs", nil),
		"ES256": i.sign(jwt.SigningMethodES256, curves["P-256"], "P-256", nil),
		"ES384": i.sign(jwt.SigningMethodES384, curves["P-384"], "P-384", nil),
		"ES512": i.sign(jwt.SigningMethodES512, curves["P-521"], "P-521", nil),
		"EdDSA": i.token(nil),
	} {
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, token := range map[string]string{
		"weak RSA":            i.sign(jwt.SigningMethodRS256, weak, "weak", nil),
		"key for encryption":  i.sign(jwt.SigningMethodEdDSA, i.ed, "enc", nil),
		"key of another kind": i.sign(jwt.SigningMethodES256, curves["P-256"], "rs", nil),
		"no id among many":    i.sign(jwt.SigningMethodEdDSA, i.ed, "", nil),
	} {
		if _, err := v.Verify(t.Context(), token); !errors.Is(err, access.ErrInvalidToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := i.fetches.Load(); n != 1 {
		t.Errorf("%d fetches for 10 tokens, want 1", n)
	}
}

// Keys are fetched when a token needs one: at first, when an unknown one turns
// up, and when they are old; never in a storm.
func TestKeysAreFetchedWhenNeeded(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	var now atomic.Int64
	now.Store(time.Now().Unix())
	pass := func(d time.Duration) { now.Add(int64(d / time.Second)) }
	v := newJWT(t, i, &JWTOptions{Now: func() time.Time { return time.Unix(now.Load(), 0) }})
	far := func(c jwt.MapClaims, _ map[string]any) { c["exp"] = time.Now().Add(1000 * time.Hour).Unix() }
	expect := func(what, token string, ok bool, fetches int64) {
		t.Helper()
		_, err := v.Verify(t.Context(), token)
		if (err == nil) != ok || i.fetches.Load() != fetches {
			t.Errorf("%s: %v after %d fetches, want %d", what, err, i.fetches.Load(), fetches)
		}
	}
	old := i.token(far)
	expect("first", old, true, 1)
	expect("again", old, true, 1)
	_, next, _ := ed25519.GenerateKey(rand.Reader)
	rotated := i.sign(jwt.SigningMethodEdDSA, next, "next", far)
	expect("unknown key, too soon", rotated, false, 1)
	pass(keysPause)
	i.setKeys(okp("ed", i.ed), okp("next", next))
	expect("unknown key", rotated, true, 2)
	for range 10 {
		expect("storm of unknown keys", i.sign(jwt.SigningMethodEdDSA, next, "none", far), false, 2)
	}
	pass(keysAge)
	i.setKeys(okp("next", next))
	expect("old keys", rotated, true, 3)
	expect("a key that was withdrawn", old, false, 3)
	pass(keysAge)
	i.down.Store(true)
	expect("issuer away", rotated, true, 4)
	pass(keysPause)
	expect("unknown key and issuer away", old, false, 5)
	if _, err := v.Verify(t.Context(), old); !errors.Is(err, access.ErrInvalidToken) {
		t.Errorf("a moment later: %v", err)
	}
}

func TestIssuerThatCannotBeReached(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.down.Store(true)
	v := newJWT(t, i, nil)
	for range 2 { // the second time it is not even asked
		if _, err := v.Verify(t.Context(), i.token(nil)); err == nil || errors.Is(err, access.ErrInvalidToken) {
			t.Errorf("Verify = %v, want an error that is not the token's", err)
		}
	}
	if n := i.fetches.Load(); n != 1 {
		t.Errorf("%d fetches", n)
	}
	// A metadata document of another issuer is not followed.
	i.down.Store(false)
	evil := newIssuer(t)
	base := strings.TrimSuffix(evil.url, "/tenant")
	evil.mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.url, "jwks_uri": strings.TrimSuffix(i.url, "/tenant") + "/keys"})
	})
	w, err := NewJWT(base, audience, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Verify(t.Context(), i.token(func(c jwt.MapClaims, _ map[string]any) { c["iss"] = base })); err == nil {
		t.Error("keys of another issuer are taken")
	}
}

func TestScopesGiveRights(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	v := newJWT(t, i, &JWTOptions{JWKSURL: strings.TrimSuffix(i.url, "/tenant") + "/keys", ScopeRights: map[string]access.Rights{
		"watch": {Topics: []string{"*"}}, "call": {Tools: []string{"memo_*"}},
	}})
	for _, tc := range []struct {
		name  string
		value any
		want  [2]bool
	}{
		{"scope", "watch other", [2]bool{true, false}},
		{"scope", "call watch", [2]bool{true, true}},
		{"scp", []string{"call"}, [2]bool{false, true}},
		{"scp", "call", [2]bool{false, true}},
		{"scope", "", [2]bool{false, false}},
	} {
		p, err := v.Verify(t.Context(), i.token(func(c jwt.MapClaims, _ map[string]any) { c[tc.name] = tc.value }))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, [2]bool{p.Rights.Topic("memo://notes"), p.Rights.Tool("memo_set")}); diff != "" {
			t.Errorf("%s %v (-want +got):\n%s", tc.name, tc.value, diff)
		}
	}
}

func TestNewJWTWantsHTTPS(t *testing.T) {
	t.Parallel()
	for _, bad := range [][3]string{
		{"http://as.example", audience, ""},
		{"ftp://as.example", audience, ""},
		{"https://", audience, ""},
		{"https://as.example", "", ""},
		{"https://as.example", audience, "http://as.example/keys"},
	} {
		if _, err := NewJWT(bad[0], bad[1], &JWTOptions{JWKSURL: bad[2]}); err == nil {
			t.Errorf("NewJWT takes %v", bad)
		}
	}
}

// Through the server: an OAuth client's token is let in.
func TestOAuthEndToEnd(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	s := newSite(t, &Options{
		Auth:  newJWT(t, i, nil),
		OAuth: &OAuth{Resource: audience, AuthorizationServers: []string{i.url}},
	})
	s.token = i.token(nil)
	if res, body := s.do(s.request("tools/list", "")); res.StatusCode != http.StatusOK {
		t.Errorf("%s %s", res.Status, body)
	}
	s.token = i.token(func(c jwt.MapClaims, _ map[string]any) { c["aud"] = "https://other.example" })
	if res, _ := s.do(s.request("tools/list", "")); res.StatusCode != http.StatusUnauthorized || !strings.Contains(res.Header.Get("WWW-Authenticate"), "invalid_token") {
		t.Errorf("a token for another: %s", res.Status)
	}
}

func FuzzParseKey(f *testing.F) {
	_, k, _ := ed25519.GenerateKey(rand.Reader)
	f.Add([]byte(okp("a", k)))
	f.Add([]byte(`{"kty":"RSA","n":"AQAB","e":"AQAB"}`))
	f.Add([]byte(`{"kty":"EC","crv":"P-256","x":"","y":""}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, key, err := parseKey(data)
		if (err == nil) != (key != nil) {
			t.Errorf("%s: %v, %v", data, key, err)
		}
	})
}
