package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store that can fail and hang.
type memory struct {
	mu    sync.Mutex
	kept  map[string][]byte
	saves int
	err   error
	hang  chan struct{} // nil: not
}

func (m *memory) SaveReport(ctx context.Context, session string, report []byte) error {
	m.mu.Lock()
	hang := m.hang
	m.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saves++
	if m.err != nil {
		return m.err
	}
	if m.kept == nil {
		m.kept = map[string][]byte{}
	}
	m.kept[session] = report
	return nil
}

func (m *memory) LoadReport(_ context.Context, session string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept[session], m.err
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memory) report(t *testing.T, session string) attach.Report {
	t.Helper()
	b, _ := m.LoadReport(t.Context(), session)
	var r attach.Report
	if b != nil {
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func begin(t *testing.T, l *ledger.Ledger, execution string) *ledger.Attempt {
	t.Helper()
	a, err := l.Begin(t.Context(), ledger.Execution{ID: execution, TaskID: "t", AgentID: "codex"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func listed(server string) attach.Evidence {
	return attach.Evidence{Server: server, Kind: attach.ToolsListObserved, OccurredAt: time.Now()}
}

func closeLedger(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The beginning of an attempt is written down before Begin returns; a later life
// shows what was known, and its own attempt supersedes that at once.
//
//
func TestLives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		l := ledger.Open(t.Context(), m, "s", nil)
		first := begin(t, l, "x")
		if r := m.report(t, "s"); r.Current != first.ID {
			t.Errorf("on disk after Begin: %+v", r)
		}
		first.Take(listed("m"))
		closeLedger(t, l)
		closeLedger(t, l)

		time.Sleep(time.Hour)
		l = ledger.Open(t.Context(), m, "s", nil)
		defer closeLedger(t, l)
		if s := l.Report().CurrentAttempt().Server("m"); s == nil || s.Status != attach.Active {
			t.Errorf("hydrated: %+v", s)
		}
		second := begin(t, l, "y")
		r := l.Report()
		if r.Current != second.ID || len(r.CurrentAttempt().Servers) != 0 || r.Attempts[1].SupersededAt.IsZero() {
			t.Errorf("superseded: %+v", r)
		}
	})
}

// Evidence of an attempt that is not the current one is refused and counted; ids
// that somebody else filled in count for nothing.
//
//
func TestStaleEvidence(t *testing.T) {
	t.Parallel()
	m := &memory{}
	l, other := ledger.Open(t.Context(), m, "s", nil), ledger.Open(t.Context(), m, "s2", nil)
	defer closeLedger(t, l)
	defer closeLedger(t, other)
	old, its := begin(t, l, "x"), begin(t, other, "x")
	now := begin(t, l, "x")
	old.Take(listed("m"))
	now.Take(attach.Evidence{Kind: "<script>"})
	e := listed("m")
	e.AttemptID, e.ExecutionID = old.ID, "z" // an agent's word
	now.Take(e)
	its.Take(listed("theirs"))
	if d := cmp.Diff(ledger.Refused{Stale: 1, Invalid: 1}, l.Refused()); d != "" {
		t.Error(d)
	}
	a := l.Report().CurrentAttempt()
	if a.ID != now.ID || len(a.Servers) != 1 || a.Servers[0].Name != "m" {
		t.Errorf("got %+v", a)
	}
	if b := other.Report().CurrentAttempt(); len(b.Servers) != 1 || b.Servers[0].Name != "theirs" {
		t.Errorf("the other session: %+v", b)
	}
}

// A store that hangs or fails delays nobody and loses nothing that a later write
// can bring.
//
//
func TestStoreThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		l := ledger.Open(t.Context(), m, "s", nil)
		a := begin(t, l, "x")
		synctest.Wait()
		m.mu.Lock()
		m.hang = make(chan struct{})
		m.mu.Unlock()
		began := time.Now()
		for i := range 500 {
			a.Take(listed(fmt.Sprintf("m%d", i%3)))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("took %s", took)
		}
		synctest.Wait()
		m.mu.Lock()
		saves, hang := m.saves, m.hang
		m.hang = nil
		m.mu.Unlock()
		m.fail(errors.New("disk full"))
		close(hang)
		synctest.Wait()
		if s := l.Report().CurrentAttempt().Servers; len(s) != 3 {
			t.Errorf("%d rows", len(s))
		}
		if r := m.report(t, "s"); r.Current != a.ID || len(r.CurrentAttempt().Servers) != 0 {
			t.Errorf("on disk meanwhile: %+v", r)
		}
		m.fail(nil)
		time.Sleep(2 * time.Minute) // one of the further tries
		synctest.Wait()
		if r := m.report(t, "s"); len(r.CurrentAttempt().Servers) != 3 {
			t.Errorf("on disk: %+v", r)
		}
		if n := m.saves - saves; n > 20 {
			t.Errorf("%d writes for a burst", n)
		}
		m.fail(errors.New("disk full"))
		if _, err := l.Begin(t.Context(), ledger.Execution{ID: "y"}); err != nil {
			t.Errorf("a failing store kept an attempt from beginning: %v", err)
		}
		if err := l.Close(t.Context()); err == nil {
			t.Error("nobody is told that the report is not on disk")
		}
	})
}

