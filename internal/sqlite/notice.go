package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ossicle/ossicle/notice"
)

// Notices is the notice.Store of a file.
type Notices struct{ db *DB }

var _ notice.Store = (*Notices)(nil)

// Notices returns the store of inboxes.
func (db *DB) Notices() *Notices { return &Notices{db: db} }

// Times are nanoseconds; NULL is the zero time.

func nanos(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

func fromNanos(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.Unix(0, n.Int64).UTC()
}

func at(n int64) time.Time { return time.Unix(0, n).UTC() }

// longAgo stands for a zero time that bounds nothing.
func bound(t time.Time) int64 {
	if t.IsZero() {
		return -1 << 63
	}
	return t.UnixNano()
}

// wrap says in which store something failed; errors of the port stay bare.
func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	for _, bare := range []error{notice.ErrNotFound, notice.ErrFenced, notice.ErrOutstanding} {
		if errors.Is(err, bare) {
			return err
		}
	}
	if errors.As(err, new(*notice.UnknownAgentError)) || errors.As(err, new(*notice.InvalidError)) {
		return err
	}
	return fmt.Errorf("%s: %w", verb, err)
}

// agentID finds an addressee.
func (t *tx) agentID(name string) (int64, error) {
	var id int64
	err := t.one(`SELECT id FROM notice_agent WHERE name = ?`, []any{name}, &id)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, err
	}
	unknown := &notice.UnknownAgentError{Agent: name, Known: []string{}}
	err = t.each(`SELECT name FROM notice_agent ORDER BY name LIMIT 10`, nil, func(scan func(...any) error) error {
		var s string
		defer func() { unknown.Known = append(unknown.Known, s) }()
		return scan(&s)
	})
	if err != nil {
		return 0, err
	}
	return 0, unknown
}

// Register implements notice.Directory.
func (n *Notices) Register(ctx context.Context, agent string, when time.Time) error {
	return wrap("register agent", n.db.write(ctx, func(t *tx) error {
		_, err := t.exec(`INSERT INTO notice_agent (name, registered_at) VALUES (?, ?) ON CONFLICT (name) DO NOTHING`, agent, when.UnixNano())
		return err
	}))
}

// Unregister implements notice.Directory.
func (n *Notices) Unregister(ctx context.Context, agent string) error {
	return wrap("unregister agent", n.db.write(ctx, func(t *tx) error {
		id, err := t.agentID(agent)
		if err != nil {
			return err
		}
		// Before the agent, so that the triggers find what they count.
		if _, err := t.exec(`DELETE FROM notice WHERE agent = ?`, id); err != nil {
			return err
		}
		_, err = t.exec(`DELETE FROM notice_agent WHERE id = ?`, id)
		return err
	}))
}

// Agents implements notice.Directory.
func (n *Notices) Agents(ctx context.Context) ([]string, error) {
	names := []string{}
	err := n.db.read(ctx, func(t *tx) error {
		return t.each(`SELECT name FROM notice_agent ORDER BY name`, nil, func(scan func(...any) error) error {
			var s string
			err := scan(&s)
			names = append(names, s)
			return err
		})
	})
	return names, wrap("list agents", err)
}

// Fence implements notice.Directory.
func (n *Notices) Fence(ctx context.Context, agent string) (int64, error) {
	var fence int64
	err := n.db.write(ctx, func(t *tx) error {
		id, err := t.agentID(agent)
		if err != nil {
			return err
		}
		return t.one(`UPDATE notice_agent SET fence = fence + 1 WHERE id = ? RETURNING fence`, []any{id}, &fence)
	})
	return fence, wrap("begin term of delivery", err)
}

// Insert implements notice.Log.
func (n *Notices) Insert(ctx context.Context, v notice.Notice, when, due time.Time) (string, bool, error) {
	id, added := v.ID, false
	err := n.db.write(ctx, func(t *tx) error {
		agent, err := t.agentID(v.Agent)
		if err != nil {
			return err
		}
		err = t.one(`SELECT id FROM notice_key WHERE agent = ? AND key = ?`, []any{agent, v.DedupeKey}, &id)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		added = true
		return t.insert(agent, v, when, due)
	})
	return id, added, wrap("insert notice", err)
}

