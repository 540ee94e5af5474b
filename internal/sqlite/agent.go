package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ossicle/ossicle/agent"
)

// Defaults of SessionOptions.
const (
	DefaultSessions        = 1000
	DefaultEntries         = 100_000
	DefaultTranscriptBytes = 64 << 20
	DefaultTotalBytes      = 2 << 30
)

// SessionOptions bound what a Sessions keeps. Zero fields take the defaults.
type SessionOptions struct {
	// Sessions bounds their number. When there are more, the one that was left
	// alone for longest is removed.
	Sessions int
	// Entries and Bytes bound one transcript. When it has more, its oldest
	// entries go; the newest one stays, whatever its size.
	Entries, Bytes int64
	// TotalBytes bounds all transcripts together, to within totalStep for each
	// session. When they have more, the sessions that were left alone for longest
	// are removed, but not the one that is written to.
	TotalBytes int64
}

func (o *SessionOptions) orDefaults() SessionOptions {
	var opts SessionOptions
	if o != nil {
		opts = *o
	}
	if opts.Sessions <= 0 {
		opts.Sessions = DefaultSessions
	}
	if opts.Entries <= 0 {
		opts.Entries = DefaultEntries
	}
	if opts.Bytes <= 0 {
		opts.Bytes = DefaultTranscriptBytes
	}
	if opts.TotalBytes <= 0 {
		opts.TotalBytes = DefaultTotalBytes
	}
	return opts
}

// Sessions is the agent.Store of a file. Several processes may append to one
// transcript at once.
type Sessions struct {
	db   *DB
	keep SessionOptions
}

var _ agent.Store = (*Sessions)(nil)

// Sessions returns the store of sessions and their transcripts; nil options are
// the defaults. The bounds apply to what this store writes: whoever appends
// last decides.
func (db *DB) Sessions(o *SessionOptions) *Sessions { return &Sessions{db: db, keep: o.orDefaults()} }

// nextTouch is a clock that several processes agree on, and that nobody can set
// back.
const nextTouch = `(SELECT coalesce(max(touched), 0) + 1 FROM agent_session)`

// Save implements agent.Store.
func (s *Sessions) Save(ctx context.Context, m agent.Meta) error {
	return named("save session", m.ID, s.db.write(ctx, func(t *tx) error {
		_, err := t.exec(`INSERT INTO agent_session (name, saved, profile, dir, agent, conversation, created_at, updated_at, touched)
			VALUES (?, 1, ?, ?, ?, ?, ?, ?, `+nextTouch+`)
			ON CONFLICT (name) DO UPDATE SET saved = 1, profile = excluded.profile, dir = excluded.dir, agent = excluded.agent,
				conversation = excluded.conversation, created_at = excluded.created_at, updated_at = excluded.updated_at, touched = excluded.touched`,
			m.ID, m.Profile, m.Dir, m.Agent, m.Conversation, nanos(m.CreatedAt), nanos(m.UpdatedAt))
		if err != nil {
			return err
		}
		return t.boundSessions(s.keep.Sessions)
	}))
}

