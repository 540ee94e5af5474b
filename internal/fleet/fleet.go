package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/bell"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/filelock"
	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/internal/kubernetes"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/teardown"
	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/worker"
)

const (
	// DefaultSandboxes bounds the sandboxes of a process.
	DefaultSandboxes = 64

	keptDir    = "gateway" // in the data directory: keys, owner, lock
	socketName = "gw.sock" // in the directory of a process
	// ArtifactsDir is where artifacts of sandboxes are kept, in the data directory.
	ArtifactsDir = "artifacts"
)

// Budgets of the gateway's end. The workers of clusters are sent away, those of
// this machine are released: their sandboxes end with this process.
const (
	politeRelease = 2 * time.Second // for calls under way
	drainTime     = 8 * time.Second
	driversBudget = 5 * time.Second
	hostBudget    = 5 * time.Second
	trailBudget   = 2 * time.Second
	recordsBudget = 8 * time.Second // a checkpoint on a slow disk
)

// Options refine a [Fleet]. The zero value is a fleet of one process that keeps
// nothing.
type Options struct {
	// Data is the directory that keeps keys, the name of this host and artifacts, and
	// is held while the gateway runs. Empty keeps nothing.
	Data string
	// Artifacts is where artifacts go; empty is in Data, and without it nowhere for
	// long.
	Artifacts string
	// Own says that Artifacts is a directory of the caller's, from which nothing is
	// removed.
	Own bool
	// Records is where records and audit are kept. Nil is memory.
	Records *Records
	// Drivers are further ways to make sandboxes, by the name that a profile has for
	// its driver; they go before ours: local, plain and kubernetes. What ours is not is
	// taken to end with this process.
	Drivers map[string]NewDriver
	// Program is the absolute path of the worker with its arguments; nil is this
	// program's own.
	Program []string
	// TLS serves the own address of workers.
	TLS *tls.Config
	// Observe is that of worker.HostOptions.
	Observe func(worker.Observation)
	// Quiet keeps the audit out of the log: the caller sees how his one sandbox ends.
	Quiet bool
	// Logger takes the log. Nil discards.
	Logger *slog.Logger
}

// Records are where sandboxes are kept beyond the process.
type Records struct {
	Store worker.Store
	Audit worker.AuditStore
	// Shared says that other hosts use the store too.
	Shared bool
	// Close is the last step of the fleet's end, also of one that could not be opened.
	// Nil is none.
	Close func() error
}

// Fleet are the sandboxes of a process: the gateway where their workers come in, the
// drivers that make them, and what is kept of them. It is safe for concurrent use.
// The caller closes it.
type Fleet struct {
	config *config.Config
	o      Options
	log    *slog.Logger

	changed bell.Bell // sandboxes are other than they were

	owner     string
	dir       string // of this process: the socket, and the drivers' files
	socket    string
	store     worker.Store
	audit     worker.AuditStore
	trail     *worker.AuditTrail
	tokens    *gateway.Keyring
	host      *worker.Host
	artifacts *gateway.Dir
	gateway   *gateway.Gateway
	calls     *gateway.Calls // to sandboxes that other daemons hold; nil: none does
	shared    bool           // other hosts use the store
	down      teardown.Stack

	mu      sync.Mutex
	closed  bool
	begun   int               // sandboxes that are being made
	drivers map[string]Driver // by profile
	making  sync.Mutex        // of drivers, and of clusters
	// clusters are the drivers of namespaces, by context and name.
	clusters map[string]*kubernetes.Driver
	notes    map[string]string // sandbox → the agent session that has it
}

// ErrTooMany is for a process that has as many as it may.
var ErrTooMany = errors.New("there are as many sandboxes as there may be")

// ErrClosed is for a fleet that ends.
var ErrClosed = errors.New("start sandbox: the gateway is shutting down")

// ExistsError says that a sandbox of that id exists or existed.
type ExistsError struct{ ID string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("start sandbox: the id %q is taken", e.ID)
}

// ProfileError says that there is no kind of sandbox of a name.
type ProfileError struct {
	Profile string
	Known   []string
}

func (e *ProfileError) Error() string {
	return fmt.Sprintf("start sandbox: there is no profile %.80q; there are %s", e.Profile, strings.Join(e.Known, ", "))
}

