package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/atomicfile"
)

// placesFile bounds the file with the places of listeners, in bytes.
const placesFile = 1 << 20

// positions are the places up to which listeners have told, by pattern, in a file.
type positions struct {
	path string

	mu sync.Mutex
	at map[string]string
}

func openPositions(path string) (*positions, error) {
	p := &positions{path: path, at: map[string]string{}}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read places of listeners: %w", err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.Size() > placesFile {
		return nil, fmt.Errorf("read places of listeners: %s is no file of ours", path)
	}
	if err := json.NewDecoder(f).Decode(&p.at); err != nil {
		return nil, fmt.Errorf("read places of listeners: %s: %w; remove it to begin anew", path, err)
	}
	return p, nil
}

func (p *positions) get(pattern string) (feed.Position, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, err := feed.ParsePosition(p.at[pattern])
	return at, err == nil
}

// put keeps a position; the file is replaced as a whole.
func (p *positions) put(pattern string, at feed.Position) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at[pattern] == at.String() {
		return nil
	}
	p.at[pattern] = at.String()
	if err := atomicfile.WriteJSON(p.path, p.at); err != nil {
		return fmt.Errorf("keep places of listeners: %w", err)
	}
	return nil
}

// listenersPath is where a session keeps the places of its listeners.
func listenersPath(data, session string) string {
	return filepath.Join(data, "listeners", session+".json")
}