// What cannot be read does not keep a session from beginning, and what belongs to
// another session is not shown.
//
//
func TestDamagedReports(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no json": "{", "of another session": `{"schema_version":1,"current_attachment_attempt_id":"a","attempts":[{"attachment_attempt_id":"a","session_id":"z"}]}`,
	} {
		m := &memory{kept: map[string][]byte{"s": []byte(text)}}
		l := ledger.Open(t.Context(), m, "s", nil)
		if r := l.Report(); len(r.Attempts) != 0 || r.SchemaVersion != attach.SchemaVersion {
			t.Errorf("%s: %+v", name, r)
		}
		begin(t, l, "x").Take(listed("m"))
		closeLedger(t, l)
		if r := m.report(t, "s"); len(r.Attempts) != 1 {
			t.Errorf("%s: on disk %+v", name, r)
		}
	}
}

// Whoever follows a report gets the newest after every change, and evidence may
// come from many goroutines.
//
//
func TestChanged(t *testing.T) {
	t.Parallel()
	var (
		mu   sync.Mutex
		last attach.Report
	)
	l := ledger.Open(t.Context(), &memory{}, "s", &ledger.Options{Changed: func(r attach.Report) {
		mu.Lock()
		defer mu.Unlock()
		last = r
	}})
	a := begin(t, l, "x")
	var hooks sync.WaitGroup
	for i := range 8 {
		hooks.Go(func() {
			for range 50 {
				a.Take(listed(fmt.Sprintf("m%d", i)))
			}
		})
	}
	hooks.Wait()
	deadline := time.Now().Add(10 * time.Second) // the goroutine that tells runs on the real clock
	for {
		mu.Lock()
		same := cmp.Equal(last, l.Report())
		mu.Unlock()
		if same {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the newest report was not told")
		}
		time.Sleep(time.Millisecond)
	}
	if n := len(l.Report().CurrentAttempt().Servers); n != 8 {
		t.Errorf("%d rows", n)
	}
	closeLedger(t, l)
}

// A change is told and written down at once, and many of them are few writes,
// however fast they come: the newest is among them.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, told := &memory{}, 0
		l := ledger.Open(t.Context(), m, "s", &ledger.Options{Changed: func(attach.Report) { told++ }})
		a := begin(t, l, "x")
		time.Sleep(time.Second)
		a.Take(listed("first"))
		synctest.Wait()
		if r := m.report(t, "s"); len(r.CurrentAttempt().Servers) != 1 {
			t.Errorf("not at once: %+v", r)
		}
		saves, began := m.saves, told
		for range 1000 {
			a.Take(listed("m"))
			time.Sleep(time.Millisecond)
		}
		last := listed("last")
		a.Take(last)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := m.saves - saves; n > 12 || told-began > 12 {
			t.Errorf("%d writes, told %d times", n, told-began)
		}
		if r := m.report(t, "s"); r.CurrentAttempt().Server("last") == nil {
			t.Errorf("the last is not on disk: %+v", r)
		}
		closeLedger(t, l)
	})
}