// Open serves workers on a Unix socket of this machine, and on an address
// of their own if the configuration has one. Sandboxes that an earlier process of
// the same directory left are taken up again, or failed if they ended with it.
func Open(ctx context.Context, c *config.Config, o *Options) (_ *Fleet, err error) {
	g := &Fleet{config: c, drivers: map[string]Driver{}, clusters: map[string]*kubernetes.Driver{}, notes: map[string]string{}}
	if o != nil {
		g.o = *o
	}
	g.store, g.audit = &worker.Memory{}, &worker.MemoryAudit{}
	if g.log = g.o.Logger; g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.down.Run(context.WithoutCancel(ctx)))
		}
	}()
	if r := g.o.Records; r != nil {
		g.store, g.audit, g.shared = r.Store, r.Audit, r.Shared
		g.down.Push("records", recordsBudget, func(context.Context) error {
			if r.Close == nil {
				return nil
			}
			return r.Close()
		})
	}
	if err := g.hold(); err != nil {
		return nil, err
	}
	if err := g.openDir(ctx); err != nil {
		return nil, err
	}
	if err := g.openHost(ctx); err != nil {
		return nil, err
	}
	if err := g.serve(ctx); err != nil {
		return nil, err
	}
	if err := g.adopt(ctx); err != nil {
		return nil, err
	}
	g.reap(ctx)
	g.down.Push("sandboxes", drainTime, g.drain)
	return g, nil
}

// hold takes the data directory for this process: two would take each other's
// sandboxes for their own.
func (g *Fleet) hold() error {
	if g.o.Data == "" {
		return nil
	}
	dir := filepath.Join(g.o.Data, keptDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("open gateway: %w", err)
	}
	release, err := filelock.Hold(filepath.Join(dir, "lock"))
	if errors.Is(err, filelock.ErrHeld) {
		return fmt.Errorf("open gateway: another process has the gateway of %s", g.o.Data)
	}
	if err != nil {
		return fmt.Errorf("open gateway: %w", err)
	}
	g.down.Push("lock", time.Second, func(context.Context) error { release(); return nil })
	return nil
}

// openDir makes the directory of this process, below which sandboxes can reach
// their socket, and removes those of earlier processes that were killed.
func (g *Fleet) openDir(ctx context.Context) (err error) {
	note := ""
	if g.o.Data != "" {
		note = filepath.Join(g.o.Data, keptDir, "directory")
		if left, err := os.ReadFile(note); err == nil && abandoned(ctx, strings.TrimSpace(string(left))) { // our data may be a copy of another's
			removeLeft(strings.TrimSpace(string(left)))
		}
	}
	if g.dir, err = makeDir(); err != nil {
		return fmt.Errorf("make directory of sandboxes: %w", err)
	}
	release, err := filelock.HoldDir(g.dir)
	if err != nil {
		return errors.Join(fmt.Errorf("hold directory of sandboxes: %w", err), os.RemoveAll(g.dir))
	}
	g.down.Push("directory", driversBudget, func(context.Context) error {
		defer release()
		return os.RemoveAll(g.dir)
	})
	sweepDirs(ctx, g.dir)
	if note != "" {
		if err := os.WriteFile(note, []byte(g.dir+"\n"), 0o600); err != nil {
			return fmt.Errorf("open gateway: %w", err)
		}
	}
	return nil
}

