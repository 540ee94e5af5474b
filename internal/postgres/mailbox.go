package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ossicle/ossicle/mailbox"
)

// Mailbox is the mailbox.Store of one collaboration session in the database.
//
// Its rules are those of the room, which are not the database's to know; so a
// write is a transaction of several steps. A process that is stopped in the middle
// of one is cut off by the server after mailboxIdle, and holds up nobody longer.
type Mailbox struct {
	db      *DB
	session string
	keep    mailbox.Retention
}

var _ mailbox.Store = (*Mailbox)(nil)

// Mailbox returns the store of a session, of which so much is kept as is said; nil
// is the defaults.
func (db *DB) Mailbox(session string, keep *mailbox.Retention) *Mailbox {
	return &Mailbox{db, session, keep.OrDefaults()}
}

// mailboxIdle bounds the time between two steps of a write.
const mailboxIdle = "10s"

// MailboxBus is the mailbox.Bus between the processes that use the database.
// Whoever hears it looks at its own session.
type MailboxBus struct{ db *DB }

var _ mailbox.Bus = (*MailboxBus)(nil)

// MailboxBus returns the bus of the database.
func (db *DB) MailboxBus() *MailboxBus { return &MailboxBus{db} }

// Ring implements mailbox.Bus.
func (b *MailboxBus) Ring(ctx context.Context) error {
	if _, err := b.db.pool.Exec(ctx, `SELECT pg_notify($1, '')`, channelMailbox); err != nil {
		return fmt.Errorf("ring: %w", err)
	}
	return nil
}

// Listen implements mailbox.Bus.
func (b *MailboxBus) Listen(ctx context.Context, ring func()) error {
	return b.db.ears.listen(ctx, channelMailbox, ring)
}

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

// post is a transaction of a session.
type post struct {
	pgx.Tx
	ctx     context.Context //nolint:containedctx // lives as long as the call
	session string
	// ahead is by how much the server's clock is ahead of that of this machine.
	// Times are kept by the server's: members of a session are on several machines,
	// and whose clock is wrong must not take another one for away.
	ahead time.Duration
}

// at is a time of this machine as the server would tell it.
func (p *post) at(t time.Time) time.Time { return t.Add(p.ahead) }

// here is a time of the server as this machine would tell it.
func (p *post) here(t time.Time) time.Time { return t.Add(-p.ahead) }

// clock compares the clock of the server with ours, in the answer to a statement
// that selects it.
func (p *post) clock(now func() time.Time, query string) error {
	var server time.Time
	before := now()
	err := p.QueryRow(p.ctx, query).Scan(&server)
	p.ahead = ahead(before, server, now())
	return err
}

// write runs f as the only writer of the session. What it did is told to others
// with the commit: there is no moment between the two.
func (m *Mailbox) write(ctx context.Context, verb string, f func(*post) error) error {
	return mailboxError(verb, pgx.BeginFunc(ctx, m.db.pool, func(tx pgx.Tx) error {
		p := &post{Tx: tx, ctx: ctx, session: m.session}
		if _, err := tx.Exec(ctx, durable); err != nil {
			return err
		}
		if err := p.clock(m.db.now, `SELECT clock_timestamp() FROM set_config('idle_in_transaction_session_timeout', '`+mailboxIdle+`', true)`); err != nil {
			return err
		}
		if err := p.exec(`INSERT INTO ossicle.mailbox (session) VALUES ($1) ON CONFLICT DO NOTHING`); err != nil {
			return err
		}
		if err := p.exec(`SELECT 1 FROM ossicle.mailbox WHERE session = $1 FOR UPDATE`); err != nil {
			return err
		}
		if err := f(p); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `SELECT pg_notify($1, '')`, channelMailbox)
		return err
	}))
}

func (m *Mailbox) read(ctx context.Context, verb string, f func(*post) error) error {
	o := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return mailboxError(verb, pgx.BeginTxFunc(ctx, m.db.pool, o, func(tx pgx.Tx) error { return f(&post{Tx: tx, ctx: ctx, session: m.session}) }))
}

// The first argument of every statement is the session.

func (p *post) exec(query string, args ...any) error {
	_, err := p.Exec(p.ctx, query, append([]any{p.session}, args...)...)
	return err
}

// one reads the first row; it returns pgx.ErrNoRows if there is none.
func (p *post) one(query string, args []any, dest ...any) error {
	return p.QueryRow(p.ctx, query, append([]any{p.session}, args...)...).Scan(dest...)
}

