package gateway

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"
)

// What another process has stored again between the look and the removal stays.
func TestRemoveSparesWhatIsNew(t *testing.T) {
	t.Parallel()
	d, err := OpenDir(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	uri, _, err := d.Put(t.Context(), "s", sha256.Sum256([]byte("x")), strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(uri, "store://")
	if gone, err := d.remove(stored{name: name, size: 1, at: time.Now().Add(-time.Hour)}); gone || err != nil {
		t.Errorf("removed: %v, %v", gone, err)
	}
	r, _, err := d.Open(uri)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	// The account of a session ends with it.
	if d.Forget("s"); len(d.used) != 0 {
		t.Error("the account is still there")
	}
}
