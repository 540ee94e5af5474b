package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func mustOpenKeyring(t *testing.T, path string, own bool, age time.Duration) *Keyring {
	t.Helper()
	w, err := OpenKeyring(path, &KeyringOptions{Shared: !own, Age: age, Life: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Keys are ours alone, outlive the process, and are rotated by a timer: a token of
// the key before is good for as long as it can live, and no longer.
func TestWorkerKeysRotate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.json")
	synctest.Test(t, func(t *testing.T) {
		w := mustOpenKeyring(t, path, true, 24*time.Hour)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		first, err := w.Tokens().Issue("s1", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		w = mustOpenKeyring(t, path, true, 24*time.Hour)
		if id, err := w.Authenticate(t.Context(), first); err != nil || id != "s1" {
			t.Errorf("after a restart: %q, %v", id, err)
		}
		time.Sleep(24*time.Hour - time.Minute)
		old, err := w.Tokens().Issue("s2", 90*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(w.keys) != 2 {
			t.Fatalf("%d keys", len(w.keys))
		}
		if _, err := w.Authenticate(t.Context(), old); err != nil {
			t.Errorf("a token of the key before: %v", err)
		}
		fresh, err := w.Tokens().Issue("s3", 48*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if len(w.keys) != 2 {
			t.Errorf("%d keys", len(w.keys))
		}
		if _, err := w.Authenticate(t.Context(), old); err == nil {
			t.Error("a key that nobody needs is believed")
		}
		if _, err := w.Authenticate(t.Context(), fresh); err != nil {
			t.Errorf("%v", err)
		}
		w.Close()
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if again := mustOpenKeyring(t, path, true, 24*time.Hour); again.keys[0].ID == w.keys[0].ID {
			t.Error("a key that is due is not replaced at the start")
		} else {
			again.Close()
		}
	})
}

// A key lives at least as long as the longest token of the catalogue, whatever the
// configuration says.
func TestKeysOutliveTokens(t *testing.T) {
	t.Parallel()
	w, err := OpenKeyring("", &KeyringOptions{Age: time.Hour, Life: 30 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if w.age != 30*time.Hour {
		t.Errorf("rotated after %s", w.age)
	}
}

// A file that is shared is not ours to rotate; another's rotation is seen when the
// first token of the new key comes.
func TestSharedKeys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.json")
	one := mustOpenKeyring(t, path, false, time.Hour)
	two := mustOpenKeyring(t, path, false, time.Hour)
	if one.timer != nil || two.keys[0].ID != one.keys[0].ID {
		t.Error("a shared key is rotated, or made twice")
	}
	one.mu.Lock()
	err := one.renew(time.Now())
	one.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Now(), time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	token, err := one.Tokens().Issue("s1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := two.Authenticate(t.Context(), token); err != nil || id != "s1" {
		t.Errorf("%q, %v", id, err)
	}
}

func TestKeyFileMistakes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text, want string
		mode             os.FileMode
		own              bool
	}{
		{"not JSON", "secret-canary", "is no file of keys", 0o600, true},
		{"no key", `{"keys":[]}`, "a key are needed", 0o600, true},
		{"short", `{"keys":[{"id":"a","seed":"c2hvcnQ="}]}`, `the key "a" is not one`, 0o600, true},
		{"of the group", `{"keys":[]}`, "chmod 600", 0o640, true},
		{"of all", `{"keys":[]}`, "chmod 600", 0o604, false},
	} {
		path := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(path, []byte(tc.text), tc.mode); err != nil {
			t.Fatal(err)
		}
		_, err := OpenKeyring(path, &KeyringOptions{Shared: !tc.own, Age: time.Hour, Life: time.Hour})
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
