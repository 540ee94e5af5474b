package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/pageserver"
	"github.com/ossicle/ossicle/mailbox"
)

// Bounds of a collaboration session on the page.
const (
	signalsLast  = 200     // signals that it begins with
	signalsBytes = 2 << 20 // of their contents, and of the whiteboard
	signalsBurst = 1000    // signals of one window; with more all begin again
	signalsCut   = 256     // bytes of a value that finds no room
)

// collaborationInfo is a session in a list.
type collaborationInfo struct {
	ID     string `json:"id"`
	Agents int    `json:"agents"` // that were registered from this data directory
}

// collaborationState is a session as it is.
type collaborationState struct {
	Agents     []mailbox.Agent  `json:"agents"`
	Signals    []mailbox.Signal `json:"signals"`
	Whiteboard []mailbox.Entry  `json:"whiteboard"`
}

// mayUseAll checks that whoever asks may see all sessions.
func mayUseAll(r *http.Request) error {
	if shows(r, "*") {
		return nil
	}
	return httpserver.Errorf(http.StatusForbidden, "the token gives no right to this: that takes the right to all sessions")
}

func (p *page) listCollaborations(*http.Request) (any, error) {
	ids, err := p.agents.signals.ids()
	if err != nil {
		return nil, err
	}
	all := []collaborationInfo{}
	for _, id := range ids {
		seated, err := p.agents.signals.Known(id)
		if err != nil {
			return nil, err
		}
		all = append(all, collaborationInfo{id, len(seated)})
	}
	return map[string]any{"collaborations": all}, nil
}

func (p *page) showCollaboration(r *http.Request) (_ any, err error) {
	id := r.PathValue("id")
	if err := p.agents.signals.exists(id); err != nil {
		return nil, err
	}
	x, err := p.agents.signals.Open(r.Context(), id)
	if err != nil {
		return nil, err
	}
	state, err := stateOf(r.Context(), x)
	if cerr := x.Close(context.WithoutCancel(r.Context())); err == nil {
		err = cerr
	}
	return state, err
}

// ids lists the sessions of the data directory, the newest first.
func (c *Collaborations) ids() ([]string, error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list collaboration sessions: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if mailbox.CheckSession(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	slices.Reverse(ids)
	return ids, nil
}

// exists reports a session that there is not: opening one would make it.
func (c *Collaborations) exists(id string) error {
	if err := mailbox.CheckSession(id); err != nil {
		return &httpserver.StatusError{Status: http.StatusNotFound, Err: err}
	}
	if _, err := os.Stat(filepath.Join(c.dir, id)); errors.Is(err, fs.ErrNotExist) {
		return httpserver.Errorf(http.StatusNotFound, "find collaboration session %q: there is none", id)
	} else if err != nil {
		return fmt.Errorf("find collaboration session: %w", err)
	}
	return nil
}

// stateOf reads a session, as much of it as fits.
func stateOf(ctx context.Context, x *Collaboration) (s collaborationState, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageRead)
	defer cancel()
	if s.Agents, err = x.Agents(ctx); err != nil {
		return s, err
	}
	s.Agents = nonNil(s.Agents)
	if s.Signals, err = x.Log(ctx, 0, signalsLast); err != nil {
		return s, err
	}
	size := 0
	for i := len(s.Signals) - 1; i >= 0; i-- {
		if size += len(s.Signals[i].Content) + len(s.Signals[i].Metadata); size > signalsBytes {
			s.Signals = s.Signals[i+1:]
			break
		}
	}
	s.Whiteboard, err = x.Whiteboard(ctx, "")
	shorten(s.Whiteboard)
	return s, err
}

// shorten cuts the values of a whiteboard that find no room.
func shorten(entries []mailbox.Entry) {
	size := 0
	for i := range entries {
		if size += len(entries[i].Value); size > signalsBytes && len(entries[i].Value) > signalsCut {
			entries[i].Value = strings.ToValidUTF8(entries[i].Value[:signalsCut], "") + "…"
		}
	}
}

// signalsTopic is one collaboration session, of which this process is an onlooker.
type signalsTopic struct {
	crowd

	p  *page
	id string

	outside sync.Mutex
	marked  struct{ signals, agents, board bool }

	// Of run's goroutine.
	x       *Collaboration
	unwatch []func()
	cursor  int64
	board   map[string]mailbox.Entry // as it was told
}