func (t *tx) insert(agent int64, v notice.Notice, when, due time.Time) error {
	var meta any
	if len(v.Meta) > 0 {
		b, err := json.Marshal(v.Meta)
		if err != nil {
			return err
		}
		meta = string(b)
	}
	var seq int64
	err := t.one(`INSERT INTO notice (id, agent, source, title, text, meta, created_at, dedupe_key, depth, kept_at, state_at, due)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING RETURNING seq`,
		[]any{v.ID, agent, string(v.Source), v.Title, v.Text, meta, v.CreatedAt.UnixNano(), v.DedupeKey, v.Depth, when.UnixNano(), when.UnixNano(), nanos(due)}, &seq)
	if errors.Is(err, sql.ErrNoRows) {
		return &notice.InvalidError{Field: "id", Problem: fmt.Sprintf("%q belongs to another notice", v.ID)}
	}
	if err != nil {
		return err
	}
	if _, err := t.exec(`INSERT INTO notice_key (agent, key, id, at) VALUES (?, ?, ?, ?)`, agent, v.DedupeKey, v.ID, when.UnixNano()); err != nil {
		return err
	}
	return t.step(seq, notice.Step{State: notice.Persisted, At: when, Adapter: "inbox"})
}

func (t *tx) step(seq int64, s notice.Step) error {
	_, err := t.exec(`INSERT INTO notice_step (notice, n, state, at, adapter, reason)
		SELECT ?1, coalesce(max(n), 0) + 1, ?2, ?3, ?4, ?5 FROM notice_step WHERE notice = ?1`,
		seq, s.State.Rank(), s.At.UnixNano(), s.Adapter, s.Reason)
	return err
}

// Move implements notice.Log.
func (n *Notices) Move(ctx context.Context, agent string, ids []string, step notice.Step) ([]string, error) {
	var moved []string
	err := n.db.write(ctx, func(t *tx) error {
		for _, id := range ids {
			var seq int64
			// Rank 3 is Suppressed, from where nothing leads on.
			err := t.one(`UPDATE notice SET state = ?1, state_at = ?2
				WHERE id = ?3 AND agent = (SELECT id FROM notice_agent WHERE name = ?4) AND state < ?1 AND state <> 3 RETURNING seq`,
				[]any{step.State.Rank(), step.At.UnixNano(), id, agent}, &seq)
			switch {
			case errors.Is(err, sql.ErrNoRows):
				continue
			case err != nil:
				return err
			}
			if err := t.moved(seq, step); err != nil {
				return err
			}
			moved = append(moved, id)
		}
		return nil
	})
	if err != nil {
		return nil, wrap("move notices", err)
	}
	return moved, nil
}

// moved records the step of a notice that has its new state, and frees it if it
// is no longer pending.
func (t *tx) moved(seq int64, step notice.Step) error {
	if !step.State.Pending() {
		if err := t.free(seq); err != nil {
			return err
		}
	}
	return t.step(seq, step)
}

func (t *tx) free(seq int64) error {
	_, err := t.exec(`UPDATE notice SET claim = NULL, claim_adapter = NULL, claim_wake = NULL, claim_until = NULL WHERE seq = ? AND claim IS NOT NULL`, seq)
	return err
}

const columns = `n.seq, n.id, a.name, n.source, n.title, n.text, n.meta, n.created_at, n.dedupe_key, n.depth,
	n.state, n.state_at, n.offers, n.route, n.tries, n.due, coalesce(n.claim, '')`

const from = ` FROM notice n`

const joined = ` JOIN notice_agent a ON a.id = n.agent`

// record reads columns.
func record(scan func(...any) error) (seq int64, r notice.Record, err error) {
	var (
		meta               sql.NullString
		created, since     int64
		state              int
		due                sql.NullInt64
		source, title, txt string
	)
	err = scan(&seq, &r.ID, &r.Agent, &source, &title, &txt, &meta, &created, &r.DedupeKey, &r.Depth,
		&state, &since, &r.Offers, &r.Route, &r.Tries, &due, &r.Delivery)
	if err != nil {
		return 0, r, err
	}
	r.Source, r.Title, r.Text = notice.Source(source), title, txt
	r.CreatedAt, r.StateAt, r.Due = at(created), at(since), fromNanos(due)
	if r.State, err = stateOf(state); err != nil {
		return 0, r, err
	}
	if meta.Valid {
		err = json.Unmarshal([]byte(meta.String), &r.Meta)
	}
	return seq, r, err
}

func stateOf(rank int) (notice.State, error) {
	states := notice.States()
	if rank < 0 || rank >= len(states) {
		return "", fmt.Errorf("read state: there is none of rank %d", rank)
	}
	return states[rank], nil
}