func (p *post) each(query string, args []any, f func(scan func(...any) error) error) error {
	rows, err := p.Query(p.ctx, query, append([]any{p.session}, args...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// bump counts a change of a part of the session and returns the new count.
func (p *post) bump(part string) (n int64, err error) {
	err = p.one(`UPDATE ossicle.mailbox SET `+part+` = `+part+` + 1 WHERE session = $1 RETURNING `+part, nil, &n)
	return n, err
}

func nanos(n int64) time.Time { return time.Unix(0, n).UTC() }

// runHash is what is kept of a run token: who can read the table cannot be its
// agents.
func runHash(run string) string {
	sum := sha256.Sum256([]byte(run))
	return hex.EncodeToString(sum[:])
}

// seated is what a call needs to know of who calls.
type seated struct {
	limits mailbox.Limits
	bucket mailbox.Bucket
	floor  int64
	inTurn bool
	came   bool // it was not active before
}

// enter makes sure that the caller holds its id, and renews its last-seen time.
func (p *post) enter(who mailbox.Identity, now time.Time) (*seated, error) {
	var (
		s                    seated
		run, status, turn    string
		seen, spentAt, until int64
	)
	err := p.one(`SELECT run, status, seen, signals, escalations, tokens, spent, spent_at, floor, turn, turn_until
		FROM ossicle.mailbox_agent WHERE session = $1 AND id = $2`, []any{who.Agent},
		&run, &status, &seen, &s.limits.Signals, &s.limits.Escalations, &s.limits.Tokens, &s.bucket.Spent, &spentAt, &s.floor, &turn, &until)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && run != runHash(who.Run) {
		return nil, &mailbox.LostError{Agent: who.Agent}
	}
	if err != nil {
		return nil, err
	}
	s.bucket.At = nanos(spentAt)
	s.inTurn = mailbox.InTurn(turn, nanos(until), now)
	if s.came = mailbox.StatusAt(mailbox.Status(status), nanos(seen), now) != mailbox.Active; s.came {
		if _, err := p.bump("agents"); err != nil {
			return nil, err
		}
	}
	return &s, p.exec(`UPDATE ossicle.mailbox_agent SET seen = $3, status = $4 WHERE session = $1 AND id = $2`, who.Agent, now.UnixNano(), string(mailbox.Active))
}

// Register implements mailbox.Members.
func (m *Mailbox) Register(ctx context.Context, r mailbox.Registration, now time.Time) (a mailbox.Agent, err error) {
	err = m.write(ctx, "register agent", func(p *post) error {
		now := p.at(now)
		var run, status, harness, substrate string
		var registered, seen int64
		a = mailbox.Agent{ID: r.Agent, Harness: r.Harness, Substrate: r.Substrate, Status: mailbox.Active, RegisteredAt: now.UTC(), LastSeen: now.UTC()}
		err := p.one(`SELECT run, status, registered, seen, harness, substrate FROM ossicle.mailbox_agent WHERE session = $1 AND id = $2`, []any{r.Agent},
			&run, &status, &registered, &seen, &harness, &substrate)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			if err := p.seat(now); err != nil {
				return err
			}
		case err != nil:
			return err
		case run != runHash(r.Run) && mailbox.Live(mailbox.Status(status), nanos(seen), now):
			return &mailbox.ConflictError{Agent: r.Agent, Since: p.here(nanos(seen))}
		default:
			a.RegisteredAt = nanos(registered)
			a.Harness, a.Substrate = cmp.Or(r.Harness, harness), cmp.Or(r.Substrate, substrate)
		}
		if _, err := p.bump("agents"); err != nil {
			return err
		}
		err = p.exec(`INSERT INTO ossicle.mailbox_agent (session, id, harness, substrate, run, status, registered, seen, signals, escalations, tokens, waiting, waiting_bytes)
			SELECT $1, $2, $3, $4, $5, $6, $7, $7, $8, $9, $10, count(*), coalesce(sum(size), 0) FROM ossicle.mailbox_signal WHERE session = $1 AND sender = $2 AND NOT done ON CONFLICT (session, id) DO UPDATE SET harness = $3, substrate = $4, run = $5, status = $6,
			seen = $7, signals = $8, escalations = $9, tokens = $10`,
			r.Agent, a.Harness, a.Substrate, runHash(r.Run), string(mailbox.Active), now.UnixNano(), r.Limits.Signals, r.Limits.Escalations, r.Limits.Tokens)
		a.RegisteredAt, a.LastSeen = p.here(a.RegisteredAt), p.here(a.LastSeen)
		return err
	})
	return a, err
}

// Touch implements mailbox.Members.
func (m *Mailbox) Touch(ctx context.Context, who mailbox.Identity, now time.Time) (changed bool, err error) {
	err = m.write(ctx, "renew agent", func(p *post) error {
		s, err := p.enter(who, p.at(now))
		changed = err == nil && s.came
		return err
	})
	return changed, err
}

// SetStatus implements mailbox.Members.
func (m *Mailbox) SetStatus(ctx context.Context, who mailbox.Identity, s mailbox.Status, now time.Time) error {
	return m.write(ctx, "set status", func(p *post) error {
		if _, err := p.enter(who, p.at(now)); err != nil || s == mailbox.Active {
			return err
		}
		if _, err := p.bump("agents"); err != nil {
			return err
		}
		return p.exec(`UPDATE ossicle.mailbox_agent SET status = $3 WHERE session = $1 AND id = $2`, who.Agent, string(s))
	})
}

// Agents implements mailbox.Members.
func (m *Mailbox) Agents(ctx context.Context) (all []mailbox.Agent, err error) {
	err = m.read(ctx, "list agents", func(p *post) error {
		if err := p.clock(m.db.now, `SELECT clock_timestamp()`); err != nil {
			return err
		}
		return p.each(`SELECT id, harness, substrate, status, registered, seen FROM ossicle.mailbox_agent WHERE session = $1 ORDER BY id`, nil,
			func(scan func(...any) error) error {
				var a mailbox.Agent
				var status string
				var registered, seen int64
				err := scan(&a.ID, &a.Harness, &a.Substrate, &status, &registered, &seen)
				a.Status, a.RegisteredAt, a.LastSeen = mailbox.Status(status), p.here(nanos(registered)), p.here(nanos(seen))
				all = append(all, a)
				return err
			})
	})
	return all, err
}

// Send implements mailbox.Signals.
func (m *Mailbox) Send(ctx context.Context, who mailbox.Identity, s mailbox.Signal, limits mailbox.Limits, now time.Time) (mailbox.Signal, error) {
	err := m.write(ctx, "send signal", func(p *post) error {
		now := p.at(now)
		s.Time = p.at(s.Time)
		r, err := p.enter(who, now)
		if err != nil {
			return err
		}
		s.Sender, s.Depth = who.Agent, 0
		if s.ReplyTo != "" {
			if err := p.replies(&s); err != nil {
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
		err = p.exec(`UPDATE ossicle.mailbox_agent SET spent = $3, spent_at = $4 WHERE session = $1 AND id = $2`, who.Agent, bucket.Spent, bucket.At.UnixNano())
		if err != nil {
			return err
		}
		if err := p.admit(m.keep, &s, now); err != nil {
			return err
		}
		if s.Sequence, err = p.bump("signals"); err != nil {
			return err
		}
		err = p.exec(`INSERT INTO ossicle.mailbox_signal (session, seq, id, time, sender, recipient, type, priority, depth, reply_to, metadata, content, size)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
			s.Sequence, s.ID, s.Time.UnixNano(), s.Sender, s.Recipient, string(s.Type), string(s.Priority), s.Depth, s.ReplyTo, string(s.Metadata), []byte(s.Content), s.Size())
		if err != nil {
			return err
		}
		return p.trimSignals(m.keep, now)
	})
	return s, err
}

// replies makes sure that a reply is to what its sender got or sent.
func (p *post) replies(s *mailbox.Signal) error {
	var sender, recipient string
	err := p.one(`SELECT sender, recipient FROM ossicle.mailbox_signal WHERE session = $1 AND id = $2`, []any{s.ReplyTo}, &sender, &recipient)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if err != nil || sender != s.Sender && !mailbox.Reaches(recipient, sender, s.Sender) {
		return &mailbox.InvalidError{Field: "reply_to", Problem: "there is no such signal to or from you (any more)"}
	}
	return nil
}

// Changes implements mailbox.Store.
func (m *Mailbox) Changes(ctx context.Context, since mailbox.Heads) (c mailbox.Changes, err error) {
	err = m.read(ctx, "read changes", func(p *post) error {
		err := p.one(`SELECT signals, notes, board, agents FROM ossicle.mailbox WHERE session = $1`, nil,
			&c.Heads.Signals, &c.Heads.Notes, &c.Heads.Board, &c.Heads.Agents)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && c.Heads.Signals <= since.Signals {
			return nil // nobody has written to it yet
		}
		if err != nil {
			return err
		}
		err = p.each(`SELECT seq, sender, recipient, type, priority, depth, reply_to FROM ossicle.mailbox_signal WHERE session = $1 AND seq > $2 ORDER BY seq LIMIT $3`,
			[]any{since.Signals, mailbox.MaxChanges}, func(scan func(...any) error) error {
				var e mailbox.Envelope
				var typ, priority string
				err := scan(&e.Sequence, &e.Sender, &e.Recipient, &typ, &priority, &e.Depth, &e.ReplyTo)
				e.Type, e.Priority = mailbox.Type(typ), mailbox.Type(priority)
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
