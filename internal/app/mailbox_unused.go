package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/filelock"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/postgres"
	"github.com/ossicle/ossicle/mailbox"
)

const (
	// sessionLock is held by who has a session open, in its directory. Its time is
	// when somebody opened it last.
	sessionLock = "session.lock"
	// removedPrefix begins the name of a directory that is being removed.
	removedPrefix = ".removed."
	// unusedMost bounds the sessions that are removed at a time.
	unusedMost = 20
	// unusedTime bounds how long who opens a session removes others in a database, of
	// the mailboxOpen that he has.
	unusedTime = 5 * time.Second
)

// lock makes the session's directory, and keeps others from removing it.
func (x *Collaboration) lock() error {
	path := filepath.Join(x.dir, sessionLock)
	for range 2 {
		if err := os.MkdirAll(filepath.Join(x.dir, identityDir), 0o700); err != nil {
			return err
		}
		release, err := filelock.Share(path)
		if errors.Is(err, filelock.ErrHeld) {
			return errors.New("it was not used for long and is being removed; try again")
		}
		if err != nil {
			return err
		}
		now := time.Now()
		if err = os.Chtimes(path, now, now); err == nil {
			x.down.Push("session lock", time.Second, func(context.Context) error { release(); return nil })
			return nil
		}
		release()
		if !errors.Is(err, fs.ErrNotExist) { // it was removed before we had it: once more
			return err
		}
	}
	return fs.ErrNotExist
}

// removeRows removes those of PostgreSQL that nobody has used for that long.
func (c *Collaborations) removeRows(ctx context.Context, db *postgres.DB) {
	keep := c.limits.KeepUnused()
	if keep < 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, unusedTime)
	defer cancel()
	removed, err := db.RemoveMailboxes(ctx, time.Now(), keep, unusedMost)
	if err != nil {
		c.logger().LogAttrs(ctx, slog.LevelWarn, "mailbox.failed", logattr.Reason("remove"), logattr.Err(err))
	}
	for _, id := range removed {
		c.logger().LogAttrs(ctx, slog.LevelInfo, "mailbox.removed", logattr.Session(id), logattr.Reason("unused"))
	}
}

// removeUnused removes the directories of sessions that nobody has used for that
// long, the oldest first and a bounded number.
func (c *Collaborations) removeUnused(ctx context.Context, now time.Time) {
	keep := c.limits.KeepUnused()
	if keep < 0 {
		return
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return // there is none
	}
	removed := 0
	for _, e := range entries {
		dir := filepath.Join(c.dir, e.Name())
		if strings.HasPrefix(e.Name(), removedPrefix) {
			_ = os.RemoveAll(dir) // of a process that was killed
			continue
		}
		if removed == unusedMost || ctx.Err() != nil || !e.IsDir() || mailbox.CheckSession(e.Name()) != nil || !unusedSince(dir, now.Add(-keep), "", sessionLock) {
			continue
		}
		gone, err := removeSession(dir, now.Add(-keep))
		switch {
		case err != nil:
			c.logger().LogAttrs(ctx, slog.LevelWarn, "mailbox.failed", logattr.Session(e.Name()), logattr.Reason("remove"), logattr.Err(err))
		case gone:
			removed++
			c.logger().LogAttrs(ctx, slog.LevelInfo, "mailbox.removed", logattr.Session(e.Name()), logattr.Reason("unused"))
		}
	}
}

func (c *Collaborations) logger() *slog.Logger {
	if c.log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.log
}

// unusedSince reports whether nothing in a session's directory was written since, some
// names besides what members write.
func unusedSince(dir string, since time.Time, names ...string) bool {
	for _, name := range append(names, sessionFile, sessionFile+"-wal", sessionFile+"-bell", identityDir) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.ModTime().After(since) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// removeSession removes a session's directory, unless somebody has it open.
func removeSession(dir string, since time.Time) (gone bool, err error) {
	release, err := filelock.Hold(filepath.Join(dir, sessionLock))
	if errors.Is(err, filelock.ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer release()
	if !unusedSince(dir, since) { // somebody came and went meanwhile, or was killed
		return false, nil
	}
	// The name goes first, so that nobody opens what is half there.
	away := filepath.Join(filepath.Dir(dir), removedPrefix+filepath.Base(dir))
	if err := os.Rename(dir, away); err != nil {
		return false, fmt.Errorf("remove session: %w", err)
	}
	return true, os.RemoveAll(away)
}