func newSignalsTopic(p *page, name pageserver.Topic) *signalsTopic {
	t := &signalsTopic{crowd: newCrowd(p, name), p: p, id: name.ID}
	return t
}

func (t *signalsTopic) run(ctx context.Context) {
	defer close(t.over)
	defer t.close(ctx)
	t.attend(ctx, nil, t.flush)
}

// join implements pageTopic.
func (t *signalsTopic) join(ctx context.Context, to *pageserver.Stream) error {
	return t.admit(ctx, to, func(context.Context) (any, error) {
		if err := t.open(ctx); err != nil {
			return nil, err
		}
		t.flush(ctx)
		state, err := stateOf(ctx, t.x)
		if err != nil {
			return nil, err
		}
		// What was sent since the flush is told to those who were there; whoever comes
		// has it already, and an entry that comes again is the same one.
		t.tellSignals(state.Signals)
		t.tellBoard(state.Whiteboard)
		return state, nil
	})
}

// open opens the session, once.
func (t *signalsTopic) open(ctx context.Context) error {
	if t.x != nil {
		return nil
	}
	x, err := t.p.agents.signals.Open(ctx, t.id)
	if err != nil {
		return err
	}
	mark := func(what *bool) func() {
		return func() {
			t.outside.Lock()
			*what = true
			t.outside.Unlock()
			t.ring()
		}
	}
	t.x, t.board = x, map[string]mailbox.Entry{}
	t.unwatch = []func(){
		x.WatchLog(mark(&t.marked.signals)),
		x.Watch(mailbox.PartAgents, "", mark(&t.marked.agents)),
		x.Watch(mailbox.PartBoard, "", mark(&t.marked.board)),
	}
	return nil
}

func (t *signalsTopic) close(ctx context.Context) {
	for _, stop := range t.unwatch {
		stop()
	}
	if t.x == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mailboxBudget)
	defer cancel()
	if err := t.x.Close(ctx); err != nil {
		t.log.LogAttrs(ctx, slog.LevelWarn, "a collaboration session cannot be read for the page", logattr.Session(t.id), logattr.Err(err))
	}
}

// flush tells of what has changed.
func (t *signalsTopic) flush(ctx context.Context) {
	t.outside.Lock()
	m := t.marked
	t.marked.signals, t.marked.agents, t.marked.board = false, false, false
	t.outside.Unlock()
	if t.x == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pageRead)
	defer cancel()
	if err := t.tell(ctx, m.signals, m.agents, m.board); err != nil && ctx.Err() == nil {
		t.log.LogAttrs(ctx, slog.LevelWarn, "a collaboration session cannot be read for the page", logattr.Session(t.id), logattr.Err(err))
		t.gap()
	}
}

func (t *signalsTopic) tell(ctx context.Context, signals, agents, board bool) error {
	if agents {
		all, err := t.x.Agents(ctx)
		if err != nil {
			return err
		}
		t.push("signals.agents", map[string]any{"agents": nonNil(all)}, "")
	}
	if signals {
		all, err := t.x.Log(ctx, t.cursor, signalsBurst)
		if err != nil {
			return err
		}
		if len(all) > 0 && t.cursor > 0 && all[0].Sequence != t.cursor+1 {
			t.gap()
		}
		t.tellSignals(all)
	}
	if board {
		entries, err := t.x.Whiteboard(ctx, "")
		if err != nil {
			return err
		}
		shorten(entries)
		t.tellBoard(entries)
	}
	return nil
}

// tellSignals tells of those that were not told yet.
func (t *signalsTopic) tellSignals(all []mailbox.Signal) {
	for i := range all {
		if all[i].Sequence > t.cursor {
			t.push("signals.signal", map[string]any{"signal": all[i]}, "")
			t.cursor = all[i].Sequence
		}
	}
}

func (t *signalsTopic) tellBoard(entries []mailbox.Entry) {
	for _, e := range entries {
		if t.board[e.Key] != e {
			t.board[e.Key] = e
			t.push("signals.note", map[string]any{"entry": e}, "")
		}
	}
}
