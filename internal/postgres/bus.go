package postgres

import (
	"context"
	"fmt"

	"github.com/ossicle/ossicle/feed"
)

// Bus is the feed.Bus between the processes that use one database: NOTIFY, on a
// connection that does nothing else. It is silent and asks nothing while nothing
// happens, but for a sign of life every Options.Keepalive.
type Bus struct{ db *DB }

var _ feed.Bus = (*Bus)(nil)

// Bus returns the bus of the database.
func (db *DB) Bus() *Bus { return &Bus{db} }

// Ring implements feed.Bus. Whoever hears it reads the log, so there is nothing
// to be said.
func (b *Bus) Ring(ctx context.Context, _ feed.Position) error {
	if _, err := b.db.pool.Exec(ctx, `SELECT pg_notify($1, '')`, channelFeed); err != nil {
		return fmt.Errorf("ring: %w", err)
	}
	return nil
}

// Listen implements feed.Bus. It returns an error when the connection breaks; the
// next call waits until it is time to try again, longer each time and not at the
// same moment as other processes.
func (b *Bus) Listen(ctx context.Context, ring func()) error {
	return b.db.ears.listen(ctx, channelFeed, ring)
}
