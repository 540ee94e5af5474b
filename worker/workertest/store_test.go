package workertest

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/worker"
)

// jsonStore keeps records as a database would: as text. That it passes the suite
// is what lets a store write a record with encoding/json.
type jsonStore struct {
	mu   sync.Mutex
	ids  worker.Memory
	text map[string]string
}

func (s *jsonStore) write(rec worker.Record) error {
	b, err := json.Marshal(rec)
	s.text[rec.ID] = string(b)
	return err
}

func (s *jsonStore) Create(ctx context.Context, rec worker.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ids.Create(ctx, rec); err != nil {
		return err
	}
	return s.write(rec)
}

func (s *jsonStore) Load(ctx context.Context, id string) (worker.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.ids.Load(ctx, id); err != nil {
		return worker.Record{}, err
	}
	var rec worker.Record
	err := json.Unmarshal([]byte(s.text[id]), &rec)
	return rec, err
}

func (s *jsonStore) Save(ctx context.Context, rec worker.Record, epoch int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.ids.Save(ctx, rec, epoch); err != nil {
		return err
	}
	return s.write(rec)
}

func (s *jsonStore) List(ctx context.Context, f worker.Filter) ([]worker.Record, error) {
	recs, err := s.ids.List(ctx, f)
	return recs, err
}

func (s *jsonStore) Announce(ctx context.Context, h worker.HostRecord, ttl time.Duration) (bool, error) {
	return s.ids.Announce(ctx, h, ttl)
}

func (s *jsonStore) Retire(ctx context.Context, owner string) error { return s.ids.Retire(ctx, owner) }

func (s *jsonStore) Hosts(ctx context.Context) ([]worker.HostRecord, error) { return s.ids.Hosts(ctx) }

func (s *jsonStore) Delete(ctx context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.text, id)
	return s.ids.Delete(ctx, id)
}

func TestRecordsAsJSON(t *testing.T) {
	t.Parallel()
	RunStore(t, func(*testing.T) func() worker.Store {
		s := &jsonStore{text: map[string]string{}}
		return func() worker.Store { return s }
	})
}
