package app

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/agent"
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/ledger"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/listen"
)

// resetBudget bounds what a reset waits for: the new attempt, written down.
const resetBudget = 5 * time.Second

// reportOptions say whose report it is. The ids are the host's.
type reportOptions struct {
	session, task string
	agent         string // base name of the agent's command
	profile       string
	dir           string   // where the agent works
	env           []string // what it gets besides ours
	servers       []configured
	endpoint      *Endpoint
	sources       func() []listen.Source
	shim          []string // command of a relay for servers that are commands; nil: none
	// inProcess: the agent is a model loop of our own, which calls our tools itself.
	inProcess bool
}

// sessionReport follows the servers of one session through the lives of its
// agent.
type sessionReport struct {
	all    *reports
	o      reportOptions
	clean  *evidence.Sanitizer
	ledger *ledger.Ledger
	gone   context.Context //nolint:containedctx // ends tests of servers
	leave  context.CancelFunc

	reachTime time.Duration // of a test of a server; shorter in tests

	mu      sync.Mutex
	cur     *attempt // nil before the first
	fresh   bool     // cur was begun by a reset: the next start uses it
	engine  agent.Engine
	testing bool
	closed  bool

	ending sync.WaitGroup // attempts that are over
}

func newSessionReport(all *reports, o reportOptions) *sessionReport {
	r := &sessionReport{all: all, o: o, reachTime: reachTime, clean: evidence.NewSanitizer(secretsOf(o.servers, o.env)...)}
	r.gone, r.leave = context.WithCancel(context.Background())
	return r
}

// keepReport keeps the report of the agent's MCP servers.
func (o *Agent) keepReport(ctx context.Context, spec *AgentSpec) error {
	a := o.agents
	inProcess := spec.inProcess()
	o.inProcess = inProcess
	servers, err := configuration(spec.Servers, a.endpoint.base(), inProcess)
	if err != nil {
		return err
	}
	if o.box != nil && !inProcess {
		servers = withBox(servers, o.box, a.endpoint.base())
	}
	r := reportOptions{
		session: spec.ID, task: spec.Signals, agent: "chat", profile: spec.Profile.Name, dir: spec.Profile.Dir, env: spec.Profile.Env,
		servers: servers, endpoint: a.endpoint, sources: o.seat.sources, shim: a.shim, inProcess: inProcess,
	}
	if !inProcess && len(spec.Profile.Command) > 0 {
		r.agent = evidence.CommandTarget(spec.Profile.Command[0])
	}
	o.report = a.reports.open(ctx, r)
	o.down.Push("report", storeBudget, o.report.close)
	return nil
}

// begin starts an attempt before anything is delivered (specification ):
// it is written down and told, and that of before takes nothing more, nor does
// its way in. A start after a reset goes on with the attempt of that.
func (r *sessionReport) begin(ctx context.Context, execution string) (*attempt, error) {
	r.mu.Lock()
	if r.fresh {
		defer r.mu.Unlock()
		r.fresh = false
		return r.cur, nil
	}
	a, err := r.beginLocked(ctx, execution)
	r.mu.Unlock()
	r.all.tell(r)
	return a, err
}

func (r *sessionReport) beginLocked(ctx context.Context, execution string) (*attempt, error) {
	kept, err := r.ledger.Begin(ctx, ledger.Execution{ID: execution, TaskID: r.o.task, AgentID: r.o.agent, AgentProfileID: r.o.profile})
	if err != nil {
		return nil, err
	}
	old := r.cur
	r.cur = &attempt{r: r, Attempt: kept, execution: execution}
	r.o.endpoint.supersede(r.o.session)
	if old != nil {
		r.ending.Go(old.end)
	}
	r.cur.resolve(r.o.servers)
	return r.cur, nil
}

// reset supersedes what was seen, at once: whatever the reset takes, nothing
// stays green (specification A-4).
func (r *sessionReport) reset() {
	ctx, cancel := context.WithTimeout(context.Background(), resetBudget)
	defer cancel()
	if err := r.refresh(ctx); err != nil {
		r.all.log.LogAttrs(ctx, slog.LevelWarn, "attempt of a reset not begun", logattr.Session(r.o.session), logattr.Err(err))
	}
	r.all.tell(r)
}

// refresh begins an attempt that waits for the next start, unless one does.
func (r *sessionReport) refresh(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cur == nil || r.fresh || r.closed {
		return nil
	}
	_, err := r.beginLocked(ctx, newExecution())
	r.fresh = err == nil
	return err
}

// current is the attempt under way, nil before the first.
func (r *sessionReport) current() *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cur
}

// runs notes the engine of the newest life.
func (r *sessionReport) runs(e agent.Engine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engine = e
}

// close writes down what was seen last.
func (r *sessionReport) close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	cur := r.cur
	r.mu.Unlock()
	r.leave()
	if cur != nil {
		cur.end()
	}
	r.ending.Wait()
	err := r.ledger.Close(ctx)
	r.all.forget(r)
	return err
}

// newExecution is an id for one life of an agent.
func newExecution() string { return "x-" + strings.ToLower(rand.Text()[:16]) }
