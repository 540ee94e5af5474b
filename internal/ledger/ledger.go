// Package ledger keeps the attachment report of a session (package attach): it
// stamps evidence with the ids of the attempt that it belongs to, reduces it, and
// writes the report down.
//
// Taking evidence never waits for the store: the report is reduced in memory, and
// one goroutine writes down the newest, so that what comes meanwhile costs one
// write more at most, and what a failure kept from the store the next write brings.
// Only the beginning of an attempt is on disk before anything is delivered
// (specification A-36). A store that fails is logged and alters nothing else
//
package ledger

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/logattr"
)

// Bounds of the store's use.
const (
	saveTime   = 5 * time.Second // one write
	firstPause = time.Second     // after a write that failed
	maxPause   = time.Minute
	// pace is the least time between two writes, and between two changes that are
	// told: an agent that calls tools all the time costs ten a second.
	pace = 100 * time.Millisecond
)

// Store keeps one report for each session.
type Store interface {
	// SaveReport puts the report in the place of the one before, or does nothing.
	SaveReport(ctx context.Context, session string, report []byte) error
	// LoadReport returns the report, nil if there is none.
	LoadReport(ctx context.Context, session string) ([]byte, error)
}

// Options refine a Ledger. The zero value is the default.
type Options struct {
	// Changed gets the report after changes, the newest only, from one goroutine.
	Changed func(attach.Report)
	// Logger takes the log. Nil discards.
	Logger *slog.Logger
}

// Ledger is the report of one session. It is safe for concurrent use.
type Ledger struct {
	store   Store
	session string
	o       Options
	log     *slog.Logger
	dirty   chan struct{}
	stop    chan struct{}
	done    chan struct{}

	saving sync.Mutex // one write at a time, so that an older never follows a newer

	mu      sync.Mutex
	report  attach.Report
	refused Refused
	closed  bool
}

// Refused counts evidence that was not taken.
type Refused struct {
	Stale   int64 `json:"stale"`   // of an attempt that is not the current one
	Foreign int64 `json:"foreign"` // of another execution
	Invalid int64 `json:"invalid"`
}

// Open goes on with the report of a session. The caller closes it.
func Open(ctx context.Context, store Store, session string, o *Options) *Ledger {
	l := &Ledger{store: store, session: session, dirty: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	if o != nil {
		l.o = *o
	}
	if l.log = l.o.Logger; l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	l.report = l.load(ctx)
	go l.run()
	return l
}

// load reads what an earlier life wrote. What cannot be read is no reason not to
// begin.
func (l *Ledger) load(ctx context.Context) attach.Report {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	fresh := attach.Report{SchemaVersion: attach.SchemaVersion, Attempts: []attach.Attempt{}}
	b, err := l.store.LoadReport(ctx, l.session)
	if err != nil || b == nil {
		l.warn(ctx, "attachment report not loaded", err)
		return fresh
	}
	var r attach.Report
	if err := json.Unmarshal(b, &r); err != nil {
		l.warn(ctx, "attachment report is damaged", err)
		return fresh
	}
	for _, a := range r.Attempts {
		if a.SessionID != l.session {
			l.warn(ctx, "attachment report is damaged", attach.ErrForeign)
			return fresh
		}
	}
	return r
}

func (l *Ledger) warn(ctx context.Context, what string, err error) {
	if err != nil {
		l.log.WarnContext(ctx, "attachments", logattr.Event(what), logattr.Session(l.session), logattr.Err(err))
	}
}

// Report is what is known now.
func (l *Ledger) Report() attach.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.report
}

// Refused counts what was not taken.
func (l *Ledger) Refused() Refused {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// Execution says whose attempt begins. ID is required.
type Execution struct {
	ID                              string
	TaskID, AgentID, AgentProfileID string
}

// Attempt is the way in for the evidence of one attempt.
type Attempt struct {
	ID string

	l         *Ledger
	execution string
}

// Begin starts an attempt, which supersedes the one before, and writes that down
// before it returns. It is called before anything is delivered. A store that
// fails is logged, and the next write makes up for it; an error says that the ids
// are not well formed.
func (l *Ledger) Begin(ctx context.Context, x Execution) (*Attempt, error) {
	a := &Attempt{ID: strings.ToLower(rand.Text()), l: l, execution: x.ID}
	l.mu.Lock()
	now := time.Now()
	if c := l.report.CurrentAttempt(); c != nil && !now.After(c.StartedAt) {
		now = c.StartedAt.Add(1) // the clock went back; what begins now is newer
	}
	r, err := l.report.Begin(attach.Start{
		TaskID: x.TaskID, SessionID: l.session, ExecutionID: x.ID, AttemptID: a.ID, AgentID: x.AgentID, AgentProfileID: x.AgentProfileID, StartedAt: now,
	})
	if err == nil {
		l.report = r
	}
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := l.save(ctx); err != nil {
		l.warn(ctx, "attempt not written down", err)
	}
	l.tell()
	return a, nil
}

// Take takes evidence of the attempt: its ids are filled in, whatever they were.
// It does not wait for anything. Evidence of an attempt that was superseded is
// refused and counted.
func (a *Attempt) Take(e attach.Evidence) {
	e.AttemptID, e.ExecutionID = a.ID, a.execution
	l := a.l
	l.mu.Lock()
	r, err := attach.Reduce(l.report, e)
	l.report = r
	switch {
	case err == nil:
	case errors.Is(err, attach.ErrStale):
		l.refused.Stale++
	case errors.Is(err, attach.ErrForeign):
		l.refused.Foreign++
	default:
		l.refused.Invalid++
	}
	l.mu.Unlock()
	if err != nil {
		l.log.Debug("evidence refused", logattr.Session(l.session), logattr.Err(err))
		return
	}
	l.tell()
}

// tell has the report written down, and says that it has changed.
func (l *Ledger) tell() {
	select {
	case l.dirty <- struct{}{}:
	default: // it will be
	}
}

// run writes down the newest report until Close.
func (l *Ledger) run() {
	defer close(l.done)
	pause := firstPause
	// Set when a try has failed. Never a timer that is due already: Go 1.26 runs one on
	// this goroutine in a bubble of testing/synctest, and its race detector bears no two
	// of them at once.
	retry := time.NewTimer(pause)
	retry.Stop()
	defer retry.Stop()
	quiet := time.NewTimer(pace)
	defer quiet.Stop()
	for dirty := l.dirty; ; {
		select {
		case <-quiet.C:
			dirty = l.dirty
			continue
		case <-dirty:
			dirty = nil
			quiet.Reset(pace)
			if l.o.Changed != nil {
				l.o.Changed(l.Report())
			}
		case <-retry.C:
		case <-l.stop:
			return
		}
		if err := l.save(context.Background()); err != nil {
			l.warn(context.Background(), "report not written down", err)
			retry.Reset(pause)
			pause = min(2*pause, maxPause)
		} else {
			retry.Stop()
			pause = firstPause
		}
	}
}

// save writes down the newest report.
func (l *Ledger) save(ctx context.Context) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	b, err := json.Marshal(l.Report())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	return l.store.SaveReport(ctx, l.session, b)
}

// Close writes down the newest report and ends. Evidence that comes later changes
// the report and is not written down.
func (l *Ledger) Close(ctx context.Context) error {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		<-l.done
		return nil
	}
	close(l.stop)
	<-l.done
	return l.save(ctx)
}
