package app

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/pageserver"
	"github.com/ossicle/ossicle/notice"
)

// Bounds of what a subscription to a session begins with; what is older is had by
// the API. A push of entries is cut in pieces.
const (
	sessionEntries = 200
	sessionBytes   = 2 << 20
	entriesBytes   = 256 << 10
)

// sessionTopic is one session: what its agent says while it says it, and its
// transcript.
//
// The truth is the store's: entries are read from it, behind the last one that was
// told. What is being said comes by the session's updates. An entry is told after
// the updates that it is made of, because whatever was published before the store
// had it is in the channel by then; see grown.
type sessionTopic struct {
	crowd

	p  *page
	id string

	outside sync.Mutex // guards what others have marked
	marked  marks

	// Of run's goroutine.
	one     *Agent // nil: it does not run here
	present *agent.Present
	updates *agent.Subscription
	cursor  int64 // the last entry that was told
	window  window
	timer   *time.Timer
	armed   bool
	told    []byte    // the last SessionInfo
	slow    time.Time // watches and inbox were told
	unwatch func()
}

// marks are what has changed outside.
type marks struct {
	life, watches, inbox bool
	report               *reportPush // the newest change of the attachment report
}

// reportPush is a push of the attachment report (specification A-20).
type reportPush struct {
	TaskID    string          `json:"task_id"`
	SessionID string          `json:"session_id"`
	History   evidence.Report `json:"history"`
	Timestamp time.Time       `json:"timestamp"`
}

func newSessionTopic(p *page, name pageserver.Topic) *sessionTopic {
	t := &sessionTopic{crowd: newCrowd(p, name), p: p, id: name.ID, timer: time.NewTimer(0), unwatch: func() {}}
	if !t.timer.Stop() {
		<-t.timer.C
	}
	return t
}

// mark notes what has changed, and wakes the topic.
func (t *sessionTopic) mark(f func(*marks)) {
	t.outside.Lock()
	f(&t.marked)
	t.outside.Unlock()
	t.ring()
}

