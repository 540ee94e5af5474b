package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/filelock"
	"github.com/ossicle/ossicle/internal/files"
	"github.com/ossicle/ossicle/internal/postgres"
	"github.com/ossicle/ossicle/internal/sqlite"
	"github.com/ossicle/ossicle/internal/teardown"
	"github.com/ossicle/ossicle/mailbox"
)

// Places of collaboration sessions in the data directory.
const (
	collaborationDir = "collaboration"
	sessionFile      = "session.db"
	identityDir      = "agents"
)

const (
	// mailboxBudget bounds the end of a collaboration session, mailboxOpen its
	// beginning, the way to a database included.
	mailboxBudget = 10 * time.Second
	mailboxOpen   = 30 * time.Second
)

// mailboxConnections are those to PostgreSQL for one session.
const mailboxConnections = 4

// maxIdentity bounds the file of an identity, in bytes.
const maxIdentity = 4 << 10

// Collaborations are the sessions of agents that a data directory keeps, or the
// PostgreSQL database that is configured as the store of the feed. A process opens
// each once, however many of its agents take part.
type Collaborations struct {
	dir    string
	store  config.Feed
	limits config.Signals
	log    *slog.Logger

	mu   sync.Mutex
	open map[string]*Collaboration
	past mailbox.Stats // of sessions that were closed
}

// Stats are the counters of all sessions since the start.
func (c *Collaborations) Stats() mailbox.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	var total mailbox.Stats
	total.Add(c.past)
	for _, x := range c.open {
		select {
		case <-x.ready:
			total.Add(x.Stats())
		default: // it is being opened
		}
	}
	return total
}

// NewCollaborations returns the sessions below a data directory; empty means that
// of the configuration. Limits win over the configured ones.
func NewCollaborations(c *config.Config, data string, limits mailbox.Limits, log *slog.Logger) *Collaborations {
	if data == "" {
		data = c.Home
	}
	all := &Collaborations{
		dir: filepath.Join(data, collaborationDir), store: c.Feed, limits: c.Signals, log: log, open: map[string]*Collaboration{},
	}
	all.limits.Limits = limits.Or(c.Signals.Limits)
	return all
}

// backend opens what keeps a session.
func (c *Collaborations) backend(ctx context.Context, x *Collaboration, id string) (mailbox.Store, mailbox.Bus, error) {
	if strings.HasPrefix(c.store.Store, "postgres") {
		db, err := postgres.Open(ctx, c.store.Store, &postgres.Options{Direct: c.store.Direct, Connections: mailboxConnections, Logger: c.log})
		if err != nil {
			return nil, nil, err
		}
		x.down.Push("session store", storeBudget, func(context.Context) error { db.Close(); return nil })
		if x.begun {
			c.removeRows(ctx, db)
		}
		return db.Mailbox(id, &c.limits.Retention), db.MailboxBus(), nil
	}
	store, err := sqlite.OpenMailbox(ctx, filepath.Join(x.dir, sessionFile), &c.limits.Retention)
	if err != nil {
		return nil, nil, err
	}
	x.down.Push("session store", storeBudget, func(context.Context) error { return store.Close() })
	bell, err := sqlite.OpenMailboxBell(ctx, store, files.Touched)
	return store, bell, err
}

// Collaboration is one open session. Who has opened it closes it.
type Collaboration struct {
	*mailbox.Session

	all   *Collaborations
	dir   string
	begun bool          // it was not there before, for this data directory
	users int           // under all.mu
	ready chan struct{} // closed when it is open, or err says why not
	err   error
	down  teardown.Stack
}

// Open opens a session, which it makes if it does not exist. An empty id makes a
// new one. Of several who want one session at once, one opens it and the others wait
// for that; who wants another waits for nobody.
func (c *Collaborations) Open(ctx context.Context, id string) (*Collaboration, error) {
	if id == "" {
		id = mailbox.NewSessionID(time.Now())
	}
	if err := mailbox.CheckSession(id); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, mailboxOpen, fmt.Errorf("open session %s: not done within %s", id, mailboxOpen))
	defer cancel()
	for {
		x, mine := c.enter(id)
		if mine {
			session, err := x.begin(ctx, id)
			return c.opened(x, id, session, err)
		}
		select {
		case <-x.ready:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), x.leave(ctx))
		}
		if x.err == nil {
			return x, nil
		}
		// Who opened it may have had less time, or have gone.
		if !errors.Is(x.err, context.Canceled) && !errors.Is(x.err, context.DeadlineExceeded) || ctx.Err() != nil {
			return nil, x.err
		}
	}
}

// enter returns a session for one more user, and whether it is for the caller to
// open.
func (c *Collaborations) enter(id string) (x *Collaboration, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x = c.open[id]; x != nil {
		x.users++
		return x, false
	}
	x = &Collaboration{all: c, dir: filepath.Join(c.dir, id), users: 1, ready: make(chan struct{})}
	c.open[id] = x
	return x, true
}

// opened tells the others how the opening of a session went.
func (c *Collaborations) opened(x *Collaboration, id string, session *mailbox.Session, err error) (*Collaboration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		delete(c.open, id)
	}
	x.Session, x.err = session, err
	close(x.ready)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// leave gives up a session that may not be open yet. Until it is, who opens it
// holds it, too.
func (x *Collaboration) leave(ctx context.Context) error {
	x.all.mu.Lock()
	opening := x.Session == nil
	if opening {
		x.users--
	}
	x.all.mu.Unlock()
	if opening {
		return nil
	}
	return x.Close(context.WithoutCancel(ctx))
}

