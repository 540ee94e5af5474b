// Package mailboxtest holds the contracts of the ports of package mailbox as
// tests, and fakes of them.
package mailboxtest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ossicle/ossicle/mailbox"
)

// Memory is a store that lives as long as the process. It is safe for concurrent
// use.
type Memory struct {
	mu      sync.Mutex
	heads   mailbox.Heads
	agents  map[string]*member
	signals []mailbox.Signal
	notes   []mailbox.Note
	board   map[string]mailbox.Entry
	turns   []turn
	keep    mailbox.Retention
	done    map[int64]bool      // sequences of signals that are done
	waiting map[string][2]int64 // count and bytes of those that are not, by sender
	fail    error
	writes  int
}

var _ mailbox.Store = (*Memory)(nil)

type member struct {
	mailbox.Agent

	run        string
	limits     mailbox.Limits
	bucket     mailbox.Bucket
	read       map[int64]bool
	considered int64
	turn       string
	until      time.Time
	came       bool // by its last call: it was not active before
	missed     int
}

type turn struct {
	agent string
	at    time.Time
}

// NewMemory returns an empty session.
func NewMemory() *Memory {
	return NewMemoryOf(nil)
}

// NewMemoryOf returns an empty session that keeps so much.
func NewMemoryOf(keep *mailbox.Retention) *Memory {
	return &Memory{agents: map[string]*member{}, board: map[string]mailbox.Entry{}, keep: keep.OrDefaults(), done: map[int64]bool{}, waiting: map[string][2]int64{}}
}

// Fail has every call fail with err until it is nil.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// Writes counts the calls that wrote.
func (m *Memory) Writes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes
}

// enter locks, and finds who calls.
//
// It leaves the lock to its caller to open.
func (m *Memory) enter(who mailbox.Identity, now time.Time) (*member, error) {
	m.mu.Lock()
	if m.fail != nil {
		return nil, m.fail
	}
	a := m.agents[who.Agent]
	if a == nil || a.run != who.Run {
		return nil, &mailbox.LostError{Agent: who.Agent}
	}
	m.writes++
	if a.came = mailbox.StatusAt(a.Status, a.LastSeen, now) != mailbox.Active; a.came {
		m.heads.Agents++
	}
	a.Status, a.LastSeen = mailbox.Active, now.UTC()
	return a, nil
}

// Register implements mailbox.Members.
func (m *Memory) Register(_ context.Context, r mailbox.Registration, now time.Time) (mailbox.Agent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return mailbox.Agent{}, m.fail
	}
	a := m.agents[r.Agent]
	switch {
	case a == nil:
		if err := m.seat(now); err != nil {
			return mailbox.Agent{}, err
		}
		a = &member{read: map[int64]bool{}}
		a.ID, a.RegisteredAt = r.Agent, now.UTC()
		m.agents[r.Agent] = a
	case a.run != r.Run && mailbox.Live(a.Status, a.LastSeen, now):
		return mailbox.Agent{}, &mailbox.ConflictError{Agent: r.Agent, Since: a.LastSeen}
	}
	m.writes++
	m.heads.Agents++
	a.run, a.limits = r.Run, r.Limits
	a.Harness, a.Substrate, a.Status, a.LastSeen = cmp.Or(r.Harness, a.Harness), cmp.Or(r.Substrate, a.Substrate), mailbox.Active, now.UTC()
	return a.Agent, nil
}

// Touch implements mailbox.Members.
func (m *Memory) Touch(_ context.Context, who mailbox.Identity, now time.Time) (changed bool, err error) {
	defer m.mu.Unlock()
	a, err := m.enter(who, now)
	return err == nil && a.came, err
}

// SetStatus implements mailbox.Members.
func (m *Memory) SetStatus(_ context.Context, who mailbox.Identity, s mailbox.Status, now time.Time) error {
	defer m.mu.Unlock()
	a, err := m.enter(who, now)
	if err == nil && a.Status != s {
		a.Status = s
		m.heads.Agents++
	}
	return err
}

// Agents implements mailbox.Members.
func (m *Memory) Agents(context.Context) ([]mailbox.Agent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []mailbox.Agent
	for _, a := range m.agents {
		all = append(all, a.Agent)
	}
	slices.SortFunc(all, func(a, b mailbox.Agent) int { return cmp.Compare(a.ID, b.ID) })
	return all, m.fail
}

