// Package atomicfile writes files that are there as a whole or not at all, for
// whoever reads them while they are written.
package atomicfile

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// Prefix begins the name of a file that is not whole yet. A process that was killed
// can leave one behind.
const Prefix = ".new."

// WriteJSON writes a value as a line of JSON, for us alone: the file's mode is 0600,
// that of directories that it makes 0700. It appears as a whole, in the place of
// what was there; an error leaves that as it was.
func WriteJSON(path string, v any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), Prefix+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
