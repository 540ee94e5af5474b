package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ossicle/ossicle/internal/logattr"
)

// The channels of notifications. The schema knows the second by name.
const (
	channelFeed   = "ossicle_feed"   // the log has grown
	channelOutbox = "ossicle_outbox" // there are rows in the outbox
	// channelMailbox says that a collaboration session has changed.
	channelMailbox = "ossicle_mailbox"
)

const (
	reconnectLeast = 100 * time.Millisecond
	reconnectMost  = 10 * time.Second
	// settled is how long a connection must have lasted for the next failure to
	// count as the first.
	settled = 10 * time.Second
	// reply bounds the wait for what the server answers at once.
	reply = 5 * time.Second
	// goodbye bounds the wait for a connection to end in good order, which one that
	// is broken does not.
	goodbye = time.Second
)

// listener is the connection that hears notifications, shared by all who listen.
// It is there while anybody does. When it breaks, all of them are told; whoever
// listens again waits until it is time for the next try.
type listener struct {
	config *pgx.ConnConfig
	pool   *pgxpool.Pool // the other way to the server, for the test
	o      Options

	mu       sync.Mutex
	ears     map[*ear]struct{}
	hearing  bool
	cancel   context.CancelFunc // of the goroutine; nil if none runs
	done     chan struct{}      // closed at its end
	failures int
	earliest time.Time // of the next try
}

// ear is one who listens.
type ear struct {
	channel string
	bell    chan struct{}
	broken  chan error
}

func newListener(config *pgx.ConnConfig, pool *pgxpool.Pool, o Options) *listener {
	return &listener{config: config, pool: pool, o: o, ears: map[*ear]struct{}{}}
}

// listen calls ring for what comes on a channel: once as soon as it hears, then
// for every notification. It returns nil when ctx ends, and an error when the
// connection breaks.
func (l *listener) listen(ctx context.Context, channel string, ring func()) error {
	e := &ear{channel, make(chan struct{}, 1), make(chan error, 1)}
	l.add(ctx, e)
	defer l.remove(e)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-e.broken:
			if ctx.Err() != nil {
				return nil //nolint:nilerr // a clean stop
			}
			return fmt.Errorf("hear notifications: %w", err)
		case <-e.bell:
			ring()
		}
	}
}

func (l *listener) add(ctx context.Context, e *ear) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ears[e] = struct{}{}
	if l.hearing {
		e.bell <- struct{}{}
	}
	if l.cancel == nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		l.cancel, l.done = cancel, make(chan struct{})
		go l.run(ctx, l.done)
	}
}

// remove waits for the end of the connection if this was the last who listened.
func (l *listener) remove(e *ear) {
	l.mu.Lock()
	delete(l.ears, e)
	last, cancel, done := len(l.ears) == 0, l.cancel, l.done
	l.mu.Unlock()
	if last && cancel != nil {
		cancel()
		<-done
	}
}

// run is the life of one connection. Whoever came while it ended on purpose gets
// another.
func (l *listener) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	begun := time.Now()
	err := l.hear(ctx, &begun)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	l.cancel, l.hearing = nil, false
	if ctx.Err() == nil {
		// What broke this one may have broken the others, too; those in use are closed
		// when they are given back.
		l.pool.Reset()
		if time.Since(begun) > settled {
			l.failures = 0
		}
		wait := min(reconnectLeast<<min(l.failures, 10), reconnectMost)
		wait = wait/2 + mathrand.N(wait/2)
		l.failures++
		l.earliest = time.Now().Add(wait)
		l.o.Logger.WarnContext(ctx, "notifications cannot be heard", logattr.Err(err), logattr.Attempt(l.failures), logattr.Delay(wait))
	} else {
		err = errors.New("the connection was given up")
	}
	for e := range l.ears {
		e.broken <- err
	}
	clear(l.ears)
}

// hear connects and passes on what it hears until that fails.
func (l *listener) hear(ctx context.Context, begun *time.Time) error {
	l.mu.Lock()
	earliest := l.earliest
	l.mu.Unlock()
	if wait := time.Until(earliest); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	*begun = time.Now()
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp(ctx, conn)
	if _, err := conn.Exec(ctx, `LISTEN `+channelFeed+`; LISTEN `+channelOutbox+`; LISTEN `+channelMailbox); err != nil {
		return err
	}
	*begun = time.Now()
	l.mu.Lock()
	l.hearing = true
	l.mu.Unlock()
	l.ring("") // what was said before is not said again
	asked := time.Now()
	for {
		n, err := await(ctx, conn, time.Until(asked.Add(l.o.Keepalive)))
		if err != nil {
			return err
		}
		if n != "" {
			l.ring(n)
		}
		if time.Since(asked) >= l.o.Keepalive {
			if err := l.ask(ctx, conn); err != nil {
				return err
			}
			asked = time.Now()
		}
	}
}

func hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	_ = conn.Close(ctx)
}

// await returns the channel of the next notification, or nothing after a time.
func await(ctx context.Context, conn *pgx.Conn, most time.Duration) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	n, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		return n.Channel, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case waiting.Err() != nil && !conn.IsClosed():
		return "", nil
	default:
		return "", err
	}
}

// ask is the sign of life. It asks something of use: writers do not ring when the
// queue of notifications is nearly full, so rows may have come silently.
func (l *listener) ask(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, reply)
	defer cancel()
	var waiting bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM ossicle.feed_outbox)`).Scan(&waiting); err != nil {
		return err
	}
	if waiting {
		l.ring(channelOutbox)
	}
	return nil
}

// ring passes a notification on; the empty channel is all of them.
func (l *listener) ring(channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := range l.ears {
		if channel != "" && channel != e.channel {
			continue
		}
		select {
		case e.bell <- struct{}{}:
		default: // the last one has not been heard yet
		}
	}
}

// connect returns a connection on which notifications are known to arrive.
func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	connecting, cancel := context.WithTimeout(ctx, reply)
	defer cancel()
	conn, err := pgx.ConnectConfig(connecting, l.config)
	if err != nil {
		return nil, err
	}
	if err := l.try(ctx, conn); err != nil {
		hangUp(ctx, conn)
		return nil, err
	}
	return conn, nil
}

// test finds out whether notifications arrive.
func (l *listener) test(ctx context.Context) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	hangUp(ctx, conn)
	return nil
}

// try has another connection notify this one. A pooler in transaction mode takes
// the LISTEN, gives the server's connection to somebody else, and drops what
// comes on it.
func (l *listener) try(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, reply)
	defer cancel()
	channel := "ossicle_" + strings.ToLower(rand.Text())
	// The server itself shall find out that we are gone, and free what we held.
	if _, err := conn.Exec(ctx, `SET tcp_keepalives_idle = 20; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; LISTEN `+channel); err != nil {
		return err
	}
	if _, err := l.pool.Exec(ctx, `SELECT pg_notify($1, '')`, channel); err != nil {
		return err
	}
	for heard := ""; heard != channel; {
		n, err := conn.WaitForNotification(ctx)
		if err != nil && ctx.Err() != nil {
			return ErrDeaf
		}
		if err != nil {
			return err
		}
		heard = n.Channel
	}
	_, err := conn.Exec(ctx, `UNLISTEN `+channel)
	return err
}
