package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ossicle/ossicle/feed"
)

// Watch calls touched when the file at path is written to: once as soon as it
// watches, and again after it may have missed something. It returns nil when ctx
// ends, and an error when the file is gone. The kernel tells it; it does not
// poll.
type Watch func(ctx context.Context, path string, touched func()) error

// Bell is the feed.Bus between the processes that use one file: a small file
// beside it, which is written to after each commit and watched. The database's
// own files would not do: they are written before a commit can be seen, and the
// moment when it can makes no sound.
type Bell struct {
	path  string
	watch Watch
}

var _ feed.Bus = (*Bell)(nil)

// OpenBell opens the bell of a feed, which is the same for all who open the
// same database file. It begins a new epoch if the file is older than the bell:
// somebody has put back a copy of it, and the ids behind it will be given again
// (specification F-1).
func OpenBell(ctx context.Context, f *Feed, watch Watch) (*Bell, error) {
	var path string
	row := f.db.reader.db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`)
	if err := row.Scan(&path); err != nil {
		return nil, fmt.Errorf("open bell: %w", err)
	}
	b := &Bell{path: path + "-bell", watch: watch}
	file, err := b.open()
	if err != nil {
		return nil, fmt.Errorf("open bell: %w", err)
	}
	if err := errors.Join(compare(ctx, f, file), file.Close()); err != nil {
		return nil, fmt.Errorf("open bell: %w", err)
	}
	return b, nil
}

// open opens the bell for a moment, so that one that was deleted comes back.
func (b *Bell) open() (*os.File, error) { return os.OpenFile(b.path, os.O_CREATE|os.O_RDWR, 0o600) }

// bellSize is the length of what is written to the bell, so that a shorter
// position leaves nothing behind of a longer one.
const bellSize = 64

// compare looks at the bell before the log: what was rung can be seen.
func compare(ctx context.Context, f *Feed, file *os.File) error {
	text := make([]byte, bellSize)
	n, _ := file.ReadAt(text, 0)
	rung, err := feed.ParsePosition(string(bytes.TrimRight(text[:n], " \n")))
	if err != nil {
		return nil //nolint:nilerr // a new bell, or one that was torn: it says nothing
	}
	return f.db.write(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE feed_log SET epoch = lower(hex(randomblob(8))) WHERE epoch = ? AND head < ?`, rung.Epoch, rung.ID)
		return err
	})
}

// Ring implements feed.Bus.
func (b *Bell) Ring(_ context.Context, p feed.Position) error {
	file, err := b.open()
	if err != nil {
		return fmt.Errorf("ring bell: %w", err)
	}
	_, err = file.WriteAt(fmt.Appendf(nil, "%-*s\n", bellSize-1, p), 0)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("ring bell: %w", err)
	}
	return nil
}

// Listen implements feed.Bus.
func (b *Bell) Listen(ctx context.Context, ring func()) error {
	if err := b.watch(ctx, b.path, ring); err != nil {
		return fmt.Errorf("listen to bell: %w", err)
	}
	return nil
}