// Get implements notice.Log.
func (n *Notices) Get(ctx context.Context, id string) (notice.Record, error) {
	var r notice.Record
	err := n.db.read(ctx, func(t *tx) error {
		found := false
		var seq int64
		err := t.each(`SELECT `+columns+from+joined+` WHERE n.id = ?`, []any{id}, func(scan func(...any) error) (err error) {
			found = true
			seq, r, err = record(scan)
			return err
		})
		if err != nil {
			return err
		}
		if !found {
			return notice.ErrNotFound
		}
		return t.each(`SELECT state, at, adapter, reason FROM notice_step WHERE notice = ? ORDER BY n`, []any{seq}, func(scan func(...any) error) error {
			var (
				s     notice.Step
				rank  int
				since int64
			)
			err := scan(&rank, &since, &s.Adapter, &s.Reason)
			if err != nil {
				return err
			}
			s.At = at(since)
			if s.State, err = stateOf(rank); err == nil {
				r.Steps = append(r.Steps, s)
			}
			return err
		})
	})
	if err != nil {
		return notice.Record{}, wrap("get notice", err)
	}
	return r, nil
}

type numbered struct {
	seq int64
	notice.Record
}

// List implements notice.Log. It walks the index of each agent and state, and
// reads only the rows of the page.
func (n *Notices) List(ctx context.Context, q notice.Query) (notice.Page, error) {
	after, err := parseCursor(q)
	if err != nil {
		return notice.Page{}, err
	}
	if q.Limit <= 0 {
		q.Limit = notice.DefaultPage
	}
	q.Limit = min(q.Limit, notice.MaxPage)
	page := notice.Page{Records: []notice.Record{}}
	err = n.db.read(ctx, func(t *tx) error {
		seqs, err := t.walk(q, after)
		if err != nil {
			return err
		}
		if len(seqs) > q.Limit {
			seqs = seqs[:q.Limit]
			page.Next = strconv.FormatInt(seqs[q.Limit-1], 10)
		}
		list, err := json.Marshal(seqs)
		if err != nil {
			return err
		}
		return t.each(`SELECT `+columns+` FROM json_each(?) j JOIN notice n ON n.seq = j.value`+joined+` ORDER BY j.key`, []any{string(list)},
			func(scan func(...any) error) error {
				_, r, err := record(scan)
				page.Records = append(page.Records, r)
				return err
			})
	})
	if err != nil {
		return notice.Page{}, wrap("list notices", err)
	}
	return page, nil
}

// walk returns the numbers of a page in order, and one more if there is more.
func (t *tx) walk(q notice.Query, after int64) ([]int64, error) {
	agents, err := t.listed(q.Agent)
	if err != nil {
		return nil, err
	}
	states := q.States
	if len(states) == 0 {
		states = notice.States()
	}
	query := `SELECT seq FROM notice INDEXED BY notice_state WHERE agent = ? AND state = ? AND seq > ?`
	end := ` ORDER BY seq LIMIT ?`
	if q.Newest {
		query = `SELECT seq FROM notice INDEXED BY notice_state WHERE agent = ? AND state = ? AND seq < ?`
		end = ` ORDER BY seq DESC LIMIT ?`
	}
	if q.Source != "" {
		query += ` AND source = ?`
	}
	var seqs []int64
	for _, agent := range agents {
		for _, state := range states {
			args := []any{agent, state.Rank(), after}
			if q.Source != "" {
				args = append(args, string(q.Source))
			}
			err := t.each(query+end, append(args, q.Limit+1), func(scan func(...any) error) error {
				var seq int64
				err := scan(&seq)
				seqs = append(seqs, seq)
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(seqs, func(a, b int64) int {
		if q.Newest {
			a, b = b, a
		}
		return cmp.Compare(a, b)
	})
	return slices.Compact(seqs), nil // a state named twice is walked twice
}

// listed returns the numbers of one agent, or of all.
func (t *tx) listed(agent string) ([]int64, error) {
	if agent != "" {
		id, err := t.agentID(agent)
		return []int64{id}, err
	}
	var ids []int64
	err := t.each(`SELECT id FROM notice_agent`, nil, func(scan func(...any) error) error {
		var id int64
		err := scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

func parseCursor(q notice.Query) (int64, error) {
	if q.After == "" {
		if q.Newest {
			return 1<<63 - 1, nil
		}
		return 0, nil
	}
	seq, err := strconv.ParseInt(q.After, 10, 64)
	if err != nil || seq <= 0 {
		return 0, &notice.InvalidError{Field: "after", Problem: "it is not what an earlier page ended with"}
	}
	return seq, nil
}

// Counts implements notice.Log.
func (n *Notices) Counts(ctx context.Context, agent string) (notice.Counts, error) {
	counts := notice.Counts{}
	err := n.db.read(ctx, func(t *tx) error {
		id, err := t.agentID(agent)
		if err != nil {
			return err
		}
		return t.each(`SELECT state, n FROM notice_count WHERE agent = ? AND n > 0`, []any{id}, func(scan func(...any) error) error {
			var rank, number int
			if err := scan(&rank, &number); err != nil {
				return err
			}
			state, err := stateOf(rank)
			counts[state] = number
			return err
		})
	})
	return counts, wrap("count notices", err)
}
