package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// spec is what is kept of a watch.
type spec StartRequest

// stateVersion is the form of the state file.
const stateVersion = 1

// maxStateFile bounds the state file, in bytes.
const maxStateFile = 16 << 20

// stateFile keeps the specifications of watches (W-130 to W-137). It is written
// whole: to a file beside it that then takes its name, so that a crash leaves the
// old or the new one.
type stateFile struct {
	path string

	mu       sync.Mutex // one load or write at a time
	loaded   bool
	problem  string // why the file was set aside, for the restore notice
	disabled bool   // there is something that must be left alone: nothing is written
}

type stateContent struct {
	Version int    `json:"version"`
	Watches []spec `json:"watches"`
}

// errNotRegular: the path leads to a directory, a device or the like, which is
// a slip of whoever gave it and not a file of ours.
var errNotRegular = errors.New("read watch state: not a regular file")

// load reads the file. A file that cannot be understood is set aside, so that
// nothing is overwritten (W-137); what is no file at all is left where it is.
func (f *stateFile) load() []spec {
	specs, err := f.read()
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return specs
	}
	if errors.Is(err, errNotRegular) {
		f.disabled = true
		f.problem = fmt.Sprintf("the watch state file %s cannot be used (%v); watches are not saved", f.path, err)
		return nil
	}
	aside := fmt.Sprintf("%s.unreadable-%s", f.path, time.Now().UTC().Format("20060102T150405.000Z"))
	if moveErr := os.Rename(f.path, aside); moveErr != nil {
		f.disabled = true
		f.problem = fmt.Sprintf("the watch state file %s cannot be read (%v) nor set aside; watches are not saved", f.path, err)
		return nil
	}
	f.problem = fmt.Sprintf("the watch state file %s could not be read (%v); it was set aside as %s and no watch was restored", f.path, err, aside)
	return nil
}

func (f *stateFile) read() ([]spec, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	if info.Size() > maxStateFile {
		return nil, fmt.Errorf("read watch state: %d bytes, more than %d", info.Size(), maxStateFile)
	}
	raw, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	var content stateContent
	if err := json.Unmarshal(raw, &content); err != nil {
		return nil, err
	}
	if content.Version != stateVersion {
		return nil, fmt.Errorf("read watch state: version %d is not %d", content.Version, stateVersion)
	}
	return content.Watches, nil
}

func (f *stateFile) write(specs []spec) error {
	if f.disabled {
		return nil
	}
	raw, err := json.MarshalIndent(stateContent{stateVersion, specs}, "", "  ")
	if err != nil {
		return fmt.Errorf("write watch state: %w", err)
	}
	if err := replaceFile(f.path, append(raw, '\n')); err != nil {
		return fmt.Errorf("write watch state: %w", err)
	}
	return nil
}

// replaceFile writes a file so that a reader, or a reboot, finds the old or the
// new one whole. Sources of filters may be private: only the owner may read.
func replaceFile(path string, content []byte) error {
	dir := filepath.Dir(path)
	temp, err := os.CreateTemp(dir, filepath.Base(path)+".tmp-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = temp.Write(content)
	if err == nil {
		err = temp.Sync()
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// load makes the specifications of the state file known, once, before anything
// can overwrite it.
func (m *Manager) load(ctx context.Context) {
	if m.file == nil {
		return
	}
	m.file.mu.Lock()
	defer m.file.mu.Unlock()
	if m.file.loaded {
		return
	}
	m.file.loaded = true
	for _, s := range m.file.load() {
		m.mu.Lock()
		m.number++
		m.saved[s.Name] = &savedWatch{spec: s, number: m.number, restore: true, err: errNotRestored}
		m.mu.Unlock()
	}
	if m.file.problem != "" {
		m.log.LogAttrs(ctx, slog.LevelWarn, "watch.state_unreadable", logattr.Reason(m.file.problem))
	}
}

var errNotRestored = errors.New("not started since the program began")

// save writes the file if the engine has one. A watch is not ended because it
// cannot be saved; the operator is told.
func (m *Manager) save(ctx context.Context) {
	if m.file == nil {
		return
	}
	m.file.mu.Lock()
	defer m.file.mu.Unlock()
	if err := m.file.write(m.specs()); err != nil {
		m.log.LogAttrs(ctx, slog.LevelWarn, "watch.state_unwritten", logattr.Err(err))
	}
}

// specs are those of the watches that run and of those that are kept, in the
// order of their starts.
func (m *Manager) specs() []spec {
	m.mu.Lock()
	defer m.mu.Unlock()
	numbers := map[string]int{}
	specs := []spec{}
	for name, w := range m.watches {
		numbers[name] = w.number
		specs = append(specs, w.spec)
	}
	for name, s := range m.saved {
		if _, runs := m.watches[name]; !runs {
			numbers[name] = s.number
			specs = append(specs, s.spec)
		}
	}
	slices.SortFunc(specs, func(a, b spec) int { return numbers[a.Name] - numbers[b.Name] })
	return specs
}