func (t *sessionTopic) run(ctx context.Context) {
	defer close(t.over)
	defer t.timer.Stop()
	defer t.p.agents.lives.Listen(func(id string) {
		if id == t.id {
			t.mark(func(m *marks) { m.life = true })
		}
	})()
	defer t.p.agents.Inbox.Observe(func(c notice.Change) {
		if c.Agent == t.id {
			t.mark(func(m *marks) { m.inbox = true })
		}
	})()
	defer t.p.agents.OnReport(func(c ReportChange) {
		if c.SessionID == t.id {
			t.mark(func(m *marks) { m.report = &reportPush{c.TaskID, c.SessionID, c.Report, c.At} })
		}
	})()
	defer t.detach()
	for {
		var updates <-chan agent.Update
		var changed <-chan struct{}
		if t.updates != nil {
			updates, changed = t.updates.C, t.updates.Changed
		}
		select {
		case enter := <-t.calls:
			enter(ctx)
		case u, ok := <-updates:
			if ok {
				t.take(ctx, u)
			} else {
				t.finished(ctx)
			}
		case <-changed:
			t.grown(ctx)
		case <-t.look:
			t.looked(ctx)
		case <-t.timer.C:
			t.armed = false
			t.flush(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// join implements pageTopic.
func (t *sessionTopic) join(ctx context.Context, to *pageserver.Stream) error {
	return t.admit(ctx, to, func(context.Context) (any, error) { return t.state(ctx) })
}

// sessionState is what a subscription to a session begins with.
type sessionState struct {
	Session SessionInfo   `json:"session"`
	History any           `json:"history"` // null without one
	Entries []agent.Entry `json:"entries"`
	First   bool          `json:"first"` // there are no older entries
	Live    agent.Live    `json:"live"`
}

// state brings everybody up to date, and returns what they are up to date with.
func (t *sessionTopic) state(ctx context.Context) (any, error) {
	if t.present == nil {
		if err := t.attach(ctx); err != nil {
			return nil, err
		}
	}
	t.grown(ctx)
	t.flush(ctx)
	if t.present == nil { // it lagged just now
		if err := t.attach(ctx); err != nil {
			return nil, err
		}
	}
	entries, err := t.entries(ctx)
	if err != nil {
		return nil, err
	}
	info, err := t.p.info(ctx, t.id)
	if err != nil {
		return nil, err
	}
	s := sessionState{Session: info, Entries: entries, First: len(entries) == 0 || entries[0].Seq <= 1, Live: t.present.Live()}
	s.History, err = t.p.history(ctx, t.id)
	return s, err
}

// entries are the last ones that everybody has been told.
func (t *sessionTopic) entries(ctx context.Context) ([]agent.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, pageRead)
	defer cancel()
	all, err := t.p.agents.Store.List(ctx, t.id, agent.Query{Limit: sessionEntries, Last: true})
	if err != nil {
		return nil, err
	}
	for len(all) > 0 && all[len(all)-1].Seq > t.cursor {
		all = all[:len(all)-1]
	}
	size, from := 0, len(all)
	for from > 0 {
		if size += entrySize(&all[from-1]); size > sessionBytes && from < len(all) {
			break
		}
		from--
	}
	return append([]agent.Entry{}, all[from:]...), nil
}

// entrySize is about what an entry takes as JSON, in bytes.
func entrySize(e *agent.Entry) int {
	return 256 + len(e.Text) + len(e.Input) + len(e.Output) + len(e.Error) + len(e.Note) + len(e.Title) + len(e.Description)
}

// attach begins to follow the session, from a moment on.
func (t *sessionTopic) attach(ctx context.Context) error {
	t.detach()
	t.window = window{}
	one := t.p.agents.Agent(t.id)
	if one == nil {
		read, cancel := context.WithTimeout(ctx, pageRead)
		defer cancel()
		last, err := t.p.agents.Store.List(read, t.id, agent.Query{Limit: 1, Last: true})
		if err != nil {
			return err
		}
		t.present, t.cursor = &agent.Present{}, lastSeq(last)
		return nil
	}
	o, err := one.Session.Observe(ctx, 1)
	if err != nil {
		return err
	}
	t.one, t.present, t.updates, t.cursor = one, o.Present, o.Updates, lastSeq(o.Entries)
	t.unwatch = one.Client.Watches.Observe(func() { t.mark(func(m *marks) { m.watches = true }) })
	return nil
}

func lastSeq(entries []agent.Entry) int64 {
	if len(entries) == 0 {
		return 0
	}
	return entries[len(entries)-1].Seq
}

func (t *sessionTopic) detach() {
	t.unwatch()
	t.unwatch = func() {}
	if t.updates != nil {
		t.updates.Close()
	}
	t.one, t.updates, t.present = nil, nil, nil
}

// lost has everybody begin again.
func (t *sessionTopic) lost() {
	t.detach()
	t.gap()
}

// take takes an update of the session in. What was said in a run is told before
// its end.
func (t *sessionTopic) take(ctx context.Context, u agent.Update) {
	if t.present == nil {
		return
	}
	if u.Event == agent.EventRunEnded {
		entries := t.read(ctx)
		if end := slices.IndexFunc(entries, func(e agent.Entry) bool { return e.Kind == agent.EntryRunEnd && e.Run == u.Run }); end >= 0 {
			t.tell(entries[:end+1])
		}
	}
	t.present.Apply(u)
	t.window.add(u)
	t.arm(ctx)
}

// finished is the end of the updates: of the session, or because we lagged.
func (t *sessionTopic) finished(ctx context.Context) {
	if t.updates.Err() != nil {
		t.lost()
		return
	}
	t.updates = nil
	t.grown(ctx)
	t.present = &agent.Present{}
	t.flush(ctx)
}

// grown tells of the entries that the store has by now, after the updates that
// were published before it had them.
func (t *sessionTopic) grown(ctx context.Context) {
	if t.present == nil {
		return
	}
	entries := t.read(ctx)
	for t.updates != nil {
		select {
		case u, ok := <-t.updates.C:
			if !ok {
				if t.updates.Err() != nil {
					t.lost()
					return
				}
				t.updates = nil
				continue
			}
			t.take(ctx, u)
			continue
		default:
		}
		break
	}
	t.tell(entries)
	t.arm(ctx) // the state may be another
}

// read returns the entries behind the last one that was told. What cannot be read
// now is read the next time.
func (t *sessionTopic) read(ctx context.Context) []agent.Entry {
	ctx, cancel := context.WithTimeout(ctx, pageRead)
	defer cancel()
	var all []agent.Entry
	for after := t.cursor; ; {
		page, err := t.p.agents.Store.List(ctx, t.id, agent.Query{After: after, Limit: sessionEntries})
		if err != nil {
			if ctx.Err() == nil {
				t.log.LogAttrs(ctx, slog.LevelWarn, "a transcript cannot be read for the page", logattr.Session(t.id), logattr.Err(err))
			}
			return all
		}
		all = append(all, page...)
		if len(page) < sessionEntries {
			return all
		}
		after = lastSeq(page)
	}
}

// entriesPush is a push of entries. Live is what is left of what is being said.
type entriesPush struct {
	Entries []agent.Entry `json:"entries"`
	Live    *liveText     `json:"live,omitempty"`
}

type liveText struct {
	Run  string `json:"run,omitempty"`
	Text string `json:"text"`
}

// tell tells of entries that were not told yet.
func (t *sessionTopic) tell(entries []agent.Entry) {
	for len(entries) > 0 && entries[0].Seq <= t.cursor {
		entries = entries[1:]
	}
	if len(entries) == 0 || t.present == nil {
		return
	}
	t.say()
	for len(entries) > 0 {
		n, size, said := 0, 0, false
		for n < len(entries) && (n == 0 || size+entrySize(&entries[n]) <= entriesBytes) {
			size += entrySize(&entries[n])
			t.present.Record(&entries[n])
			said = said || entries[n].Kind == agent.EntryAssistant
			n++
		}
		push := entriesPush{Entries: entries[:n]}
		if said {
			live := t.present.Live()
			push.Live = &liveText{live.Run, live.Text}
		}
		t.push("session.entries", push, "")
		t.cursor, entries = entries[n-1].Seq, entries[n:]
	}
}

// say empties the window.
func (t *sessionTopic) say() {
	for _, u := range t.window.take(time.Now()) {
		t.push("session.update", u, "")
	}
}

// arm sees to it that what is gathered is told, at once after a pause.
func (t *sessionTopic) arm(ctx context.Context) {
	wait := t.window.wait(time.Now())
	switch {
	case wait == 0:
		t.flush(ctx)
	case !t.armed:
		t.armed = true
		t.timer.Reset(wait)
	}
}

// looked takes in what has changed outside.
func (t *sessionTopic) looked(ctx context.Context) {
	t.outside.Lock()
	life, report := t.marked.life, t.marked.report
	t.marked.life, t.marked.report = false, nil
	t.outside.Unlock()
	if t.present == nil {
		return
	}
	if life {
		now := t.p.agents.Agent(t.id)
		_, err := t.p.api.meta(ctx, t.id)
		if now != nil && now != t.one || statusOf(err) == notFound { // another life, or none any more
			t.lost()
			return
		}
	}
	if report != nil {
		t.push("session.mcp_status_updated", report, "")
	}
	t.arm(ctx)
}

// flush tells what has changed since the last time: what was said, then the state
// of the session, and less often what is around it.
func (t *sessionTopic) flush(ctx context.Context) {
	t.say()
	t.tellState(ctx)
	t.around(ctx)
}

// tellState tells of the session itself, if it is other than it was.
func (t *sessionTopic) tellState(ctx context.Context) {
	read, cancel := context.WithTimeout(ctx, pageRead)
	defer cancel()
	brief, err := t.p.brief(read, t.id)
	if err != nil {
		return // gone: that is told elsewhere
	}
	now, err := json.Marshal(brief)
	if err != nil || bytes.Equal(now, t.told) {
		return
	}
	first := t.told == nil
	t.told = now
	if first {
		return // whoever comes has it
	}
	if info, err := t.p.info(ctx, t.id); err == nil {
		t.push("session.changed", map[string]any{"session": info}, "")
	}
}

// around tells of watches and of the inbox, as they are after they were marked.
func (t *sessionTopic) around(ctx context.Context) {
	t.outside.Lock()
	m := t.marked
	due := m.watches || m.inbox
	wait := time.Until(t.slow.Add(stateWindow))
	if due && wait <= 0 {
		t.marked.watches, t.marked.inbox = false, false
		t.slow = time.Now()
	}
	t.outside.Unlock()
	switch {
	case !due:
	case wait > 0:
		if !t.armed {
			t.armed = true
			t.timer.Reset(wait)
		}
	default:
		t.tellAround(ctx, m)
	}
}

func (t *sessionTopic) tellAround(ctx context.Context, m marks) {
	info, err := t.p.info(ctx, t.id)
	if err != nil {
		return // gone: that is told elsewhere
	}
	if m.watches {
		t.push("session.watches", map[string]any{"watches": nonNil(info.Watches)}, "")
	}
	if m.inbox && info.Inbox != nil {
		t.push("session.inbox", map[string]any{"inbox": info.Inbox}, "")
	}
}

func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// byID orders questions, of which a session keeps no order.
func byID(a, b agent.Question) int { return cmp.Compare(a.ID, b.ID) }