// Sessions implements agent.Store.
func (s *Sessions) Sessions(ctx context.Context) ([]agent.Meta, error) {
	all := []agent.Meta{}
	err := s.db.read(ctx, func(t *tx) error {
		return t.each(`SELECT name, profile, dir, agent, conversation, created_at, updated_at FROM agent_session
			WHERE saved = 1 ORDER BY created_at, name`, nil, func(scan func(...any) error) error {
			var m agent.Meta
			var created, updated sql.NullInt64
			err := scan(&m.ID, &m.Profile, &m.Dir, &m.Agent, &m.Conversation, &created, &updated)
			m.CreatedAt, m.UpdatedAt = fromNanos(created), fromNanos(updated)
			all = append(all, m)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return all, nil
}

// Remove implements agent.Store.
func (s *Sessions) Remove(ctx context.Context, session string) error {
	return named("remove session", session, s.db.write(ctx, func(t *tx) error {
		deleted, err := t.exec(`DELETE FROM agent_session WHERE name = ?`, session)
		if err == nil && deleted == 0 {
			err = agent.ErrNotFound
		}
		return err
	}))
}

// List implements agent.Store.
func (s *Sessions) List(ctx context.Context, session string, q agent.Query) ([]agent.Entry, error) {
	const columns = `SELECT seq, body, text, input, output FROM agent_entry
		WHERE session = (SELECT id FROM agent_session WHERE name = ?) AND seq > ? ORDER BY seq `
	query := columns + `LIMIT ?`
	if q.Last {
		query = columns + `DESC LIMIT ?`
	}
	var found []agent.Entry
	err := s.db.read(ctx, func(t *tx) error {
		return t.each(query, []any{session, q.After, q.Page()}, func(scan func(...any) error) error {
			e, err := scanEntry(scan)
			found = append(found, e)
			return err
		})
	})
	if err != nil {
		return nil, named("list entries of session", session, err)
	}
	if q.Last {
		slices.Reverse(found)
	}
	return found, nil
}

// tailsQuery finds the ends of transcripts. The plus keeps SQLite from finding the
// sessions by their names: it goes through them and their entries by number, and sorts
// nothing.
const tailsQuery = `SELECT s.name, e.seq, e.body FROM agent_session s CROSS JOIN agent_entry e
	WHERE +s.name IN (SELECT value FROM json_each(?)) AND e.session = s.id AND e.seq > s.last - ? ORDER BY s.id, e.seq`

// Tails implements agent.Store.
func (s *Sessions) Tails(ctx context.Context, sessions []string, n int, each func(session string, tail []agent.Entry)) error {
	names, err := json.Marshal(sessions)
	if err != nil {
		return fmt.Errorf("list ends of sessions: %w", err)
	}
	var of string
	var tail []agent.Entry
	flush := func() {
		if len(tail) > 0 {
			each(of, tail)
		}
		tail = nil
	}
	err = s.db.read(ctx, func(t *tx) error {
		return t.each(tailsQuery, []any{string(names), n}, func(scan func(...any) error) error {
			var name, body string
			var e agent.Entry
			var seq int64
			if err := scan(&name, &seq, &body); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(body), &e); err != nil {
				return fmt.Errorf("decode entry %d of session %q: %w", seq, name, err)
			}
			if e.Seq = seq; name != of {
				flush()
				of = name
			}
			tail = append(tail, e)
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("list ends of sessions: %w", err)
	}
	flush()
	return nil
}

// row is an entry as it is stored.
type row struct {
	body, text    string
	input, output []byte
}

// size is what an entry counts for in the bounds: its bytes, without those that
// the database needs for itself.
func (r row) size() int64 { return int64(len(r.body) + len(r.text) + len(r.input) + len(r.output)) }

func toRow(e agent.Entry) (row, error) {
	r := row{text: e.Text, input: e.Input, output: e.Output}
	e.Seq, e.Text, e.Input, e.Output = 0, "", nil, nil
	e.Time = e.Time.UTC().Round(0)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return row{}, fmt.Errorf("encode entry: %w", err)
	}
	r.body = b.String()[:b.Len()-1]
	return r, nil
}

func scanEntry(scan func(...any) error) (agent.Entry, error) {
	var e agent.Entry
	var r row
	var seq int64
	if err := scan(&seq, &r.body, &r.text, &r.input, &r.output); err != nil {
		return e, err
	}
	if err := json.Unmarshal([]byte(r.body), &e); err != nil {
		return e, fmt.Errorf("decode entry %d: %w", seq, err)
	}
	e.Seq, e.Text, e.Input, e.Output = seq, r.text, r.input, r.output
	return e, nil
}

// named says what failed for whom; errors of the port stay bare.
func named(verb, session string, err error) error {
	if err == nil || errors.Is(err, agent.ErrNotFound) {
		return err
	}
	return fmt.Errorf("%s %q: %w", verb, session, err)
}