// begin opens the session.
func (x *Collaboration) begin(ctx context.Context, id string) (s *mailbox.Session, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, x.down.Run(context.WithoutCancel(ctx)))
		}
	}()
	_, err = os.Stat(x.dir)
	if x.begun = errors.Is(err, fs.ErrNotExist); x.begun {
		x.all.removeUnused(ctx, time.Now()) // who adds one takes away, too
	}
	if err := x.lock(); err != nil {
		return nil, fmt.Errorf("open session %s: %w", id, err)
	}
	store, bus, err := x.all.backend(ctx, x, id)
	if err != nil {
		return nil, err
	}
	o := &mailbox.Options{Limits: x.all.limits.Sessions[id].Or(x.all.limits.Limits), Logger: x.all.log}
	if s, err = mailbox.Open(ctx, id, store, bus, o); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(run) }()
	x.down.Push("session", storeBudget, func(context.Context) error {
		stop()
		return <-ended
	})
	return s, nil
}

// Close closes the session when the last one who opened it does.
func (x *Collaboration) Close(ctx context.Context) error {
	x.all.mu.Lock()
	x.users--
	last := x.users == 0
	if last {
		delete(x.all.open, x.ID())
		x.all.past.Add(x.Stats())
	}
	x.all.mu.Unlock()
	if !last {
		return nil
	}
	return x.down.Run(ctx)
}

// Join makes an agent a member for as long as this process lives, or until leave
// is called. Of several processes that want one id, one gets it, and the others a
// *mailbox.ConflictError. Who is started again after a crash has it at once.
func (x *Collaboration) Join(ctx context.Context, r mailbox.Registration) (_ *mailbox.Member, leave func(context.Context), err error) {
	if err := mailbox.CheckAgent(r.Agent); err != nil {
		return nil, nil, err
	}
	release, err := filelock.Hold(filepath.Join(x.dir, identityDir, r.Agent+".lock"))
	if errors.Is(err, filelock.ErrHeld) {
		return nil, nil, &mailbox.ConflictError{Agent: r.Agent, Since: time.Now()}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("join session: %w", err)
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	if r.Run, err = x.identity(r.Agent); err != nil {
		return nil, nil, err
	}
	r.Limits = r.Limits.Or(x.all.limits.Agents[r.Agent])
	m, err := x.Session.Join(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	return m, func(ctx context.Context) {
		_ = m.Leave(ctx) // who cannot say so becomes stale
		release()
	}, nil
}

// Enter makes an agent a member for one command.
func (x *Collaboration) Enter(ctx context.Context, agent string) (_ *mailbox.Member, err error) {
	r := mailbox.Registration{Agent: agent, Harness: "cli", Limits: x.all.limits.Agents[agent]}
	if err := mailbox.CheckAgent(agent); err != nil {
		return nil, err
	}
	if r.Run, err = x.identity(agent); err != nil {
		return nil, err
	}
	return x.Session.Enter(ctx, r)
}

// identity is what the file of an agent says: who can read it is the agent.
type identity struct {
	Agent string `json:"agent"`
	Run   string `json:"run"`
}

// identity returns the run token of an agent of this data directory, which it
// makes if there is none. Of several processes that do so at once, all get the same.
func (x *Collaboration) identity(agent string) (run string, err error) {
	path := filepath.Join(x.dir, identityDir, agent+".json")
	fail := func(err error) (string, error) { return "", fmt.Errorf("read identity of agent %q: %w", agent, err) }
	for range 2 {
		id, err := readIdentity(path)
		if err == nil {
			return id.Run, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fail(err)
		}
		if err := makeIdentity(path, identity{Agent: agent, Run: mailbox.NewRunToken()}); err != nil && !errors.Is(err, fs.ErrExist) {
			return fail(err)
		}
	}
	return fail(fs.ErrNotExist)
}

func readIdentity(path string) (id identity, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return id, err
	}
	if info.Size() > maxIdentity {
		return id, fmt.Errorf("%s has %d bytes", path, info.Size())
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &id)
	}
	if err == nil && id.Run == "" {
		err = fmt.Errorf("%s names no run; remove it, and the agent becomes a new one", path)
	}
	return id, err
}

// makeIdentity writes the file as a whole, unless there is one.
func makeIdentity(path string, id identity) error {
	text, err := json.Marshal(id)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".identity.*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Link(f.Name(), path)
	}
	return errors.Join(err, os.Remove(f.Name()))
}

// Seated is an agent that was registered from a data directory.
type Seated struct {
	Session string `json:"session"`
	Agent   string `json:"agent"`
}

// Known lists the agents that were registered from the data directory, the newest
// session first: those of one session, or of all where it is empty.
func (c *Collaborations) Known(session string) ([]Seated, error) {
	sessions := []string{session}
	if session == "" {
		entries, err := os.ReadDir(c.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		sessions = sessions[:0]
		for _, e := range entries {
			if mailbox.CheckSession(e.Name()) == nil {
				sessions = append(sessions, e.Name())
			}
		}
		slices.Reverse(sessions)
	} else if err := mailbox.CheckSession(session); err != nil {
		return nil, err
	}
	var all []Seated
	for _, s := range sessions {
		entries, err := os.ReadDir(filepath.Join(c.dir, s, identityDir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if agent, ok := strings.CutSuffix(e.Name(), ".json"); ok && mailbox.CheckAgent(agent) == nil {
				all = append(all, Seated{s, agent})
			}
		}
	}
	return all, nil
}
