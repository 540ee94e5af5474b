package cli

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// A data directory of somebody else is not one from which nobody serves.
func TestADirectoryThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	usage := (*usageError)(nil)
	err := noServer("/data", &fs.PathError{Op: "open", Path: "/data/token", Err: fs.ErrPermission})
	if !errors.As(err, &usage) || !strings.Contains(err.Error(), "/data/token") || !strings.Contains(err.Error(), "run this as the user who serves") {
		t.Errorf("a token that may not be read: %v", err)
	}
	none := readable(filepath.Join(t.TempDir(), "token"))
	if err := noServer("/data", none); !errors.Is(err, errNoServer) || !errors.Is(none, fs.ErrNotExist) {
		t.Errorf("no token: %v", err)
	}
}
