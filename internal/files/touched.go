package files

import (
	"context"
	"errors"
	"fmt"

	"github.com/fsnotify/fsnotify"
)

// Touched calls touched when the file at path is written to, without delay:
// there is no settling. It calls it once as soon as it watches, and again when
// the kernel may have dropped events. A call may stand for several writes. It
// returns nil when ctx ends, and an error when the file is not there or is
// removed: whoever replaces it is not followed.
func Touched(ctx context.Context, path string, touched func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch file %s: %w", path, err)
	}
	defer func() { _ = w.Close() }()
	if err := w.Add(path); err != nil {
		return fmt.Errorf("watch file %s: %w", path, err)
	}
	touched()
	for {
		select {
		case e := <-w.Events:
			if e.Has(fsnotify.Remove | fsnotify.Rename) {
				return fmt.Errorf("watch file %s: it was removed", path)
			}
			if e.Has(fsnotify.Write) {
				touched()
			}
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch file %s: %w", path, err)
			}
			touched()
		case <-ctx.Done():
			return nil
		}
	}
}
