package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Watch calls touched when the file at path is written to: once as soon as it
// watches, and again after it may have missed something. It returns nil when ctx
// ends, and an error when the file is gone. The kernel tells it; it does not
// poll.
type Watch func(ctx context.Context, path string, touched func()) error

// bellFile is a small file beside a database, which is written to after each commit
// and watched. The database's own files would not do: they are written before a
// commit can be seen, and the moment when it can makes no sound.
type bellFile struct {
	path  string
	watch Watch
}

// bellFile returns the bell of the file, which is the same for all who open it.
func (db *DB) bellFile(ctx context.Context, watch Watch) (bellFile, error) {
	path, err := db.path(ctx)
	return bellFile{path: path + "-bell", watch: watch}, err
}

// path is where the file is.
func (db *DB) path(ctx context.Context) (path string, err error) {
	row := db.reader.db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`)
	err = row.Scan(&path)
	return path, err
}

// open opens the bell for a moment, so that one that was deleted comes back.
func (b *bellFile) open() (*os.File, error) { return os.OpenFile(b.path, os.O_CREATE|os.O_RDWR, 0o600) }

// bellSize is the length of what is written to the bell, so that a shorter
// position leaves nothing behind of a longer one.
const bellSize = 64

// ring writes to the bell.
func (b *bellFile) ring(text string) error {
	file, err := b.open()
	if err != nil {
		return fmt.Errorf("ring bell: %w", err)
	}
	_, err = file.WriteAt(fmt.Appendf(nil, "%-*s\n", bellSize-1, text), 0)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("ring bell: %w", err)
	}
	return nil
}

// listen calls ring when the bell is written to.
func (b *bellFile) listen(ctx context.Context, ring func()) error {
	if err := b.watch(ctx, b.path, ring); err != nil {
		return fmt.Errorf("listen to bell: %w", err)
	}
	return nil
}
