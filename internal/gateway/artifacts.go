package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"
)

// Defaults of DirOptions.
const (
	DefaultMaxArtifact  = 256 << 20 // bytes of one
	DefaultSessionQuota = 1 << 30   // bytes of a session
	DefaultSessionFiles = 1000
)

// uriPrefix begins the address of an artifact.
const uriPrefix = "store://art_"

// Errors of artifact stores.
var (
	ErrDigest     = errors.New("the content is not that of its name")
	ErrQuota      = errors.New("the session may store no more")
	ErrFull       = errors.New("all artifacts together have as many bytes as they may, and those of the last hour stay")
	ErrNoArtifact = errors.New("no such artifact")
)

// ArtifactURI is the address of content: a prefix of its hash.
func ArtifactURI(sum [sha256.Size]byte) string {
	return uriPrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))[:26]
}

// DirOptions configure a [Dir]. The zero value is usable.
type DirOptions struct {
	MaxArtifact  int64 // bytes of one artifact
	SessionQuota int64 // bytes that a session may store while this process runs
	SessionFiles int   // artifacts likewise
	// Keep is how long an artifact is kept after its last upload, Total bounds the
	// bytes of all: the oldest go first, see Dir.Sweep. Negative is no bound.
	Keep  time.Duration
	Total int64
}

// Dir keeps artifacts as files below one directory, each under its own name.
// Contents are addressed by their hash, so a second upload of the same changes
// nothing. It is safe for concurrent use.
type Dir struct {
	root *os.Root
	o    DirOptions

	names sync.Mutex // over what gives and takes names; before mu

	mu      sync.Mutex
	used    map[string]usage
	total   int64 // bytes of what is stored, as of the last sweep and since
	pending int64 // bytes of uploads under way
}

type usage struct {
	bytes int64
	files int
}

// OpenDir opens a directory of artifacts, which it makes if need be. It sweeps it
// to learn what there is.
func OpenDir(path string, o *DirOptions) (*Dir, error) {
	d := &Dir{used: map[string]usage{}}
	if o != nil {
		d.o = *o
	}
	if d.o.MaxArtifact <= 0 {
		d.o.MaxArtifact = DefaultMaxArtifact
	}
	if d.o.SessionQuota <= 0 {
		d.o.SessionQuota = DefaultSessionQuota
	}
	if d.o.SessionFiles <= 0 {
		d.o.SessionFiles = DefaultSessionFiles
	}
	if d.o.Keep == 0 {
		d.o.Keep = DefaultKeep
	}
	if d.o.Total == 0 {
		d.o.Total = DefaultTotal
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("open artifacts: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open artifacts: %w", err)
	}
	d.root = root
	if d.o.Keep < 0 && d.o.Total < 0 {
		return d, nil // it is somebody's own directory
	}
	if _, _, err := d.sweep(time.Now(), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("open artifacts: %w", err), root.Close())
	}
	return d, nil
}

// Close ends the use of the directory.
func (d *Dir) Close() error { return d.root.Close() }

// Put stores content whose hash is sum for a session, and returns its address
// and size. The hash is computed here; nothing is kept of content with another.
// Errors: ErrDigest, ErrQuota, ErrFull, or the reader's.
func (d *Dir) Put(_ context.Context, session string, sum [sha256.Size]byte, content io.Reader) (uri string, size int64, err error) {
	uri = ArtifactURI(sum)
	if err := d.reserve(session, 0, 1); err != nil {
		return "", 0, err
	}
	size, err = d.write(sum, strings.TrimPrefix(uri, "store://"), session, content)
	if err != nil {
		_ = d.reserve(session, 0, -1)
		return "", 0, fmt.Errorf("store artifact: %w", err)
	}
	return uri, size, nil
}

// reserve counts what a session stores. A negative count gives back.
func (d *Dir) reserve(session string, bytes int64, files int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.used[session]
	u.bytes += bytes
	u.files += files
	if (bytes > 0 || files > 0) && (u.bytes > d.o.SessionQuota || u.files > d.o.SessionFiles) {
		return fmt.Errorf("store artifact: %w", ErrQuota)
	}
	d.used[session] = u
	d.pending += bytes
	return nil
}

// write makes the file whole before it has its name.
func (d *Dir) write(sum [sha256.Size]byte, name, session string, content io.Reader) (size int64, err error) {
	tmp := tmpPrefix + rand.Text()
	f, err := d.root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		_ = f.Close()
		if err != nil {
			_ = d.root.Remove(tmp)
			_ = d.reserve(session, -size, 0)
		}
	}()
	hash := sha256.New()
	buf := make([]byte, 64<<10)
	for {
		n, readErr := content.Read(buf)
		if n > 0 {
			if size+int64(n) > d.o.MaxArtifact {
				return size, ErrQuota
			}
			if err := d.room(int64(n)); err != nil {
				return size, err
			}
			if err := d.reserve(session, int64(n), 0); err != nil {
				return size, err
			}
			size += int64(n)
			hash.Write(buf[:n])
			if _, err := f.Write(buf[:n]); err != nil {
				return size, err
			}
		}
		if errors.Is(readErr, io.EOF) {
			break
		}
		if readErr != nil {
			return size, readErr
		}
	}
	if [sha256.Size]byte(hash.Sum(nil)) != sum {
		return size, ErrDigest
	}
	if err := f.Sync(); err != nil {
		return size, err
	}
	return size, d.publish(tmp, name, size)
}

// Open reads an artifact. Errors: ErrNoArtifact.
func (d *Dir) Open(uri string) (io.ReadCloser, int64, error) {
	name, ok := strings.CutPrefix(uri, "store://")
	if !ok || !isArtifact(name) {
		return nil, 0, fmt.Errorf("open artifact: %w", ErrNoArtifact)
	}
	f, err := d.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("open artifact: %w", ErrNoArtifact)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open artifact: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, fmt.Errorf("open artifact: %w", err)
	}
	return f, info.Size(), nil
}

// parseSum reads a hash as it stands in a path: lower-case hexadecimal.
func parseSum(text string) (sum [sha256.Size]byte, ok bool) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(sum) || strings.ToLower(text) != text {
		return sum, false
	}
	return [sha256.Size]byte(raw), true
}
