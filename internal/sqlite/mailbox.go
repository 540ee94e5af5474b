package sqlite

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	modernc "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/ossicle/ossicle/mailbox"
)

const (
	// mailboxBusy is how long a call waits for other processes that write.
	mailboxBusy = 30 * time.Second
	// mailboxTries bounds the repeats of a call that found the file locked in a
	// way that SQLite does not wait for.
	mailboxTries = 20
)

// Mailbox is the mailbox.Store of a file of its own: one collaboration session.
type Mailbox struct {
	db   *DB
	keep mailbox.Retention
}

var _ mailbox.Store = (*Mailbox)(nil)

// OpenMailbox opens the file of a session, which it makes if it does not exist, to
// keep so much of it as is said; nil is the defaults. The caller closes it.
func OpenMailbox(ctx context.Context, path string, keep *mailbox.Retention) (*Mailbox, error) {
	db, err := openSchema(ctx, path, &Options{BusyTimeout: mailboxBusy}, mailboxes, "mailboxes")
	if err != nil {
		return nil, err
	}
	return &Mailbox{db, keep.OrDefaults()}, nil
}

// Close waits for running calls and closes the file.
func (m *Mailbox) Close() error { return m.db.Close() }

// mailboxError says what failed; errors of the port stay bare.
func mailboxError(verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*mailbox.InvalidError)), errors.As(err, new(*mailbox.ConflictError)), errors.As(err, new(*mailbox.LostError)),
		errors.As(err, new(*mailbox.RateError)), errors.As(err, new(*mailbox.EscalatedError)), errors.As(err, new(*mailbox.IDsError)),
		errors.As(err, new(*mailbox.FullError)):
		return err
	}
	return fmt.Errorf("%s: %w", verb, err)
}

// locked reports whether a call found the file locked and may be repeated: it has
// done nothing.
func locked(err error) bool {
	e, ok := errors.AsType[*modernc.Error](err)
	return ok && (e.Code()&0xff == codes.SQLITE_BUSY || e.Code()&0xff == codes.SQLITE_LOCKED)
}

