package files

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// F-12: a write is told at once, an end is no error, a removal is one.
func TestTouched(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bell")
	if err := Touched(t.Context(), path, func() {}); err == nil {
		t.Error("a file that is not there was watched")
	}
	write := func() {
		t.Helper()
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	calls := make(chan struct{}, 100)
	done := make(chan error, 1)
	go func() { done <- Touched(ctx, path, func() { calls <- struct{}{} }) }()
	await := func() {
		t.Helper()
		select {
		case <-calls:
		case <-ctx.Done():
			t.Fatal("not told")
		}
	}
	await()
	write()
	await()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || ctx.Err() != nil {
		t.Errorf("removed: %v", err)
	}
	write()
	over, end := context.WithCancel(t.Context())
	if err := Touched(over, path, end); err != nil {
		t.Errorf("ended: %v", err)
	}
}
