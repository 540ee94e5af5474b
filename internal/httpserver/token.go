package httpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ossicle/ossicle/internal/access"
)

// minToken is the length below which a token is a guess away.
const minToken = 16

// StaticToken is a token that is known beforehand.
type StaticToken struct {
	Principal access.Principal
	// SHA256 is the hash of the token: the server needs no more. See [HashToken].
	SHA256 [sha256.Size]byte
}

// HashToken returns the hash of a token, or an error for one that is too short
// to be a secret.
func HashToken(token string) ([sha256.Size]byte, error) {
	if len(token) < minToken {
		return [sha256.Size]byte{}, fmt.Errorf("hash token: it has %d characters; use at least %d random ones", len(token), minToken)
	}
	return sha256.Sum256([]byte(token)), nil
}

// StaticTokens are an [Authenticator] of tokens that are known beforehand.
type StaticTokens []StaticToken

// Verify implements [Authenticator]. It takes the same time wherever the token
// stands in the list.
func (all StaticTokens) Verify(_ context.Context, token string) (*access.Principal, error) {
	sum := sha256.Sum256([]byte(token))
	var found *access.Principal
	for i := range all {
		if subtle.ConstantTimeCompare(all[i].SHA256[:], sum[:]) == 1 {
			found = &all[i].Principal
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: it is not one of those that were given out", access.ErrInvalidToken)
	}
	return found, nil
}

// TokenFile reads the token of a file, which is made with a new one if it does
// not exist. Only its owner may read it (0600); a file that others can read is
// refused. Whoever has the token has all rights, as the local user has.
func TokenFile(path string) (StaticTokens, error) {
	token, err := readTokenFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeTokenFile(path); err == nil {
			token, err = readTokenFile(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	sum, err := HashToken(token)
	if err != nil {
		return nil, fmt.Errorf("token file %s: %w", path, err)
	}
	return StaticTokens{{Principal: access.Principal{Name: "local", Rights: access.AllRights()}, SHA256: sum}}, nil
}

// ReadTokenFile returns the token of a file, for a client of a server on
// loopback. It makes none.
func ReadTokenFile(path string) (string, error) {
	token, err := readTokenFile(path)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	return token, nil
}

func readTokenFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s: others can read it: chmod 600 it, or remove it to get a new one", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, 4<<10))
	return string(bytes.TrimSpace(b)), err
}

// makeTokenFile makes a file with a new token. It appears as a whole, and of two
// processes that make it at once one wins.
func makeTokenFile(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it cannot fail
	f, err := os.CreateTemp(dir, ".token.*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(base64.RawURLEncoding.EncodeToString(secret[:]) + "\n")
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
