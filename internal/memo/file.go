package memo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// load fills the store from its file. A missing file is an empty store; a file
// that is not a JSON object of our size is an error and stays untouched.
func (s *Store) load() error {
	f, err := os.Open(s.opts.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	// Quotes, commas and escapes make the file longer than what it holds.
	limit := int64(2*s.opts.MaxBytes + 16*s.opts.MaxKeys)
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return err
	}
	if int64(len(data)) > limit {
		return fmt.Errorf("%s: larger than %d bytes", s.opts.Path, limit)
	}
	if err := s.decode(data); err != nil {
		return fmt.Errorf("%s: %w", s.opts.Path, err)
	}
	return nil
}

// decode replaces the notes by the members of a JSON object.
func (s *Store) decode(data []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	if dec.PeekKind() != '{' {
		return errors.New("not a JSON object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	var notes []note
	size := 0
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		raw, err := dec.ReadValue()
		if err != nil {
			return err
		}
		v, err := s.check(key, slices.Clone(json.RawMessage(raw)))
		if err != nil {
			return err
		}
		notes = append(notes, note{key, v})
		size += len(key) + len(v)
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("text after the JSON object")
	}
	if len(notes) > s.opts.MaxKeys {
		return &LimitError{What: "keys", Limit: s.opts.MaxKeys, Hint: "remove notes from the file"}
	}
	if size > s.opts.MaxBytes {
		return &LimitError{What: "bytes", Limit: s.opts.MaxBytes, Hint: "remove notes from the file"}
	}
	s.notes, s.bytes = notes, size
	return nil
}

// save replaces the file by a new one with a rename, so that a reader and a
// crash see either the old notes or the new ones.
func (s *Store) save(data json.RawMessage) (err error) {
	if s.opts.Path == "" {
		return nil
	}
	dir := filepath.Dir(s.opts.Path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(s.opts.Path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), s.opts.Path)
}
