package app

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/ossicle/ossicle/internal/config"
)

// Of two processes that keep their watches in one file the second is told, and can
// have it when the first has gone.
func TestOneProcessKeepsWatchesInAFile(t *testing.T) {
	t.Parallel()
	o := &ClientOptions{StatePath: filepath.Join(t.TempDir(), "new", "watches.json")}
	first, err := NewClient(config.Default(), nil, o)
	if err != nil {
		t.Fatal(err)
	}
	var used *StateInUseError
	if _, err := NewClient(config.Default(), nil, o); !errors.As(err, &used) || used.Path != o.StatePath {
		t.Errorf("second: %v", err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := NewClient(config.Default(), nil, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
