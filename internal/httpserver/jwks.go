package httpserver

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/access"
)

// Bounds of key sets.
const (
	maxKeySet  = 1 << 20          // bytes of one document
	maxKeys    = 100              // of one set
	keysAge    = time.Hour        // after which a set is fetched again when it is needed
	keysPause  = 30 * time.Second // between two fetches for keys that are not there
	fetchLimit = 5 * time.Second
)

// keySet holds the public keys of an authorization server. It fetches them when
// a token needs one, never by itself.
type keySet struct {
	issuer, url string // url is found by the issuer's metadata when empty
	client      *http.Client
	now         func() time.Time

	mu      sync.Mutex // held while fetching: one fetch serves all who wait
	keys    map[string]crypto.PublicKey
	fetched time.Time
	tried   time.Time
}

// key returns the key of an id; an empty id is that of the only key.
func (k *keySet) key(ctx context.Context, id string) (crypto.PublicKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	key, ok := k.find(id)
	if ok && now.Sub(k.fetched) < keysAge {
		return key, nil
	}
	if now.Sub(k.tried) < keysPause {
		return k.orUnknown(key, ok, id)
	}
	k.tried = now
	keys, err := k.fetch(ctx)
	if err != nil {
		if ok {
			return key, nil // an old key is better than an authorization server that is away
		}
		return nil, fmt.Errorf("fetch keys of %s: %w", k.issuer, err)
	}
	k.keys, k.fetched = keys, now
	key, ok = k.find(id)
	return k.orUnknown(key, ok, id)
}

func (k *keySet) orUnknown(key crypto.PublicKey, ok bool, id string) (crypto.PublicKey, error) {
	if ok {
		return key, nil
	}
	if k.keys == nil {
		return nil, fmt.Errorf("fetch keys of %s: it failed a moment ago", k.issuer)
	}
	return nil, fmt.Errorf("%w: the issuer has no key %q", access.ErrInvalidToken, id)
}

func (k *keySet) find(id string) (crypto.PublicKey, bool) {
	if key, ok := k.keys[id]; ok || id != "" || len(k.keys) != 1 {
		return key, ok
	}
	for _, key := range k.keys {
		return key, true
	}
	return nil, false
}

func (k *keySet) fetch(ctx context.Context) (map[string]crypto.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	if k.url == "" {
		found, err := k.discover(ctx)
		if err != nil {
			return nil, err
		}
		k.url = found
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := k.get(ctx, k.url, &set); err != nil {
		return nil, err
	}
	keys := map[string]crypto.PublicKey{}
	for _, raw := range set.Keys[:min(len(set.Keys), maxKeys)] {
		id, key, err := parseKey(raw)
		if err != nil {
			continue // a set may have keys of kinds that are not ours
		}
		keys[id] = key
	}
	if len(keys) == 0 {
		return nil, errors.New("the set has no key that can be used")
	}
	return keys, nil
}

// discover finds the key set by the issuer's metadata (RFC 8414, OpenID).
func (k *keySet) discover(ctx context.Context) (string, error) {
	u, err := url.Parse(k.issuer)
	if err != nil {
		return "", err
	}
	base, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.Path, "/")
	var errs []error
	for _, at := range []string{
		base + "/.well-known/oauth-authorization-server" + path,
		base + path + "/.well-known/openid-configuration",
	} {
		var meta struct {
			Issuer  string `json:"issuer"`
			JWKSURI string `json:"jwks_uri"`
		}
		if err := k.get(ctx, at, &meta); err != nil {
			errs = append(errs, err)
			continue
		}
		if meta.Issuer != k.issuer {
			errs = append(errs, fmt.Errorf("%s is of another issuer, %q", at, meta.Issuer))
			continue
		}
		if err := checkFetchURL(meta.JWKSURI); err != nil {
			errs = append(errs, err)
			continue
		}
		return meta.JWKSURI, nil
	}
	return "", errors.Join(errs...)
}

func (k *keySet) get(ctx context.Context, at string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	res, err := k.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", at, res.Status)
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxKeySet+1))
	if err != nil {
		return fmt.Errorf("GET %s: %w", at, err)
	}
	if len(b) > maxKeySet {
		return fmt.Errorf("GET %s: over %d bytes", at, maxKeySet)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("GET %s: %w", at, err)
	}
	return nil
}

// checkFetchURL wants https, but for loopback.
func checkFetchURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return err
	}
	if u.Scheme == "https" && u.Host != "" || u.Scheme == "http" && isLoopbackName(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("URL %q: it must be https", raw)
}

func isLoopbackName(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// parseKey reads one JSON Web Key (RFC 7517, 7518, 8037).
func parseKey(raw json.RawMessage) (id string, key crypto.PublicKey, err error) {
	var k struct {
		Kty string `json:"kty"`
		Kid string `json:"kid"`
		Use string `json:"use"`
		Crv string `json:"crv"`
		N   string `json:"n"`
		E   string `json:"e"`
		X   string `json:"x"`
		Y   string `json:"y"`
	}
	if err := json.Unmarshal(raw, &k); err != nil {
		return "", nil, err
	}
	if k.Use != "" && k.Use != "sig" {
		return "", nil, errors.New("key is not for signatures")
	}
	switch k.Kty {
	case "RSA":
		key, err = rsaKey(k.N, k.E)
	case "EC":
		key, err = ecKey(k.Crv, k.X, k.Y)
	case "OKP":
		key, err = okpKey(k.Crv, k.X)
	default:
		err = fmt.Errorf("key type %q is not served", k.Kty)
	}
	return k.Kid, key, err
}

func rsaKey(n, e string) (crypto.PublicKey, error) {
	modulus, err := base64.RawURLEncoding.DecodeString(n)
	if err != nil {
		return nil, err
	}
	exponent, err := base64.RawURLEncoding.DecodeString(e)
	if err != nil {
		return nil, err
	}
	exp := new(big.Int).SetBytes(exponent)
	if bits := len(modulus) * 8; bits < 2048 || bits > 8192 || !exp.IsInt64() || exp.Int64() < 3 || exp.Int64() > 1<<31-1 {
		return nil, errors.New("RSA key is out of bounds")
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: int(exp.Int64())}, nil
}

func ecKey(crv, x, y string) (crypto.PublicKey, error) {
	curve, ok := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[crv]
	if !ok {
		return nil, fmt.Errorf("curve %q is not served", crv)
	}
	size := (curve.Params().BitSize + 7) / 8
	point := []byte{4} // uncompressed
	for _, c := range []string{x, y} {
		b, err := base64.RawURLEncoding.DecodeString(c)
		if err != nil || len(b) != size {
			return nil, errors.New("coordinate of the wrong size")
		}
		point = append(point, b...)
	}
	return ecdsa.ParseUncompressedPublicKey(curve, point)
}

func okpKey(crv, x string) (crypto.PublicKey, error) {
	b, err := base64.RawURLEncoding.DecodeString(x)
	if err != nil || crv != "Ed25519" || len(b) != ed25519.PublicKeySize {
		return nil, errors.New("only Ed25519 keys are served")
	}
	return ed25519.PublicKey(b), nil
}