// Send implements mailbox.Signals.
func (m *Memory) Send(_ context.Context, who mailbox.Identity, s mailbox.Signal, limits mailbox.Limits, now time.Time) (mailbox.Signal, error) {
	defer m.mu.Unlock()
	a, err := m.enter(who, now)
	if err != nil {
		return s, err
	}
	s.Sender = who.Agent
	if s.ReplyTo != "" && !slices.ContainsFunc(m.signals, func(o mailbox.Signal) bool {
		return o.ID == s.ReplyTo && (o.Sender == who.Agent || mailbox.Reaches(o.Recipient, o.Sender, who.Agent))
	}) {
		return s, &mailbox.InvalidError{Field: "reply_to", Problem: "there is no such signal to or from you (any more)"}
	}
	if s.Depth = 0; mailbox.InTurn(a.turn, a.until, now) {
		s.Depth = 1
	}
	if s.Depth > 0 && s.Demanding() {
		return s, &mailbox.EscalatedError{Agent: who.Agent, Type: s.Type}
	}
	limit := a.limits.Or(limits).OrDefaults().Signals
	bucket, wait := a.bucket.Take(now, limit)
	if wait > 0 {
		return s, &mailbox.RateError{Limit: limit, Wait: wait}
	}
	if !m.admits(&s, now) {
		return s, m.keep.Full()
	}
	a.bucket = bucket
	m.heads.Signals++
	s.Sequence = m.heads.Signals
	m.signals = append(m.signals, s)
	m.trim(now)
	return s, nil
}

// Read implements mailbox.Signals.
func (m *Memory) Read(_ context.Context, q mailbox.Selection) (mailbox.Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var p mailbox.Page
	size, limit := 0, mailbox.PageLimit(q.Limit)
	if a := m.agents[q.Agent]; a != nil {
		p.Missed = a.missed
	}
	for _, s := range m.signals {
		mine := mailbox.Reaches(s.Recipient, s.Sender, q.Agent)
		s.Read = mine && m.has(q.Agent, s.Sequence)
		if mine && !s.Read {
			p.Unread++
		}
		switch {
		case q.Sent && s.Sender != q.Agent, !q.Sent && !mine, !q.Sent && !q.All && s.Read, s.Sequence <= q.After, p.Next > 0:
			continue
		case len(p.Signals) == limit, len(p.Signals) > 0 && size+len(s.Content) > mailbox.MaxPageBytes:
			p.Next = p.Signals[len(p.Signals)-1].Sequence
			continue
		}
		if q.Sent {
			for _, a := range m.agents {
				if a.read[s.Sequence] {
					s.ReadBy = append(s.ReadBy, a.ID)
				}
			}
			slices.Sort(s.ReadBy)
		}
		size += len(s.Content)
		p.Signals = append(p.Signals, s)
	}
	return p, m.fail
}

func (m *Memory) has(agent string, seq int64) bool {
	a := m.agents[agent]
	return a != nil && a.read[seq]
}

// Find implements mailbox.Signals.
func (m *Memory) Find(_ context.Context, id string) (mailbox.Signal, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.signals, func(s mailbox.Signal) bool { return s.ID == id })
	if i < 0 || m.fail != nil {
		return mailbox.Signal{}, false, m.fail
	}
	return m.signals[i], true, nil
}

// Ack implements mailbox.Signals.
func (m *Memory) Ack(_ context.Context, who mailbox.Identity, ids []string, now time.Time) ([]string, error) {
	defer m.mu.Unlock()
	a, err := m.enter(who, now)
	if err != nil {
		return nil, err
	}
	var missing, fresh []string
	var seqs []int64
	for _, id := range ids {
		i := slices.IndexFunc(m.signals, func(s mailbox.Signal) bool {
			return s.ID == id && mailbox.Reaches(s.Recipient, s.Sender, who.Agent)
		})
		switch {
		case i < 0:
			missing = append(missing, id)
		case !a.read[m.signals[i].Sequence] && !slices.Contains(fresh, id):
			fresh, seqs = append(fresh, id), append(seqs, m.signals[i].Sequence)
		}
	}
	if missing != nil {
		return nil, &mailbox.IDsError{IDs: missing}
	}
	for _, seq := range seqs {
		a.read[seq] = true
	}
	m.finish(now, func(s *mailbox.Signal) bool { return slices.Contains(seqs, s.Sequence) })
	return fresh, nil
}

