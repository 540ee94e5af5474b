package irc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// link is one connection.
type link struct {
	client *Client
	conn   net.Conn
	done   chan struct{} // closed when the reader has ended

	writing chan struct{} // holds one token while somebody writes

	deadlines sync.Mutex
	leaving   bool // the goodbye is said, and its deadline stands

	// The reader's own.
	since    time.Time // when we were registered
	login    login
	tries    int // nicks
	overlong int
}

// send writes a line at once, past the queue.
func (l *link) send(ctx context.Context, command string, params ...string) error {
	s, err := line{command: command, params: params}.format()
	if err != nil {
		return err
	}
	l.writing <- struct{}{} // a write has a deadline, so this wait has one too
	defer func() { <-l.writing }()
	limit := writeTime
	if ctx.Err() != nil {
		limit = stopTime
	}
	if err := l.conn.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err = l.conn.Write([]byte(s))
	return err
}

// awaitUntil bounds the next read, unless the goodbye has done so.
func (l *link) awaitUntil(t time.Time) error {
	l.deadlines.Lock()
	defer l.deadlines.Unlock()
	if l.leaving {
		return nil
	}
	return l.conn.SetReadDeadline(t)
}

// leave says goodbye, and gives the server a moment to take it in: to close at
// once would lose what is on its way.
func (l *link) leave(ctx context.Context) {
	l.deadlines.Lock()
	l.leaving = true
	err := l.conn.SetReadDeadline(time.Now().Add(stopTime))
	l.deadlines.Unlock()
	if err == nil {
		err = l.send(ctx, cmdQuit, "bye")
	}
	if err != nil {
		_ = l.conn.Close()
	}
}

// read registers and then takes lines until the connection ends. It never
// returns nil.
func (l *link) read(ctx context.Context) error {
	if err := l.register(ctx); err != nil {
		return err
	}
	begun := time.Now()
	r := &lineReader{r: l.conn}
	asked := false
	for {
		until := begun.Add(registerTime)
		switch {
		case !l.since.IsZero() && asked:
			until = time.Now().Add(pongTime)
		case !l.since.IsZero():
			until = time.Now().Add(idleTime)
		}
		if err := l.awaitUntil(until); err != nil {
			return err
		}
		s, err := r.next()
		switch {
		case errors.Is(err, errTooLong):
			l.malformed(ctx, err)
			err = nil
		case errors.Is(err, os.ErrDeadlineExceeded) && !l.since.IsZero() && !asked && ctx.Err() == nil:
			asked = true
			if err := l.send(ctx, cmdPing, "alive"); err != nil {
				return err
			}
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errSilent
		case err == nil && s != "":
			err = l.line(ctx, s)
		}
		if err != nil {
			return err
		}
		asked = false
	}
}

// line takes one line. A malformed one is logged and left out.
func (l *link) line(ctx context.Context, s string) error {
	in, err := parseLine(s)
	if err != nil {
		l.malformed(ctx, err)
		return nil
	}
	return l.handle(ctx, in)
}

// malformed logs the first of such lines, so that a server cannot fill a disk.
func (l *link) malformed(ctx context.Context, err error) {
	if l.overlong++; l.overlong <= 3 {
		l.client.log.LogAttrs(ctx, slog.LevelWarn, "irc.malformed", logattr.Server(l.client.addr), logattr.Err(err), logattr.Count(l.overlong))
	}
}

// write sends what is due until the connection or ctx ends.
func (l *link) write(ctx context.Context) {
	c := l.client
	// Never one that is due already: Go 1.26 runs such a timer on the goroutine that stops
	// or sets it in a bubble of testing/synctest, and its race detector bears no two of
	// them at once.
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		wait, err := l.due(ctx)
		if err != nil {
			_ = l.conn.Close() // the reader says why
			return
		}
		if ctx.Err() != nil {
			l.leave(ctx)
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-c.bell:
		case <-ctx.Done():
		case <-l.done:
			return
		}
	}
}

// due sends everything that may be sent now, and says when to look again.
func (l *link) due(ctx context.Context) (time.Duration, error) {
	c := l.client
	for {
		c.mu.Lock()
		now := time.Now()
		c.drop(ctx, c.out.expire(now), "it waited for too long")
		a, wait := c.next(now)
		if a != nil {
			wait = c.out.wait(now)
		}
		if wait > 0 {
			c.mu.Unlock()
			return wait, nil
		}
		c.out.spend(now)
		a.begin()
		c.mu.Unlock()
		err := l.send(ctx, a.command, a.params...)
		if err != nil && !errors.Is(err, errUnsafe) {
			return 0, err
		}
		c.mu.Lock()
		a.done()
		if err != nil {
			c.drop(ctx, 1, err.Error())
		}
		c.mu.Unlock()
	}
}
