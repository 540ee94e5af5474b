package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/ledger"
	"github.com/ossicle/ossicle/internal/logattr"
)

// ErrNoReport says that a session has no attachment report: its agent was never
// started.
var ErrNoReport = errors.New("find attachment report: the agent of this session was never started")

// ReportChange is a new state of the attachment report of a session.
type ReportChange struct {
	TaskID    string // of the collaboration session; empty: none
	SessionID string
	Report    evidence.Report
	At        time.Time
}

// reportStore keeps attachment reports.
type reportStore interface {
	ledger.Store
	// DeleteReport forgets the report of a session.
	DeleteReport(ctx context.Context, session string) error
}

// reports are the attachment reports of all sessions: those that run here, and
// what the store knows of the others. No two sessions share one (specification
//
type reports struct {
	store reportStore
	log   *slog.Logger

	mu   sync.Mutex
	live map[string]*sessionReport

	telling sync.Mutex // one change at a time, so that an older never follows a newer
	hearing sync.Mutex // of the two below
	next    int
	hears   map[int]func(ReportChange)
}

func newReports(store reportStore, log *slog.Logger) *reports {
	return &reports{store: store, log: log, live: map[string]*sessionReport{}, hears: map[int]func(ReportChange){}}
}

// Report returns the attachment report of a session, as it is where the session
// runs in this process, else as it was written down. Errors: ErrNoReport.
func (a *Agents) Report(ctx context.Context, session string) (evidence.Report, error) {
	return a.reports.report(ctx, session)
}

// OnReport calls f with changes of attachment reports, the newest state of each,
// until stop is called; then f is not running any more. F returns quickly, and
// calls neither stop nor anything that changes a report.
func (a *Agents) OnReport(f func(ReportChange)) (stop func()) { return a.reports.hear(f) }

func (s *reports) hear(f func(ReportChange)) (stop func()) {
	s.hearing.Lock()
	defer s.hearing.Unlock()
	id := s.next
	s.next++
	s.hears[id] = f
	return func() {
		s.hearing.Lock()
		delete(s.hears, id)
		s.hearing.Unlock()
		s.telling.Lock() // whoever is being told has been
		defer s.telling.Unlock()
	}
}

// tell tells of the newest state of a report.
func (s *reports) tell(r *sessionReport) {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.hearing.Lock()
	hears := slices.Collect(maps.Values(s.hears))
	s.hearing.Unlock()
	if len(hears) == 0 {
		return
	}
	change := ReportChange{TaskID: r.o.task, SessionID: r.o.session, Report: r.ledger.Report(), At: time.Now().UTC()}
	for _, f := range hears {
		f(change)
	}
}

func (s *reports) find(session string) *sessionReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[session]
}

func (s *reports) report(ctx context.Context, session string) (evidence.Report, error) {
	if r := s.find(session); r != nil {
		if report := r.ledger.Report(); len(report.Attempts) > 0 {
			return report, nil
		}
		return evidence.Report{}, ErrNoReport
	}
	text, err := s.store.LoadReport(ctx, session)
	if err != nil {
		return evidence.Report{}, err
	}
	var report evidence.Report
	if text == nil {
		return report, ErrNoReport
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return report, fmt.Errorf("read attachment report: %w", err)
	}
	return report, nil
}

// open begins to keep the report of a session, from where the store left it. The
// caller closes it.
func (s *reports) open(ctx context.Context, o reportOptions) *sessionReport {
	r := newSessionReport(s, o)
	r.ledger = ledger.Open(ctx, s.store, o.session, &ledger.Options{Logger: s.log, Changed: func(evidence.Report) { s.tell(r) }})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[o.session] = r
	return r
}

func (s *reports) forget(r *sessionReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[r.o.session] == r {
		delete(s.live, r.o.session)
	}
}

// remove deletes the report of a session that does not run any more.
func (s *reports) remove(ctx context.Context, session string) error {
	err := s.store.DeleteReport(ctx, session)
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "attachment report not removed", logattr.Session(session), logattr.Err(err))
	}
	return err
}
