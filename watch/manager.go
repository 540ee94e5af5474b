package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/python"
)

// ErrClosed is returned by a [Manager] that was closed.
var ErrClosed = errors.New("watch: engine closed")

// levelDetail is the level of what a --verbose log shows (W-179).
const levelDetail = slog.LevelDebug

// Options refine a [Manager]. A nil *Options and zero fields take the defaults.
type Options struct {
	// Logger receives the events of specification W-170 to W-177: watch.notice at
	// level info, watch.failed at level warn, the others at level debug. Nil
	// discards.
	Logger *slog.Logger
	Limits Limits
	// StatePath is the file that keeps the specifications of watches over
	// restarts (W-130). Empty keeps nothing (W-135).
	StatePath string
	// ReadOnly decides which tools a filter may call. Nil means those with
	// readOnlyHint: true (WA-15).
	ReadOnly func(server string, t Tool) bool
	// Toolless says that whoever gets the notices has no tools to start and stop
	// watches with, as somebody at a shell: what is to be done is then told without
	// them.
	Toolless bool
}

// Manager is the watch engine: it runs watches on the resources of servers and
// gives their notices to a sink. It is safe for concurrent use. Whoever makes
// one closes it.
type Manager struct {
	servers  []Server // in the order of the configuration
	engine   python.Engine
	log      *slog.Logger
	limits   Limits
	readOnly func(server string, t Tool) bool
	toolless bool
	crew     *crew
	out      *outbox
	file     *stateFile // nil without a path
	looking  *observers

	// Locks are taken in this order: a subscription's, or mu; a watch's; the
	// outbox's; the crew's; the observers'. A subscription's and mu are never held
	// at once.
	mu       sync.Mutex
	closed   bool
	number   int
	watches  map[string]*runningWatch
	saved    map[string]*savedWatch
	starting map[string]chan struct{} // closed when the start is over
	subs     map[place]*subscription
}

// savedWatch is a specification without a running watch: it failed, or could
// not be restored. It keeps its place in the state file until it is started
// again or stopped (W-134, WA-10).
type savedWatch struct {
	spec            spec
	number          int
	err             error
	restore         bool // never ran in this process
	shape           Shape
	events, notices int
}

// NewManager makes an engine over servers, in the order in which a URI is
// routed (W-045). engine runs filters; nil means that none can be given. sink
// receives the notices.
func NewManager(servers []Server, engine python.Engine, sink Sink, opts *Options) *Manager {
	if opts == nil {
		opts = &Options{}
	}
	m := &Manager{
		servers: slices.Clone(servers), engine: engine, log: opts.Logger, limits: opts.Limits.withDefaults(), readOnly: opts.ReadOnly, toolless: opts.Toolless,
		crew: newCrew(), looking: &observers{}, watches: map[string]*runningWatch{}, saved: map[string]*savedWatch{},
		starting: map[string]chan struct{}{}, subs: map[place]*subscription{},
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.readOnly == nil {
		m.readOnly = func(_ string, t Tool) bool { return t.ReadOnly }
	}
	if opts.StatePath != "" {
		m.file = &stateFile{path: opts.StatePath}
	}
	m.out = &outbox{sink: sink, log: m.log, limit: m.limits.Queue, crew: m.crew}
	return m
}

// Started describes a watch that runs.
type Started struct {
	Name  string `json:"name"`
	URI   string `json:"uri"`
	Shape Shape  `json:"shape"`
}

// Start makes a watch, and returns when its subscription is acknowledged and
// its baseline read (W-006, W-115). A watch of that name goes on until the new one
// is up and is then replaced; if the start fails it is left alone (W-067).
//
// Errors: *ArgumentError, *FilterError, *LimitError, *RouteError, *VersionError,
// *RefusedError, ErrClosed, ctx's error, or what the server said. After an error
// there is neither a watch nor a subscription.
func (m *Manager) Start(ctx context.Context, req StartRequest) (Started, error) {
	if err := req.check(); err != nil {
		return Started{}, err
	}
	m.load(ctx)
	return m.start(ctx, req)
}

func (m *Manager) start(ctx context.Context, req StartRequest) (Started, error) {
	done, err := m.reserve(ctx, req.Name)
	if err != nil {
		return Started{}, err
	}
	defer done()
	w, err := m.launch(ctx, req)
	if err != nil {
		return Started{}, err
	}
	if err := m.install(w); err != nil {
		w.close()
		return Started{}, err
	}
	m.log.LogAttrs(ctx, levelDetail, "watch.started", logattr.Watch(w.spec.Name), logattr.URI(w.spec.URI), logattr.Server(w.server))
	m.save(ctx)
	return Started{Name: w.spec.Name, URI: w.spec.URI, Shape: w.shape}, nil
}

// reserve claims a name and, for a new one, a place under the limit (W-160). Two
// starts of one name come one after the other.
func (m *Manager) reserve(ctx context.Context, name string) (done func(), err error) {
	for {
		m.mu.Lock()
		if m.closed {
			m.mu.Unlock()
			return nil, ErrClosed
		}
		other, busy := m.starting[name]
		if !busy {
			break
		}
		m.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("start watch %q: %w", name, ctx.Err())
		}
	}
	defer m.mu.Unlock()
	if _, replace := m.watches[name]; !replace {
		running := sortedKeys(m.watches)
		for other := range m.starting {
			if _, counted := m.watches[other]; !counted {
				running = append(running, other)
			}
		}
		if len(running) >= m.limits.Watches {
			return nil, &LimitError{Limit: m.limits.Watches, Names: running}
		}
	}
	over := make(chan struct{})
	m.starting[name] = over
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.starting, name)
		close(over)
	}, nil
}