func (g *Fleet) openHost(ctx context.Context) (err error) {
	c := &g.config.Gateway
	artifacts := g.o.Artifacts
	if artifacts == "" {
		artifacts = filepath.Join(cmp.Or(g.o.Data, g.dir), ArtifactsDir)
	}
	bounds := gateway.DirOptions{
		MaxArtifact: int64(c.Artifacts.Max), SessionQuota: int64(c.Artifacts.Session), SessionFiles: c.Artifacts.Files,
		Keep: c.Artifacts.Keep, Total: int64(c.Artifacts.Total),
	}
	if g.o.Own {
		bounds.Keep, bounds.Total = -1, -1
	}
	g.artifacts, err = gateway.OpenDir(artifacts, &bounds)
	if err != nil {
		return err
	}
	g.down.Push("artifacts", time.Second, func(context.Context) error { return g.artifacts.Close() })
	if g.owner, err = g.ownName(); err != nil {
		return err
	}
	if g.tokens, err = g.openTokens(); err != nil {
		return err
	}
	g.down.Push("keys", time.Second, func(context.Context) error { g.tokens.Close(); return nil })
	g.openTrail(ctx)
	g.host = worker.NewHost(g.tokens, g.store, &worker.HostOptions{
		Logger: g.log, Image: version.Name + " " + version.Number(), Owner: g.owner, Addr: g.config.Gateway.Address, Audit: g.trail, Sandboxes: g, Observe: g.observe,
	})
	g.down.Push("host", hostBudget, func(context.Context) error { g.host.Close(); return nil })
	if g.shared && g.config.Gateway.KeyFile != "" {
		g.calls = gateway.NewCalls(g.host, g.store, g.tokens.Tokens(), &gateway.CallsOptions{Logger: g.log})
		g.down.Push("calls", hostBudget, func(context.Context) error { g.calls.Close(); return nil })
	}
	g.gateway = gateway.New(g.host, g.tokens, g.artifacts, &gateway.Options{Logger: g.log})
	return nil
}

// openTrail writes the audit behind what happens.
func (g *Fleet) openTrail(ctx context.Context) {
	log := g.log
	if g.o.Quiet {
		log = slog.New(slog.DiscardHandler)
	}
	g.trail = worker.NewAuditTrail(g.audit, log)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ran := make(chan error, 1)
	go func() { ran <- g.trail.Run(ctx) }()
	g.down.Push("audit", trailBudget, func(context.Context) error {
		stop()
		return <-ran
	})
}

