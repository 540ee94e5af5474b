// Package feedtest holds the contracts of the ports of package feed as tests,
// and fakes of them.
package feedtest

import (
	"context"
	"crypto/rand"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/feed"
)

// Memory is a store that lives as long as the process. It is safe for concurrent
// use.
type Memory struct {
	mu     sync.Mutex
	head   feed.Position
	events []feed.Event
	topics map[string]*feed.Topic
	known  map[[2]string]entry // by topic and idempotency key
	total  map[string]int64    // events that a topic ever had
	empty  map[string]seen     // topics that were seen to be empty
	gone   feed.Topic          // what is left of all that were forgotten: Trimmed, and Count of the longest
	fail   error
}

// seen is since when a topic is empty, and its last event as it was then.
type seen struct {
	last  int64
	since time.Time
}

type entry struct {
	id int64
	at time.Time
}

// NewMemory returns an empty log.
func NewMemory() *Memory {
	m := &Memory{}
	m.Reset()
	return m
}

// Reset begins another log.
func (m *Memory) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.head = feed.Position{Epoch: strings.ToLower(rand.Text())}
	m.events, m.topics, m.known, m.total = nil, map[string]*feed.Topic{}, map[[2]string]entry{}, map[string]int64{}
	m.empty, m.gone = map[string]seen{}, feed.Topic{}
}

// Fail has every call fail with err until it is nil.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// Rewind takes back the last events, as a crash of the machine may.
func (m *Memory) Rewind(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = m.events[:len(m.events)-n]
	m.head.ID -= int64(n)
}

// Append implements feed.Store.
func (m *Memory) Append(_ context.Context, drafts []feed.Draft) ([]feed.Receipt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	receipts := make([]feed.Receipt, len(drafts))
	for i, d := range drafts {
		idem := [2]string{d.Topic, d.IdempotencyKey}
		if e, known := m.known[idem]; known && d.IdempotencyKey != "" {
			receipts[i] = feed.Receipt{ID: e.id, Repeated: true}
			continue
		}
		m.head.ID++
		e := feed.Event{ID: m.head.ID, Epoch: m.head.Epoch, Topic: d.Topic, Type: d.Type, Key: d.Key, Time: time.Now(), Data: d.Data}
		m.events = append(m.events, e)
		if d.IdempotencyKey != "" {
			m.known[idem] = entry{e.ID, e.Time}
		}
		t := m.topics[d.Topic]
		if t == nil {
			t = &feed.Topic{Name: d.Topic, Trimmed: m.gone.Trimmed}
			m.topics[d.Topic], m.total[d.Topic] = t, m.gone.Count
		}
		t.Last = e.ID
		m.total[d.Topic]++
		receipts[i].ID = e.ID
	}
	return receipts, nil
}

// Read implements feed.Store.
func (m *Memory) Read(_ context.Context, q feed.Query) (feed.Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return feed.Page{}, m.fail
	}
	if q.Limit <= 0 || q.Limit > feed.MaxPage {
		q.Limit = feed.MaxPage
	}
	page := feed.Page{Head: m.head, Through: m.head.ID}
	for name, t := range m.topics {
		if q.Filter.Match(name) {
			page.Trimmed = max(page.Trimmed, t.Trimmed)
		}
	}
	for _, p := range q.Filter.Patterns() {
		if m.topics[p] == nil {
			page.Trimmed = max(page.Trimmed, m.gone.Trimmed)
		}
	}
	if q.Filter.All() {
		page.Trimmed = max(page.Trimmed, m.gone.Trimmed)
	}
	first := sort.Search(len(m.events), func(i int) bool { return m.events[i].ID > q.After })
	looked := m.events[first:]
	if len(looked) > q.Limit {
		looked = looked[:q.Limit]
		page.Through = looked[q.Limit-1].ID
	}
	for _, e := range looked {
		if q.Filter.Match(e.Topic) {
			page.Events = append(page.Events, e)
		}
	}
	return page, nil
}

// Topics implements feed.Store.
func (m *Memory) Topics(context.Context) ([]feed.Topic, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	all := []feed.Topic{}
	for _, kept := range m.topics {
		t := *kept
		for _, e := range m.events {
			if e.Topic != t.Name {
				continue
			}
			if t.Count++; t.Count == 1 {
				t.First, t.Oldest, t.Age = e.ID, e.Time, time.Since(e.Time)
			}
			t.Bytes += size(e)
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b feed.Topic) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func size(e feed.Event) int64 { return int64(len(e.Data) + len(e.Type) + len(e.Key)) }

// Trim implements feed.Store.
func (m *Memory) Trim(_ context.Context, topic string, keep feed.Retention) (bool, error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return false, m.fail
	}
	var count, bytes int64
	kept := []feed.Event{}
	for _, e := range slices.Backward(m.events) {
		if e.Topic == topic {
			count, bytes = count+1, bytes+size(e)
			if (keep.Count > 0 && count > keep.Count) || (keep.Bytes > 0 && bytes > keep.Bytes) || (keep.Age > 0 && e.Time.Before(now.Add(-keep.Age))) {
				m.topics[topic].Trimmed = max(m.topics[topic].Trimmed, e.ID)
				continue
			}
		}
		kept = append(kept, e)
	}
	slices.Reverse(kept)
	m.events = kept
	for k, e := range m.known {
		if k[0] == topic && ((keep.Age > 0 && e.at.Before(now.Add(-keep.Age))) || (keep.Age == 0 && e.id <= m.topics[topic].Trimmed)) {
			delete(m.known, k)
		}
	}
	return false, nil
}

// Forget implements feed.Store.
func (m *Memory) Forget(_ context.Context, spare []string, empty time.Duration) (time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return 0, m.fail
	}
	used := map[string]bool{}
	for _, e := range m.events {
		used[e.Topic] = true
	}
	for k := range m.known {
		used[k[0]] = true
	}
	next := time.Duration(-1)
	for name, t := range m.topics {
		if used[name] || slices.Contains(spare, name) {
			continue
		}
		s, known := m.empty[name]
		if !known || s.last != t.Last {
			s = seen{t.Last, time.Now()}
			m.empty[name] = s
		}
		if left := empty - time.Since(s.since); left <= 0 {
			m.gone.Trimmed, m.gone.Count = max(m.gone.Trimmed, t.Last), max(m.gone.Count, m.total[name])
			delete(m.topics, name)
			delete(m.total, name)
			delete(m.empty, name)
		} else if next < 0 || left < next {
			next = left
		}
	}
	return next, nil
}