// launch brings a watch up to its baseline, in the order: check the filter, find
// the server, subscribe, read.
func (m *Manager) launch(ctx context.Context, req StartRequest) (*runningWatch, error) {
	var functions *catalogue
	if req.OnEvent != "" {
		if m.engine == nil {
			return nil, &ArgumentError{"on_event", "there is no Python interpreter", "leave on_event out: events then show their default lines"}
		}
		functions = m.catalogue(ctx)
		if err := m.dryRun(ctx, req, functions); err != nil {
			return nil, err
		}
	}
	to, err := m.route(ctx, req.URI)
	if err != nil {
		return nil, err
	}
	if err := m.watchable(ctx, to, req.URI); err != nil {
		return nil, err
	}
	w, err := m.newWatch(req, to, functions)
	if err != nil {
		return nil, err
	}
	if w.sub, err = m.acquire(ctx, to.server, req.URI); err == nil {
		if w.shape, err = w.sub.join(ctx, w); err == nil {
			to.compareShape(ctx, m.log, w)
			return w, nil
		}
		m.release(w.sub)
	}
	if w.scope != nil {
		w.scope.Close()
	}
	return nil, err
}

func (m *Manager) newWatch(req StartRequest, to target, functions *catalogue) (*runningWatch, error) {
	w := &runningWatch{spec: spec(req), server: to.server.Name(), limits: &m.limits, log: m.log, crew: m.crew, out: m.out, looking: m.looking}
	w.batch.limits = &m.limits
	text := defaultLine{&liner{}, m.limits.LineRunes}
	var second stage = text
	if functions != nil {
		scope, err := m.engine.NewScope(python.ScopeOptions{
			Name: filterFile, Functions: functions.names(),
			Call: m.filterCall(functions),
		})
		if err != nil {
			return nil, fmt.Errorf("start watch %q: make scope: %w", req.Name, err)
		}
		w.scope = scope
		second = &filter{
			watch: bound(req.Name, MaxName), uri: req.URI, source: req.OnEvent, scope: scope, catalogue: functions,
			limits: &m.limits, fallback: text, mayFall: w.mayFall, told: newRows(maxFilterErrors), toolless: m.toolless,
		}
	}
	w.stages = []stage{unchanged{}, second, &dedupe{newRows(m.limits.DedupeRows)}}
	return w, nil
}

// install makes a watch known in place of the one that had its name, whose
// lines leave at once.
func (m *Manager) install(w *runningWatch) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return ErrClosed
	}
	if w.over != nil {
		m.mu.Unlock()
		return fmt.Errorf("subscribe to %q: %w", w.spec.URI, w.over)
	}
	old := m.watches[w.spec.Name]
	m.number++
	w.number = m.number
	m.watches[w.spec.Name] = w
	delete(m.saved, w.spec.Name)
	m.mu.Unlock()
	m.looking.changed()
	if old != nil {
		m.retire(old)
	}
	return nil
}

// retire ends a watch whose last lines are still to be told.
func (m *Manager) retire(w *runningWatch) {
	w.close()
	if n, ok := w.compose(); ok {
		m.out.enqueueNotice(n)
	}
}

