package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ossicle/ossicle/mailbox"
)

// The net under the bell looks again this long after the log file was written to,
// twice as long each time: the file is written before a commit can be seen, and a
// writer may die before it rings.
const (
	recheckFirst = 200 * time.Microsecond
	recheckLast  = 51200 * time.Microsecond
)

// MailboxBell is the mailbox.Bus between the processes that use one session.
type MailboxBell struct {
	bellFile
	m *Mailbox
}

var _ mailbox.Bus = (*MailboxBell)(nil)

// OpenMailboxBell opens the bell of a session.
func OpenMailboxBell(ctx context.Context, m *Mailbox, watch Watch) (*MailboxBell, error) {
	beside, err := m.db.bellFile(ctx, watch)
	if err != nil {
		return nil, fmt.Errorf("open bell: %w", err)
	}
	file, err := beside.open()
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("open bell: %w", err)
	}
	return &MailboxBell{beside, m}, nil
}

// Ring implements mailbox.Bus.
func (b *MailboxBell) Ring(context.Context) error {
	return b.ring(time.Now().UTC().Format(time.RFC3339Nano))
}

// Listen implements mailbox.Bus: to the bell, and as a net under it to the log
// file, which a writer that dies between commit and bell has written to as well.
func (b *MailboxBell) Listen(ctx context.Context, ring func()) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.listen(ctx, ring) })
	g.Go(func() error { return b.net(ctx, ring) })
	return g.Wait()
}

func (b *MailboxBell) net(ctx context.Context, ring func()) (err error) {
	conn, err := b.m.db.reader.db.Conn(ctx) // a version counts the commits of others, for one connection
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // a clean stop
	case err != nil:
		return fmt.Errorf("listen to log: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	// The read makes the log file, if there is none yet.
	var last int64
	if err = conn.QueryRowContext(ctx, `SELECT signals FROM mailbox`).Scan(&last); err == nil {
		last, err = dataVersion(ctx, conn)
	}
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // a clean stop
	case err != nil:
		return fmt.Errorf("listen to log: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	written := make(chan struct{}, 1)
	g.Go(func() error {
		return b.watch(ctx, b.path[:len(b.path)-len("-bell")]+"-wal", func() {
			select {
			case written <- struct{}{}:
			default:
			}
		})
	})
	g.Go(func() error {
		for {
			select {
			case <-written:
			case <-ctx.Done():
				return nil
			}
			for delay := recheckFirst; delay <= recheckLast; delay *= 2 {
				pause := time.NewTimer(delay)
				select {
				case <-pause.C:
				case <-ctx.Done():
					pause.Stop()
					return nil
				}
				version, err := dataVersion(ctx, conn)
				switch {
				case ctx.Err() != nil:
					return nil //nolint:nilerr // a clean stop
				case err != nil:
					return fmt.Errorf("listen to log: %w", err)
				}
				if version != last {
					last = version
					ring()
				}
				select {
				case <-written: // once more from the first
					delay = recheckFirst / 2
				default:
				}
			}
		}
	})
	return g.Wait()
}

func dataVersion(ctx context.Context, conn *sql.Conn) (version int64, err error) {
	err = conn.QueryRowContext(ctx, `PRAGMA data_version`).Scan(&version)
	return version, err
}
