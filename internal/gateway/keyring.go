package gateway

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/atomicfile"
	"github.com/ossicle/ossicle/internal/logattr"
)

const (
	// DefaultKeyAge is how old a key that signs worker tokens becomes.
	DefaultKeyAge = 30 * 24 * time.Hour
	// maxKeys are the key that signs, and the one before, whose tokens still live.
	maxKeys    = 2
	maxKeyFile = 64 << 10 // bytes
	// tokenIssuer is the same for all daemons: what tells them apart is the key.
	tokenIssuer = "ossicle"
)

// Keyring issues the tokens of sandboxes, signed with keys of a file. A file of
// our own is rotated, by a timer for the day; one that is shared is somebody
// else's to rotate, and read again when a token of an unknown key comes. It
// implements worker.Authenticator.
type Keyring struct {
	path string
	own  bool
	age  time.Duration
	log  *slog.Logger

	mu     sync.Mutex
	keys   []storedKey // newest first
	tokens *Tokens
	read   time.Time // modification time of what was read
	timer  *time.Timer
	closed bool
}

// storedKey is a key as it is kept.
type storedKey struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Seed    []byte    `json:"seed"`
}

type keyFile struct {
	Keys []storedKey `json:"keys"`
}

// KeyringOptions configure a [Keyring]. The zero value is usable.
type KeyringOptions struct {
	// Shared says that the file is somebody else's to rotate.
	Shared bool
	// Age is how old a key of our own becomes; zero is DefaultKeyAge.
	Age time.Duration
	// Life is how long a token can live: a key that has signed is kept for that long
	// after.
	Life   time.Duration
	Logger *slog.Logger // nil discards
}

// OpenKeyring reads the keys of a file, which it makes. Without a path they are in
// memory. The caller closes it.
func OpenKeyring(path string, o *KeyringOptions) (*Keyring, error) {
	if o == nil {
		o = &KeyringOptions{}
	}
	k := &Keyring{path: path, own: !o.Shared, age: max(cmp.Or(o.Age, DefaultKeyAge), o.Life), log: o.Logger}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	err := k.load()
	due := err == nil && k.own && len(k.keys) > 0 && !time.Now().Before(k.keys[0].Created.Add(k.age))
	if path == "" || due || errors.Is(err, fs.ErrNotExist) {
		err = k.renew(time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("open keys of worker tokens: %w", err)
	}
	k.schedule()
	return k, nil
}

// load reads the file.
func (k *Keyring) load() error {
	if k.path == "" {
		return nil
	}
	info, err := os.Stat(k.path)
	if err != nil {
		return err
	}
	open := info.Mode().Perm() & 0o007
	if k.own {
		open = info.Mode().Perm() & 0o077
	}
	switch {
	case open != 0:
		return fmt.Errorf("%s can be read by others: chmod 600", k.path)
	case info.Size() > maxKeyFile:
		return fmt.Errorf("%s is larger than %d bytes", k.path, maxKeyFile)
	}
	text, err := os.ReadFile(k.path)
	if err != nil {
		return err
	}
	var f keyFile
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("%s is no file of keys", k.path) // its text is a secret
	}
	if err := k.use(f.Keys); err != nil {
		return fmt.Errorf("%s: %w", k.path, err)
	}
	k.read = info.ModTime()
	return nil
}

// use takes keys, newest first.
func (k *Keyring) use(keys []storedKey) error {
	var usable []Key
	for _, one := range keys {
		if len(one.Seed) != ed25519.SeedSize {
			return fmt.Errorf("the key %q is not one", one.ID)
		}
		usable = append(usable, Key{ID: one.ID, Private: ed25519.NewKeyFromSeed(one.Seed)})
	}
	tokens, err := NewTokens(tokenIssuer, usable...)
	if err != nil {
		return err
	}
	k.keys, k.tokens = keys, tokens
	return nil
}

// renew puts a new key first, and drops those whose tokens are dead.
func (k *Keyring) renew(now time.Time) error {
	fresh, err := NewKey()
	if err != nil {
		return err
	}
	keys := append([]storedKey{{ID: fresh.ID, Created: now.UTC(), Seed: fresh.Private.Seed()}}, k.keys...)
	keys = keys[:min(len(keys), maxKeys)]
	if k.path != "" {
		if err := atomicfile.WriteJSON(k.path, keyFile{keys}); err != nil {
			return err
		}
	}
	return k.use(keys)
}

// schedule arms the timer for the next rotation.
func (k *Keyring) schedule() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.scheduleLocked()
}

func (k *Keyring) scheduleLocked() {
	if k.closed || !k.own || len(k.keys) == 0 {
		return
	}
	k.timer = time.AfterFunc(time.Until(k.keys[0].Created.Add(k.age)), k.rotate)
}

func (k *Keyring) rotate() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	if err := k.renew(time.Now()); err != nil {
		// The old key goes on signing; the next start tries again.
		k.log.Warn("the key of worker tokens could not be rotated", logattr.Err(err))
		return
	}
	k.scheduleLocked()
}

// Tokens are those that are issued now.
func (k *Keyring) Tokens() *Tokens {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tokens
}

// Authenticate implements worker.Authenticator.
func (k *Keyring) Authenticate(ctx context.Context, token string) (string, error) {
	id, err := k.Tokens().Authenticate(ctx, token)
	if err == nil || !k.reload() {
		return id, err
	}
	return k.Tokens().Authenticate(ctx, token)
}

// reload reads a shared file again if it has changed.
func (k *Keyring) reload() bool {
	if k.own || k.path == "" {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if info, err := os.Stat(k.path); err != nil || info.ModTime().Equal(k.read) {
		return false
	}
	if err := k.load(); err != nil {
		k.log.Warn("the keys of worker tokens could not be read again", logattr.Err(err))
		return false
	}
	return true
}

// Close ends the rotation.
func (k *Keyring) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.timer != nil {
		k.timer.Stop()
	}
}