// again repeats a call as long as the file is locked, within bounds.
func again(ctx context.Context, call func() error) error {
	for try := 1; ; try++ {
		err := call()
		if !locked(err) || try == mailboxTries {
			return err
		}
		pause := time.NewTimer(rand.N(time.Duration(try) * 5 * time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

func (m *Mailbox) write(ctx context.Context, verb string, f func(*tx) error) error {
	return mailboxError(verb, again(ctx, func() error { return m.db.write(ctx, f) }))
}

func (m *Mailbox) read(ctx context.Context, verb string, f func(*tx) error) error {
	return mailboxError(verb, again(ctx, func() error { return m.db.read(ctx, f) }))
}

// runHash is what is kept of a run token: who can read the file cannot be its
// agents.
func runHash(run string) string {
	sum := sha256.Sum256([]byte(run))
	return hex.EncodeToString(sum[:])
}

// memberRow is what a call needs to know of who calls.
type memberRow struct {
	limits mailbox.Limits
	bucket mailbox.Bucket
	floor  int64
	inTurn bool
	came   bool // it was not active before
}

// enter makes sure that the caller holds its id, and renews its last-seen time.
func (t *tx) enter(who mailbox.Identity, now time.Time) (*memberRow, error) {
	var (
		r                    memberRow
		run, status, turn    string
		seen, spentAt, until int64
	)
	err := t.one(`SELECT run, status, seen, signals, escalations, tokens, spent, spent_at, floor, turn, turn_until FROM mailbox_agent WHERE id = ?`,
		[]any{who.Agent}, &run, &status, &seen, &r.limits.Signals, &r.limits.Escalations, &r.limits.Tokens,
		&r.bucket.Spent, &spentAt, &r.floor, &turn, &until)
	if errors.Is(err, sql.ErrNoRows) || err == nil && run != runHash(who.Run) {
		return nil, &mailbox.LostError{Agent: who.Agent}
	}
	if err != nil {
		return nil, err
	}
	r.bucket.At = at(spentAt)
	r.inTurn = mailbox.InTurn(turn, at(until), now)
	if r.came = mailbox.StatusAt(mailbox.Status(status), at(seen), now) != mailbox.Active; r.came {
		if err := t.bump("agents"); err != nil {
			return nil, err
		}
	}
	_, err = t.exec(`UPDATE mailbox_agent SET seen = ?, status = ? WHERE id = ?`, now.UnixNano(), string(mailbox.Active), who.Agent)
	return &r, err
}

// bump counts a change of a part of the session.
func (t *tx) bump(part string) error {
	n, err := t.exec(`UPDATE mailbox SET ` + part + ` = ` + part + ` + 1`)
	if err == nil && n != 1 {
		err = errors.New("the file is no session")
	}
	return err
}

// Register implements mailbox.Members.
func (m *Mailbox) Register(ctx context.Context, r mailbox.Registration, now time.Time) (a mailbox.Agent, err error) {
	err = m.write(ctx, "register agent", func(t *tx) error {
		var run, status string
		var registered, seen int64
		a = mailbox.Agent{ID: r.Agent, Harness: r.Harness, Substrate: r.Substrate, Status: mailbox.Active, RegisteredAt: now.UTC(), LastSeen: now.UTC()}
		var harness, substrate string
		err := t.one(`SELECT run, status, registered, seen, harness, substrate FROM mailbox_agent WHERE id = ?`, []any{r.Agent},
			&run, &status, &registered, &seen, &harness, &substrate)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			if err := t.seat(now); err != nil {
				return err
			}
		case err != nil:
			return err
		case run != runHash(r.Run) && mailbox.Live(mailbox.Status(status), at(seen), now):
			return &mailbox.ConflictError{Agent: r.Agent, Since: at(seen)}
		default:
			a.RegisteredAt = at(registered)
			a.Harness, a.Substrate = cmp.Or(r.Harness, harness), cmp.Or(r.Substrate, substrate)
		}
		if err := t.bump("agents"); err != nil {
			return err
		}
		_, err = t.exec(`INSERT INTO mailbox_agent (id, harness, substrate, run, status, registered, seen, signals, escalations, tokens, waiting, waiting_bytes)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, ?9, (SELECT count(*) FROM mailbox_signal WHERE sender = ?1 AND done = 0),
			(SELECT coalesce(sum(size), 0) FROM mailbox_signal WHERE sender = ?1 AND done = 0)) ON CONFLICT (id) DO UPDATE SET harness = ?2, substrate = ?3, run = ?4, status = ?5,
			seen = ?6, signals = ?7, escalations = ?8, tokens = ?9`,
			r.Agent, a.Harness, a.Substrate, runHash(r.Run), string(mailbox.Active), now.UnixNano(),
			r.Limits.Signals, r.Limits.Escalations, r.Limits.Tokens)
		return err
	})
	return a, err
}

// Touch implements mailbox.Members.
func (m *Mailbox) Touch(ctx context.Context, who mailbox.Identity, now time.Time) (changed bool, err error) {
	err = m.write(ctx, "renew agent", func(t *tx) error {
		r, err := t.enter(who, now)
		changed = err == nil && r.came
		return err
	})
	return changed, err
}

// SetStatus implements mailbox.Members.
func (m *Mailbox) SetStatus(ctx context.Context, who mailbox.Identity, s mailbox.Status, now time.Time) error {
	return m.write(ctx, "set status", func(t *tx) error {
		if _, err := t.enter(who, now); err != nil || s == mailbox.Active {
			return err
		}
		if err := t.bump("agents"); err != nil {
			return err
		}
		_, err := t.exec(`UPDATE mailbox_agent SET status = ? WHERE id = ?`, string(s), who.Agent)
		return err
	})
}

// Agents implements mailbox.Members.
func (m *Mailbox) Agents(ctx context.Context) (all []mailbox.Agent, err error) {
	err = m.read(ctx, "list agents", func(t *tx) error {
		all = nil
		return t.each(`SELECT id, harness, substrate, status, registered, seen FROM mailbox_agent ORDER BY id`, nil, func(scan func(...any) error) error {
			var a mailbox.Agent
			var registered, seen int64
			err := scan(&a.ID, &a.Harness, &a.Substrate, &a.Status, &registered, &seen)
			a.RegisteredAt, a.LastSeen = at(registered), at(seen)
			all = append(all, a)
			return err
		})
	})
	return all, err
}

// Send implements mailbox.Signals.
func (m *Mailbox) Send(ctx context.Context, who mailbox.Identity, s mailbox.Signal, limits mailbox.Limits, now time.Time) (mailbox.Signal, error) {
	err := m.write(ctx, "send signal", func(t *tx) error {
		r, err := t.enter(who, now)
		if err != nil {
			return err
		}
		s.Sender, s.Depth = who.Agent, 0
		if s.ReplyTo != "" {
			if err := t.replies(&s); err != nil {
				return err
			}
		}
		if r.inTurn {
			s.Depth = 1
		}
		if r.inTurn && s.Demanding() {
			return &mailbox.EscalatedError{Agent: who.Agent, Type: s.Type}
		}
		limit := r.limits.Or(limits).OrDefaults().Signals
		bucket, wait := r.bucket.Take(now, limit)
		if wait > 0 {
			return &mailbox.RateError{Limit: limit, Wait: wait}
		}
		if _, err := t.exec(`UPDATE mailbox_agent SET spent = ?, spent_at = ? WHERE id = ?`, bucket.Spent, bucket.At.UnixNano(), who.Agent); err != nil {
			return err
		}
		if err := t.admit(m.keep, &s, now); err != nil {
			return err
		}
		if err := t.bump("signals"); err != nil {
			return err
		}
		_, err = t.exec(`INSERT INTO mailbox_signal (seq, id, time, sender, recipient, type, priority, depth, reply_to, metadata, content, size)
			VALUES ((SELECT signals FROM mailbox), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			s.ID, s.Time.UnixNano(), s.Sender, s.Recipient, string(s.Type), string(s.Priority), s.Depth, s.ReplyTo, string(s.Metadata), s.Content, s.Size())
		if err == nil {
			err = t.trimSignals(m.keep, now)
		}
		if err != nil {
			return err
		}
		return t.one(`SELECT signals FROM mailbox`, nil, &s.Sequence)
	})
	return s, err
}

// replies makes sure that a reply is to what its sender got or sent.
func (t *tx) replies(s *mailbox.Signal) error {
	var sender, recipient string
	err := t.one(`SELECT sender, recipient FROM mailbox_signal WHERE id = ?`, []any{s.ReplyTo}, &sender, &recipient)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err != nil || sender != s.Sender && !mailbox.Reaches(recipient, sender, s.Sender) {
		return &mailbox.InvalidError{Field: "reply_to", Problem: "there is no such signal to or from you (any more)"}
	}
	return nil
}

// Changes implements mailbox.Store.
func (m *Mailbox) Changes(ctx context.Context, since mailbox.Heads) (c mailbox.Changes, err error) {
	err = m.read(ctx, "read changes", func(t *tx) error {
		c = mailbox.Changes{}
		if err := t.one(`SELECT signals, notes, board, agents FROM mailbox`, nil, &c.Heads.Signals, &c.Heads.Notes, &c.Heads.Board, &c.Heads.Agents); err != nil {
			return err
		}
		if c.Heads.Signals <= since.Signals {
			return nil
		}
		err := t.each(`SELECT seq, sender, recipient, type, priority, depth, reply_to FROM mailbox_signal WHERE seq > ? ORDER BY seq LIMIT ?`,
			[]any{since.Signals, mailbox.MaxChanges}, func(scan func(...any) error) error {
				var e mailbox.Envelope
				err := scan(&e.Sequence, &e.Sender, &e.Recipient, &e.Type, &e.Priority, &e.Depth, &e.ReplyTo)
				c.Envelopes = append(c.Envelopes, e)
				return err
			})
		if n := len(c.Envelopes); n == mailbox.MaxChanges {
			c.Heads.Signals = c.Envelopes[n-1].Sequence
		}
		return err
	})
	return c, err
}

func metadata(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}
