package noticetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ossicle/ossicle/notice"
)

// Store is a notice.Store in memory. It is the model that other stores are
// compared with, written to be obviously right rather than fast.
type Store struct {
	mu     sync.Mutex
	seq    int64
	agents map[string]*inbox
	byID   map[string]*row
	fail   func(method string) error
}

// SetFail has f called before every method with its name; its error is returned
// instead of doing anything.
func (s *Store) SetFail(f func(method string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

type inbox struct {
	rows  []*row // in order of seq
	keys  map[string]key
	fence int64
	hold  notice.Hold
	spent []spending
}

type key struct {
	id string
	at time.Time
}

type spending struct {
	at            time.Time
	wakes, tokens int
}

type row struct {
	notice.Record
	seq     int64
	keptAt  time.Time
	claim   string
	adapter string
	wake    bool
	until   time.Time
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{agents: map[string]*inbox{}, byID: map[string]*row{}}
}

var _ notice.Store = (*Store)(nil)

func (s *Store) begin(ctx context.Context, method string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.fail != nil {
		if err := s.fail(method); err != nil {
			s.mu.Unlock()
			return err
		}
	}
	return nil
}

func (s *Store) inbox(agent string) (*inbox, error) {
	if b := s.agents[agent]; b != nil {
		return b, nil
	}
	known := s.names()
	return nil, &notice.UnknownAgentError{Agent: agent, Known: known[:min(len(known), 10)]}
}

func (s *Store) names() []string {
	names := []string{}
	for name := range s.agents {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Register implements notice.Directory.
func (s *Store) Register(ctx context.Context, agent string, _ time.Time) error {
	if err := s.begin(ctx, "Register"); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.agents[agent] == nil {
		s.agents[agent] = &inbox{keys: map[string]key{}}
	}
	return nil
}

// Unregister implements notice.Directory.
func (s *Store) Unregister(ctx context.Context, agent string) error {
	if err := s.begin(ctx, "Unregister"); err != nil {
		return err
	}
	defer s.mu.Unlock()
	b, err := s.inbox(agent)
	if err != nil {
		return err
	}
	for _, r := range b.rows {
		delete(s.byID, r.ID)
	}
	delete(s.agents, agent)
	return nil
}

// Agents implements notice.Directory.
func (s *Store) Agents(ctx context.Context) ([]string, error) {
	if err := s.begin(ctx, "Agents"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return s.names(), nil
}

// Fence implements notice.Directory.
func (s *Store) Fence(ctx context.Context, agent string) (int64, error) {
	if err := s.begin(ctx, "Fence"); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	b, err := s.inbox(agent)
	if err != nil {
		return 0, err
	}
	b.fence++
	return b.fence, nil
}

// Insert implements notice.Log.
func (s *Store) Insert(ctx context.Context, n notice.Notice, at, due time.Time) (string, bool, error) {
	if err := s.begin(ctx, "Insert"); err != nil {
		return "", false, err
	}
	defer s.mu.Unlock()
	b, err := s.inbox(n.Agent)
	if err != nil {
		return "", false, err
	}
	if k, ok := b.keys[n.DedupeKey]; ok {
		return k.id, false, nil
	}
	if s.byID[n.ID] != nil {
		return "", false, &notice.InvalidError{Field: "id", Problem: fmt.Sprintf("%q belongs to another notice", n.ID)}
	}
	s.seq++
	r := &row{seq: s.seq, keptAt: at, Record: notice.Record{
		Notice: n, State: notice.Persisted, StateAt: at, Due: due,
		Steps: []notice.Step{{State: notice.Persisted, At: at, Adapter: "inbox"}},
	}}
	b.rows = append(b.rows, r)
	b.keys[n.DedupeKey] = key{n.ID, at}
	s.byID[n.ID] = r
	return n.ID, true, nil
}

func (r *row) move(step notice.Step) {
	r.State, r.StateAt = step.State, step.At
	r.Steps = append(r.Steps, step)
	if !step.State.Pending() {
		r.free()
	}
}

func (r *row) free() {
	r.claim, r.adapter, r.wake, r.until, r.Delivery = "", "", false, time.Time{}, ""
}

// Move implements notice.Log.
func (s *Store) Move(ctx context.Context, agent string, ids []string, step notice.Step) ([]string, error) {
	if err := s.begin(ctx, "Move"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var moved []string
	for _, id := range ids {
		if r := s.byID[id]; r != nil && r.Agent == agent && r.State.CanBecome(step.State) {
			r.move(step)
			moved = append(moved, id)
		}
	}
	return moved, nil
}

// Get implements notice.Log.
func (s *Store) Get(ctx context.Context, id string) (notice.Record, error) {
	if err := s.begin(ctx, "Get"); err != nil {
		return notice.Record{}, err
	}
	defer s.mu.Unlock()
	r := s.byID[id]
	if r == nil {
		return notice.Record{}, notice.ErrNotFound
	}
	out := r.Record
	out.Steps = slices.Clone(r.Steps)
	return out, nil
}

// List implements notice.Log.
func (s *Store) List(ctx context.Context, q notice.Query) (notice.Page, error) {
	if err := s.begin(ctx, "List"); err != nil {
		return notice.Page{}, err
	}
	defer s.mu.Unlock()
	var rows []*row
	if q.Agent != "" {
		b, err := s.inbox(q.Agent)
		if err != nil {
			return notice.Page{}, err
		}
		rows = slices.Clone(b.rows)
	} else {
		for _, r := range s.byID {
			rows = append(rows, r)
		}
	}
	after, err := cursor(q.After)
	if err != nil {
		return notice.Page{}, err
	}
	rows = slices.DeleteFunc(rows, func(r *row) bool {
		return q.States != nil && !slices.Contains(q.States, r.State) || q.Source != "" && q.Source != r.Source ||
			after != 0 && (q.Newest && r.seq >= after || !q.Newest && r.seq <= after)
	})
	slices.SortFunc(rows, func(a, b *row) int {
		if q.Newest {
			return cmp.Compare(b.seq, a.seq)
		}
		return cmp.Compare(a.seq, b.seq)
	})
	limit := q.Limit
	if limit <= 0 {
		limit = notice.DefaultPage
	}
	limit = min(limit, notice.MaxPage)
	page := notice.Page{Records: []notice.Record{}}
	for i, r := range rows {
		if i == limit {
			page.Next = strconv.FormatInt(rows[i-1].seq, 10)
			break
		}
		page.Records = append(page.Records, r.listed())
	}
	return page, nil
}

func cursor(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, &notice.InvalidError{Field: "after", Problem: "it is not what an earlier page ended with"}
	}
	return n, nil
}

func (r *row) listed() notice.Record {
	out := r.Record
	out.Steps = nil
	return out
}

// Counts implements notice.Log.
func (s *Store) Counts(ctx context.Context, agent string) (notice.Counts, error) {
	if err := s.begin(ctx, "Counts"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	b, err := s.inbox(agent)
	if err != nil {
		return nil, err
	}
	counts := notice.Counts{}
	for _, r := range b.rows {
		counts[r.State]++
	}
	return counts, nil
}
