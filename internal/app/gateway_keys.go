package app

import (
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
	"github.com/ossicle/ossicle/internal/gateway"
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

// workerTokens are the tokens of sandboxes, signed with keys of a file. A file of
// our own is rotated, by a timer for the day; one that is shared is somebody
// else's to rotate, and read again when a token of an unknown key comes. It
// implements worker.Authenticator.
type workerTokens struct {
	path string
	own  bool
	age  time.Duration
	log  *slog.Logger

	mu     sync.Mutex
	keys   []signingKey // newest first
	tokens *gateway.Tokens
	read   time.Time // modification time of what was read
	timer  *time.Timer
	closed bool
}

// signingKey is a key as it is kept.
type signingKey struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Seed    []byte    `json:"seed"`
}

type keyFile struct {
	Keys []signingKey `json:"keys"`
}

// openWorkerTokens reads the keys of a file, which it makes. Without a path they
// are in memory. life is how long a token can live: a key that has signed is kept
// for that long after.
func openWorkerTokens(path string, own bool, age, life time.Duration, log *slog.Logger) (*workerTokens, error) {
	w := &workerTokens{path: path, own: own, age: max(age, life), log: log}
	err := w.load()
	due := err == nil && own && len(w.keys) > 0 && !time.Now().Before(w.keys[0].Created.Add(w.age))
	if path == "" || due || errors.Is(err, fs.ErrNotExist) {
		err = w.renew(time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("open keys of worker tokens: %w", err)
	}
	w.schedule()
	return w, nil
}

// load reads the file.
func (w *workerTokens) load() error {
	if w.path == "" {
		return nil
	}
	info, err := os.Stat(w.path)
	if err != nil {
		return err
	}
	open := info.Mode().Perm() & 0o007
	if w.own {
		open = info.Mode().Perm() & 0o077
	}
	switch {
	case open != 0:
		return fmt.Errorf("%s can be read by others: chmod 600", w.path)
	case info.Size() > maxKeyFile:
		return fmt.Errorf("%s is larger than %d bytes", w.path, maxKeyFile)
	}
	text, err := os.ReadFile(w.path)
	if err != nil {
		return err
	}
	var f keyFile
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("%s is no file of keys", w.path) // its text is a secret
	}
	if err := w.use(f.Keys); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	w.read = info.ModTime()
	return nil
}

// use takes keys, newest first.
func (w *workerTokens) use(keys []signingKey) error {
	var usable []gateway.Key
	for _, k := range keys {
		if len(k.Seed) != ed25519.SeedSize {
			return fmt.Errorf("the key %q is not one", k.ID)
		}
		usable = append(usable, gateway.Key{ID: k.ID, Private: ed25519.NewKeyFromSeed(k.Seed)})
	}
	tokens, err := gateway.NewTokens(tokenIssuer, usable...)
	if err != nil {
		return err
	}
	w.keys, w.tokens = keys, tokens
	return nil
}

// renew puts a new key first, and drops those whose tokens are dead.
func (w *workerTokens) renew(now time.Time) error {
	k, err := gateway.NewKey()
	if err != nil {
		return err
	}
	keys := append([]signingKey{{ID: k.ID, Created: now.UTC(), Seed: k.Private.Seed()}}, w.keys...)
	keys = keys[:min(len(keys), maxKeys)]
	if w.path != "" {
		if err := atomicfile.WriteJSON(w.path, keyFile{keys}); err != nil {
			return err
		}
	}
	return w.use(keys)
}

// schedule arms the timer for the next rotation.
func (w *workerTokens) schedule() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scheduleLocked()
}

func (w *workerTokens) scheduleLocked() {
	if w.closed || !w.own || len(w.keys) == 0 {
		return
	}
	w.timer = time.AfterFunc(time.Until(w.keys[0].Created.Add(w.age)), w.rotate)
}

func (w *workerTokens) rotate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if err := w.renew(time.Now()); err != nil {
		// The old key goes on signing; the next start tries again.
		w.log.Warn("the key of worker tokens could not be rotated", logattr.Err(err))
		return
	}
	w.scheduleLocked()
}

// current are the tokens that are issued now.
func (w *workerTokens) current() *gateway.Tokens {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tokens
}

// Authenticate implements worker.Authenticator.
func (w *workerTokens) Authenticate(ctx context.Context, token string) (string, error) {
	id, err := w.current().Authenticate(ctx, token)
	if err == nil || !w.reload() {
		return id, err
	}
	return w.current().Authenticate(ctx, token)
}

// reload reads a shared file again if it has changed.
func (w *workerTokens) reload() bool {
	if w.own || w.path == "" {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if info, err := os.Stat(w.path); err != nil || info.ModTime().Equal(w.read) {
		return false
	}
	if err := w.load(); err != nil {
		w.log.Warn("the keys of worker tokens could not be read again", logattr.Err(err))
		return false
	}
	return true
}

func (w *workerTokens) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