// Stop ends a watch, or forgets one that failed or could not be restored, and
// reports whether there was one (W-065). Lines that wait for a notice are dropped.
func (m *Manager) Stop(name string) bool {
	ctx := context.Background()
	m.load(ctx)
	m.mu.Lock()
	w, running := m.watches[name]
	was, kept := m.saved[name]
	delete(m.watches, name)
	delete(m.saved, name)
	m.mu.Unlock()
	var uri string
	switch {
	case running:
		w.close()
		uri = w.spec.URI
	case kept:
		uri = was.spec.URI
	default:
		return false
	}
	m.looking.changed()
	m.save(ctx)
	m.log.LogAttrs(ctx, levelDetail, "watch.stopped", logattr.Watch(name), logattr.URI(uri))
	return true
}

// watchFailed ends a watch whose subscription is over for good, keeps its
// specification, and tells of it (W-051, WA-10).
func (m *Manager) watchFailed(ctx context.Context, w *runningWatch, cause error) {
	m.mu.Lock()
	if m.watches[w.spec.Name] != w {
		w.over = cause
		m.mu.Unlock()
		return
	}
	delete(m.watches, w.spec.Name)
	events, notices := w.counts()
	m.saved[w.spec.Name] = &savedWatch{spec: w.spec, number: w.number, err: cause, shape: w.shape, events: events, notices: notices}
	m.mu.Unlock()
	m.looking.changed()
	m.retire(w)
	m.log.LogAttrs(ctx, slog.LevelWarn, "watch.failed", logattr.Watch(w.spec.Name), logattr.URI(w.spec.URI), logattr.Server(w.server), logattr.Err(cause))
	advice := "no more changes are seen; start it again with watch_start, or drop it with watch_stop"
	if m.toolless {
		advice = "no more changes are seen until it is started again"
	}
	m.out.enqueueNotice(w.notice(KindFailed, []string{bound("watch failed: "+cause.Error(), m.limits.LineRunes), advice}))
}

// Status is one line of List (W-066).
type Status struct {
	Name    string `json:"name"`
	URI     string `json:"uri"`
	Shape   Shape  `json:"shape,omitempty"`
	Events  int    `json:"events"`  // that were processed, dropped ones included
	Notices int    `json:"notices"` // that the sink has taken
	// RestoreFailed marks a saved watch that could not be restarted, Failed one
	// that failed while it ran; Error says why. Both are kept until they are started
	// again or stopped.
	RestoreFailed bool   `json:"restore_failed,omitempty"`
	Failed        bool   `json:"failed,omitempty"`
	Error         string `json:"error,omitempty"`
}

// List returns the watches in the order in which they were started, with those
// that are kept although they do not run.
func (m *Manager) List() []Status {
	m.load(context.Background())
	m.mu.Lock()
	defer m.mu.Unlock()
	numbers := map[string]int{}
	list := make([]Status, 0, len(m.watches)+len(m.saved))
	for name, w := range m.watches {
		numbers[name] = w.number
		events, notices := w.counts()
		list = append(list, Status{Name: name, URI: w.spec.URI, Shape: w.shape, Events: events, Notices: notices})
	}
	for name, s := range m.saved {
		if _, ok := m.watches[name]; ok {
			continue
		}
		numbers[name] = s.number
		status := Status{Name: name, URI: s.spec.URI, Shape: s.shape, Events: s.events, Notices: s.notices, RestoreFailed: s.restore, Failed: !s.restore}
		if s.err != nil {
			status.Error = bound(s.err.Error(), m.limits.LineRunes)
		}
		list = append(list, status)
	}
	slices.SortFunc(list, func(a, b Status) int { return numbers[a.Name] - numbers[b.Name] })
	return list
}

// Close ends all watches and subscriptions and waits for what is running, at
// most Limits.CloseTime (W-054). Lines that wait for a notice go to the log
// (WA-35). The state file stays as it is, for the next start. Close is idempotent.
func (m *Manager) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	watches := make([]*runningWatch, 0, len(m.watches))
	for _, name := range sortedKeys(m.watches) {
		watches = append(watches, m.watches[name])
	}
	m.mu.Unlock()
	ended := m.crew.dismiss(m.limits.CloseTime, func() {
		for _, w := range watches {
			w.close()
		}
	})
	m.out.drain()
	for _, w := range watches {
		if n, ok := w.compose(); ok {
			logUnsent(m.log, slog.LevelInfo, n, "engine closed")
		}
	}
	if !ended {
		return fmt.Errorf("close watches: something still runs after %s", m.limits.CloseTime)
	}
	return nil
}