// AddNote implements mailbox.Board.
func (m *Memory) AddNote(_ context.Context, who mailbox.Identity, text string, now time.Time) (mailbox.Note, error) {
	defer m.mu.Unlock()
	if _, err := m.enter(who, now); err != nil {
		return mailbox.Note{}, err
	}
	m.heads.Notes++
	n := mailbox.Note{Sequence: m.heads.Notes, Time: now.UTC(), Author: who.Agent, Text: text}
	m.notes = append(m.notes, n)
	m.trimNotes()
	return n, nil
}

// Notes implements mailbox.Board.
func (m *Memory) Notes(_ context.Context, after int64, limit int) (notes []mailbox.Note, next int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := 0
	for _, n := range m.notes {
		if n.Sequence <= after {
			continue
		}
		if len(notes) == mailbox.PageLimit(limit) || len(notes) > 0 && size+len(n.Text) > mailbox.MaxPageBytes {
			return notes, notes[len(notes)-1].Sequence, m.fail
		}
		size += len(n.Text)
		notes = append(notes, n)
	}
	return notes, 0, m.fail
}

// SetEntry implements mailbox.Board.
func (m *Memory) SetEntry(_ context.Context, who mailbox.Identity, key, value string, now time.Time) (mailbox.Entry, error) {
	defer m.mu.Unlock()
	if _, err := m.enter(who, now); err != nil {
		return mailbox.Entry{}, err
	}
	if _, ok := m.board[key]; !ok && len(m.board) >= mailbox.MaxEntries {
		return mailbox.Entry{}, mailbox.FullOfEntries()
	}
	m.heads.Board++
	m.board[key] = mailbox.Entry{Key: key, Value: value, UpdatedBy: who.Agent, UpdatedAt: now.UTC()}
	return m.board[key], nil
}

// Entries implements mailbox.Board.
func (m *Memory) Entries(_ context.Context, key string) ([]mailbox.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []mailbox.Entry
	for _, e := range m.board {
		if key == "" || key == e.Key {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b mailbox.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return all, m.fail
}

// Escalate implements mailbox.Escalations.
func (m *Memory) Escalate(_ context.Context, q mailbox.Escalate) (mailbox.Escalation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.agents[q.Agent]
	if m.fail != nil || a == nil {
		return mailbox.Escalation{}, m.fail
	}
	e := mailbox.Escalation{Limits: a.limits.Or(q.Limits).OrDefaults()}
	for _, s := range m.signals {
		if s.Sequence > max(q.After, a.considered) && mailbox.Reaches(s.Recipient, s.Sender, q.Agent) && !a.read[s.Sequence] &&
			mailbox.Gate(&s, true, 0, 1) == mailbox.Passed && len(e.Signals) < mailbox.MaxEscalated {
			e.Signals = append(e.Signals, s)
		}
	}
	if len(e.Signals) == 0 {
		return e, nil
	}
	var all, own []time.Time
	for _, t := range m.turns {
		all = append(all, t.at)
		if t.agent == q.Agent {
			own = append(own, t.at)
		}
	}
	e.Wait = mailbox.Free(all, q.Now, q.Limits.OrDefaults().Escalations)
	if n := a.limits.Escalations; n > 0 {
		e.Wait = max(e.Wait, mailbox.Free(own, q.Now, n))
	}
	last := e.Signals[len(e.Signals)-1].Sequence
	if e.Wait > 0 {
		e.Signals, e.Refused = nil, mailbox.TooMany
		if !q.Retry {
			a.considered = m.heads.Signals
		}
		return e, nil
	}
	e.ID = q.ID
	a.considered, a.turn, a.until = last, q.ID, q.Until
	m.turns = append(m.turns, turn{q.Agent, q.Now})
	return e, nil
}

// Settle implements mailbox.Escalations.
func (m *Memory) Settle(_ context.Context, agent, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.agents[agent]; a != nil && a.turn == id {
		a.turn = ""
	}
	return m.fail
}

// Changes implements mailbox.Store.
func (m *Memory) Changes(_ context.Context, since mailbox.Heads) (mailbox.Changes, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := mailbox.Changes{Heads: m.heads}
	for _, s := range m.signals {
		if s.Sequence <= since.Signals {
			continue
		}
		if len(c.Envelopes) == mailbox.MaxChanges {
			c.Heads.Signals = c.Envelopes[len(c.Envelopes)-1].Sequence
			break
		}
		c.Envelopes = append(c.Envelopes, mailbox.Envelope{
			Sequence: s.Sequence, Sender: s.Sender, Recipient: s.Recipient, Type: s.Type, Priority: s.Priority, Depth: s.Depth, ReplyTo: s.ReplyTo,
		})
	}
	return c, m.fail
}
