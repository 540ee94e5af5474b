package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/bell"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/sqlite"
	"github.com/ossicle/ossicle/internal/teardown"
	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/notice"
)

// DataFile is the name of the store in the data directory.
const DataFile = "ossicle.db"

// Budgets of the teardown.
const (
	storeBudget    = 8 * time.Second // a checkpoint on a slow disk
	endpointBudget = 4 * time.Second
	deliveryBudget = 2 * time.Second
	agentsBudget   = 20 * time.Second
)

// Agents is what all agents of a process share: the store, the inboxes, and the
// MCP endpoint.
type Agents struct {
	Inbox *notice.Inbox
	Store agent.Store

	config   *config.Config
	data     string
	feed     *Feed        // nil: none
	boxes    *fleet.Fleet // nil: none
	signals  *Collaborations
	log      *slog.Logger
	endpoint *Endpoint
	reports  *reports
	shim     []string  // command of a relay for servers that are commands; nil: none
	lives    bell.Bell // sessions that have started here, ended, or were removed
	down     teardown.Stack

	mu     sync.Mutex
	closed bool
	live   map[string]*Agent
	making map[string]bool
}

// AgentsOptions refine Agents. The zero value is the default.
type AgentsOptions struct {
	// Data is the directory of the store; empty is the configured home.
	Data string
	// Feed is what agents listen to. Nil is none. It is closed after the agents.
	Feed *Feed
	// Sandboxes makes the sandboxes of agents that ask for one. Nil is none. It is
	// closed after the agents.
	Sandboxes *fleet.Fleet
	// Bridge is the command that runs Bridge, for agents that take MCP servers on
	// their standard streams alone. Nil is none.
	Bridge []string
	// Shim is the command that runs ShimStdio, to see what agents do with servers
	// that are commands. Nil is none.
	Shim []string
	// Logger takes the log. Nil discards.
	Logger *slog.Logger
}

// NewAgents opens the store and serves the endpoint. The caller closes it.
func NewAgents(ctx context.Context, c *config.Config, o *AgentsOptions) (_ *Agents, err error) {
	if o == nil {
		o = &AgentsOptions{}
	}
	a := &Agents{config: c, data: o.Data, feed: o.Feed, boxes: o.Sandboxes, shim: o.Shim, log: o.Logger, live: map[string]*Agent{}, making: map[string]bool{}}
	if a.data == "" {
		a.data = c.Home
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.signals = NewCollaborations(c, a.data, mailbox.Limits{}, a.log)
	defer func() {
		if err != nil {
			err = errors.Join(err, a.down.Run(context.WithoutCancel(ctx)))
		}
	}()
	db, err := openStore(ctx, c, o.Data)
	if err != nil {
		return nil, err
	}
	a.down.Push("store", storeBudget, func(context.Context) error { return db.Close() })
	a.Store = db.Sessions(nil)
	a.reports = newReports(db.Attachments(), a.log)
	a.Inbox = notice.New(db.Notices(), &notice.Options{Logger: a.log, Batch: sessionBatch})
	if a.endpoint, err = NewEndpoint(ctx, a.Inbox, a.log); err != nil {
		return nil, err
	}
	a.endpoint.bridge = o.Bridge
	a.down.Push("endpoint", endpointBudget, a.endpoint.Close)

	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	delivered := make(chan error, 1)
	go func() { delivered <- a.Inbox.Run(run) }()
	a.down.Push("delivery", deliveryBudget, func(context.Context) error {
		stop()
		return <-delivered
	})
	a.down.Push("agents", agentsBudget, a.closeAll)
	return a, nil
}

// OpenInbox opens the inboxes of a data directory without delivering anything:
// for commands that look and mark. The caller closes what it gets. It makes no
// store: where there is none the error is fs.ErrNotExist.
func OpenInbox(ctx context.Context, c *config.Config, data string, log *slog.Logger) (*notice.Inbox, func() error, error) {
	if _, err := os.Stat(storePath(c, data)); err != nil {
		return nil, nil, fmt.Errorf("open inboxes: %w", err)
	}
	db, err := openStore(ctx, c, data)
	if err != nil {
		return nil, nil, err
	}
	return notice.New(db.Notices(), &notice.Options{Logger: log}), db.Close, nil
}

func openStore(ctx context.Context, c *config.Config, data string) (*sqlite.DB, error) {
	return sqlite.Open(ctx, storePath(c, data), nil)
}

func storePath(c *config.Config, data string) string {
	if data == "" {
		data = c.Home
	}
	return filepath.Join(data, DataFile)
}

// errAgentsClosed is returned by Start after Close.
var errAgentsClosed = errors.New("start agent: the process is shutting down")

// RunningError says that an agent of that id runs already.
type RunningError struct {
	ID        string
	Elsewhere bool // in another process, of the same data directory
}

func (e *RunningError) Error() string {
	if e.Elsewhere {
		return fmt.Sprintf("start agent: session %q runs already, in another process; end it there first (in its terminal, or by 'ossicle session stop'), or use another name", e.ID)
	}
	return fmt.Sprintf("start agent: session %q runs already", e.ID)
}

// sessionNameError says that a session cannot have that name.
type sessionNameError struct {
	id  string
	err *notice.InvalidError // of its inbox, which has the same name
}

func (e *sessionNameError) Error() string {
	return fmt.Sprintf("check session name %.80q: %s", e.id, e.err.Problem)
}

func (e *sessionNameError) Unwrap() error { return e.err }

func checkSession(id string) error {
	if invalid, ok := errors.AsType[*notice.InvalidError](notice.CheckAgent(id)); ok {
		return &sessionNameError{id, invalid}
	}
	return nil
}

// reserve claims an id for one life of an agent.
func (a *Agents) reserve(id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return errAgentsClosed
	case a.live[id] != nil || a.making[id]:
		return &RunningError{ID: id}
	}
	a.making[id] = true
	return nil
}

// install makes an agent known that has started, and frees its id otherwise.
func (a *Agents) install(id string, started *Agent) error {
	defer a.lives.Ring(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.making, id)
	if started == nil {
		return nil
	}
	if a.closed {
		return errAgentsClosed
	}
	a.live[id] = started
	return nil
}

func (a *Agents) remove(gone *Agent) {
	defer a.lives.Ring(gone.Session.ID())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.live[gone.Session.ID()] == gone {
		delete(a.live, gone.Session.ID())
	}
}

// Agent returns a running agent, nil if there is none of that id.
func (a *Agents) Agent(id string) *Agent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.live[id]
}

// Running lists the running agents by id.
func (a *Agents) Running() []*Agent {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []*Agent
	for _, one := range a.live {
		all = append(all, one)
	}
	slices.SortFunc(all, func(x, y *Agent) int {
		if x.Session.ID() < y.Session.ID() {
			return -1
		}
		return 1
	})
	return all
}

func (a *Agents) closeAll(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	var (
		ends sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for _, one := range a.Running() {
		ends.Go(func() {
			if err := one.Close(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("session %s: %w", one.Session.ID(), err))
			}
		})
	}
	ends.Wait()
	return errors.Join(errs...)
}

// Close ends all agents, then what they share, in the opposite order of its
// making, each within its budget.
func (a *Agents) Close(ctx context.Context) error { return a.down.Run(ctx) }