// ownName is the name of this host among those of its store: that of its data
// directory, so that the next process takes up what this one leaves.
func (g *Fleet) ownName() (string, error) {
	fresh := "gw_" + strings.ToLower(rand.Text())
	if g.o.Data == "" {
		return fresh, nil
	}
	path := filepath.Join(g.o.Data, keptDir, "owner")
	text, err := os.ReadFile(path)
	if name := strings.TrimSpace(string(text)); err == nil && validID.MatchString(name) {
		return name, nil
	}
	if err := os.WriteFile(path, []byte(fresh+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("name the gateway: %w", err)
	}
	return fresh, nil
}

func (g *Fleet) openTokens() (*gateway.Keyring, error) {
	c := &g.config.Gateway
	path, shared := c.KeyFile, c.KeyFile != ""
	if !shared && g.o.Data != "" {
		path = filepath.Join(g.o.Data, keptDir, "keys.json")
	}
	life := time.Duration(0)
	for _, name := range g.config.SandboxNames() {
		s, _ := g.config.Sandbox(name)
		life = max(life, s.TokenLife())
	}
	if g.o.Data == "" { // no other process, so nobody's tokens but ours
		path, shared = "", false
	}
	return gateway.OpenKeyring(path, &gateway.KeyringOptions{Shared: shared, Age: c.Rotate, Life: life, Logger: g.log})
}

// adopt takes up what an earlier process left. What ran on this machine ended with
// it, and is failed at once; the others have what is left of their windows.
func (g *Fleet) adopt(ctx context.Context) error {
	if err := g.host.Restore(ctx); err != nil {
		return err
	}
	for _, s := range g.host.Sessions() {
		p, known := g.config.Sandbox(s.Record().Profile.Name)
		if known && p.Driver != config.DriverKubernetes {
			s.Exited("its sandbox ended with the process that had made it")
		} else if known {
			if _, err := g.driver(ctx, &p); err != nil { // nobody hears of their ends, but deadlines do end them
				g.log.LogAttrs(ctx, slog.LevelWarn, "sandboxes of a cluster are not watched", logattr.Session(s.ID()), logattr.Err(err))
			}
		}
	}
	return nil
}

// validID is what an id may be: it becomes a label, a word on the command line
// and a segment of a path.
var validID = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// InvalidError says what is wrong with a request.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return e.Reason }

// Start makes a sandbox of a profile. An empty id is a new one. The sandbox is
// being made when it returns; Session.Running waits for it. note names whose it is.
// Errors: InvalidError, ProfileError, ExistsError, ErrTooMany, ErrClosed,
// ErrNoSandbox, and those of the driver.
func (g *Fleet) Start(ctx context.Context, id, profile, note string) (*worker.Session, error) {
	if id == "" {
		id = "ses_" + strings.ToLower(rand.Text())
	}
	if !validID.MatchString(id) {
		return nil, &InvalidError{fmt.Sprintf("start sandbox: the id %.80q: use up to 63 letters, digits, dots, dashes and underscores", id)}
	}
	p, known := g.config.Sandbox(profile)
	if !known {
		return nil, &ProfileError{profile, g.config.SandboxNames()}
	}
	if err := g.enter(); err != nil {
		return nil, err
	}
	defer g.leave()
	defer g.changed.Ring("")
	d, err := g.driver(ctx, &p)
	if err != nil {
		return nil, err
	}
	sb, err := g.gateway.Open(ctx, g.tokens.Tokens(), id, d.Traits().Control, p.Profile)
	switch {
	case errors.Is(err, worker.ErrConflict):
		return nil, &ExistsError{id}
	case err != nil:
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	if note != "" {
		g.mu.Lock()
		g.notes[id] = note
		g.mu.Unlock()
	}
	if err := d.Create(ctx, Spec{Session: id, Env: sb.Env, Token: sb.Token}); err != nil {
		sb.Session.Exited(fmt.Sprintf("it could not be made: %.300s", err))
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	return sb.Session, nil
}

// enter takes a place among the sandboxes.
func (g *Fleet) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	most := cmp.Or(g.config.Gateway.Sandboxes, DefaultSandboxes)
	switch {
	case g.closed:
		return ErrClosed
	case len(g.host.Sessions())+g.begun >= most:
		return fmt.Errorf("start sandbox: %w: %d", ErrTooMany, most)
	}
	g.begun++
	return nil
}

func (g *Fleet) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun--
}

// Kill ends a sandbox at once; nothing is flushed. It waits until the session is
// over.
func (g *Fleet) Kill(ctx context.Context, s *worker.Session, why string) error {
	s.Kill(why)
	select {
	case <-s.Left():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kill sandbox %q: %w", s.ID(), context.Cause(ctx))
	}
}

// observe passes on what there is to count, and wakes whoever looks.
func (g *Fleet) observe(o worker.Observation) {
	if g.o.Observe != nil {
		g.o.Observe(o)
	}
	g.changed.Ring("")
}

// Listen calls changed whenever sandboxes are other than they were, until stop is
// called; changed must not block. Who listens looks at [Fleet.List] himself.
func (g *Fleet) Listen(changed func()) (stop func()) {
	return g.changed.Listen(func(string) { changed() })
}

// Profiles are the kinds of sandboxes that there can be, by name.
func (g *Fleet) Profiles() []config.Sandbox {
	var all []config.Sandbox
	for _, name := range g.config.SandboxNames() {
		if p, known := g.config.Sandbox(name); known {
			all = append(all, p)
		}
	}
	return all
}

// exited tells a session that its sandbox ended.
func (g *Fleet) exited(session, detail string) {
	if s, err := g.host.Session(session); err == nil {
		s.Exited(detail)
	}
}

// drain ends what runs: sandboxes that end with this process are released, calls
// first; workers that live elsewhere are sent to another host, or to the next
// process of this directory.
func (g *Fleet) drain(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	var ends sync.WaitGroup
	for _, s := range g.host.Sessions() {
		p, known := g.config.Sandbox(s.Record().Profile.Name)
		if known && p.Driver == config.DriverKubernetes {
			continue
		}
		ends.Go(func() {
			polite, cancel := context.WithTimeout(ctx, politeRelease)
			_, err := s.Release(polite, worker.ReasonExplicit)
			cancel()
			if err != nil && ctx.Err() == nil {
				_, _ = s.Release(ctx, worker.ReasonDeadline) // what is left is ended with its driver
			}
		})
	}
	ends.Wait()
	if err := g.host.Drain(ctx); err != nil && !errors.Is(err, teardown.ErrBudget) {
		return err
	}
	return nil
}

// Close ends the gateway and the sandboxes of this machine, in the opposite order
// of its making, each step within its budget.
func (g *Fleet) Close(ctx context.Context) error { return g.down.Run(ctx) }
