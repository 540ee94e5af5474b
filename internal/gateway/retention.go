package gateway

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// Defaults of DirOptions.
const (
	DefaultKeep  = 30 * 24 * time.Hour
	DefaultTotal = 10 << 30 // bytes of all artifacts
)

const (
	// freshAge is how old an artifact must be to go for its size: what a sandbox has
	// just stored is there when its owner asks for it.
	freshAge = time.Hour
	// leftAge is how old an unfinished file must be that nobody writes any more. An
	// upload takes uploadTime at most.
	leftAge = time.Hour
	// sweepLeast is the pause between sweeps, so that what falls due at nearly the
	// same time goes at once.
	sweepLeast = time.Minute
)

// tmpPrefix begins the names of files that are not artifacts yet, or no more.
const tmpPrefix = ".tmp-"

// Swept says what a sweep has done.
type Swept struct {
	Removed int   // artifacts
	Freed   int64 // bytes
	Left    int64 // bytes that are kept
	// Next is when there may be something to remove again; zero is never.
	Next time.Time
}

// stored is an artifact as the directory has it. There is no record beside the
// file, so there is none that could disagree with it.
type stored struct {
	name string
	size int64
	at   time.Time // of its last upload
}

// Sweep removes the artifacts that are older than they may be and, the oldest
// first, what is too much, but nothing of the last hour for that; and files that
// killed processes have left unfinished. It touches nothing else in the directory.
// Several processes may sweep one at once.
func (d *Dir) Sweep(now time.Time) (Swept, error) {
	d.names.Lock()
	defer d.names.Unlock()
	s, stays, err := d.sweep(now, 0)
	if err = errors.Join(err, stays); err != nil {
		return s, fmt.Errorf("sweep artifacts: %w", err)
	}
	return s, nil
}

// sweep makes room for some bytes, too. What cannot be removed stays, and is no
// reason for anything else to fail. names is held.
func (d *Dir) sweep(now time.Time, room int64) (s Swept, stays, err error) {
	files, err := d.list(now)
	if err != nil {
		return s, nil, err
	}
	total := int64(0)
	for _, f := range files {
		total += f.size
	}
	most := int64(-1)
	if d.o.Total >= 0 {
		most = max(0, d.o.Total-room)
		if total > most { // and some more, so that not every upload has to look
			most -= most / 10
		}
	}
	var errs []error
	kept := files[:0]
	for _, f := range files {
		old := d.o.Keep >= 0 && now.Sub(f.at) >= d.o.Keep
		if !old && (most < 0 || total <= most || now.Sub(f.at) < freshAge) {
			kept = append(kept, f)
			continue
		}
		gone, err := d.remove(f)
		switch {
		case err != nil:
			errs = append(errs, err)
			kept = append(kept, f)
		case gone:
			total -= f.size
			s.Removed++
			s.Freed += f.size
		}
	}
	d.setTotal(total)
	s.Left = total
	if d.o.Keep >= 0 {
		s.Next = now.Add(d.o.Keep) // of what comes from now on
		if len(kept) > 0 {
			s.Next = kept[0].at.Add(d.o.Keep)
		}
		if soonest := now.Add(sweepLeast); s.Next.Before(soonest) {
			s.Next = soonest
		}
	}
	return s, errors.Join(errs...), nil
}

// list returns the artifacts, the oldest first, and removes what was left of
// others.
func (d *Dir) list(now time.Time) ([]stored, error) {
	dir, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var files []stored
	for _, e := range entries {
		left := strings.HasPrefix(e.Name(), tmpPrefix)
		if !e.Type().IsRegular() || !left && !isArtifact(e.Name()) {
			continue
		}
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // another process was faster
		case err != nil:
			return nil, err
		case !left:
			files = append(files, stored{e.Name(), info.Size(), info.ModTime()})
		case now.Sub(info.ModTime()) >= leftAge:
			_ = d.root.Remove(e.Name()) // the next sweep tries again
		}
	}
	slices.SortFunc(files, func(a, b stored) int { return a.at.Compare(b.at) })
	return files, nil
}

// remove takes an artifact's name away and looks once more: another process may
// have stored the same content again, and that is not the one that is too old.
func (d *Dir) remove(f stored) (gone bool, err error) {
	tmp := tmpPrefix + rand.Text()
	err = d.root.Rename(f.name, tmp)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	info, err := d.root.Stat(tmp)
	if err == nil && !info.ModTime().Equal(f.at) {
		return false, d.root.Rename(tmp, f.name)
	}
	if err = d.root.Remove(tmp); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err == nil, err
}

// publish gives a file that is whole its name.
func (d *Dir) publish(tmp, name string, size int64) error {
	d.names.Lock()
	defer d.names.Unlock()
	replaced := int64(0)
	if info, err := d.root.Stat(name); err == nil {
		replaced = info.Size()
	}
	if err := d.root.Rename(tmp, name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending -= size
	d.total += size - replaced
	return nil
}

// room makes room for bytes of an upload that go beyond the total.
func (d *Dir) room(bytes int64) error {
	if d.o.Total < 0 || d.fits(bytes) {
		return nil
	}
	d.names.Lock()
	defer d.names.Unlock()
	if d.fits(bytes) { // another upload has made room
		return nil
	}
	d.mu.Lock()
	need := d.pending + bytes
	d.mu.Unlock()
	if _, _, err := d.sweep(time.Now(), need); err != nil {
		return fmt.Errorf("make room for it: %w", err)
	}
	if !d.fits(bytes) {
		return ErrFull
	}
	return nil
}

func (d *Dir) fits(bytes int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total+d.pending+bytes <= d.o.Total
}

func (d *Dir) setTotal(total int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total = total
}

// Bounds says how long artifacts are kept, for people.
func (d *Dir) Bounds() string {
	var parts []string
	if d.o.Keep >= 0 {
		parts = append(parts, "for "+span(d.o.Keep))
	}
	if d.o.Total >= 0 {
		parts = append(parts, fmt.Sprintf("as long as all have at most %d bytes", d.o.Total))
	}
	return strings.Join(parts, ", and ")
}

func span(d time.Duration) string {
	if day := 24 * time.Hour; d%day == 0 {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.String()
}

// Forget ends the account of a session that stores nothing more.
func (d *Dir) Forget(session string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.used, session)
}

func isArtifact(name string) bool {
	id, ok := strings.CutPrefix(name, "art_")
	return ok && len(id) == 26 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
}
