package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ossicle/ossicle/feed"
)

// Bell is the feed.Bus between the processes that use one file.
type Bell struct{ bellFile }

var _ feed.Bus = (*Bell)(nil)

// OpenBell opens the bell of a feed, which is the same for all who open the
// same database file. It begins a new epoch if the file is older than the bell:
// somebody has put back a copy of it, and the ids behind it will be given again
// (specification F-1).
func OpenBell(ctx context.Context, f *Feed, watch Watch) (*Bell, error) {
	beside, err := f.db.bellFile(ctx, watch)
	if err != nil {
		return nil, fmt.Errorf("open bell: %w", err)
	}
	b := &Bell{beside}
	file, err := b.open()
	if err != nil {
		return nil, fmt.Errorf("open bell: %w", err)
	}
	if err := errors.Join(settle(ctx, f), compare(ctx, f, file), file.Close()); err != nil {
		return nil, fmt.Errorf("open bell: %w", err)
	}
	return b, nil
}

// settle begins a new epoch if the log is in another file than the one that it was
// last used in: a copy was put back, or moved to another disk. Whoever resumes is
// told in either case, which is better than to be fooled in one.
func settle(ctx context.Context, f *Feed) error {
	path, err := f.db.path(ctx)
	if err != nil {
		return err
	}
	home, err := fileHome(path)
	if err != nil || home == "" {
		return err
	}
	return f.db.write(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE feed_log SET home = ?1, epoch = CASE home WHEN '' THEN epoch ELSE lower(hex(randomblob(8))) END WHERE home <> ?1`, home)
		return err
	})
}

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
	return b.ring(p.String())
}

// Listen implements feed.Bus.
func (b *Bell) Listen(ctx context.Context, ring func()) error {
	return b.listen(ctx, ring)
}
