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

// Open serves workers on a Unix socket of this machine, and on an address
// of their own if the configuration has one. Sandboxes that an earlier process of
// the same directory left are taken up again, or failed if they ended with it.
func Open(ctx context.Context, c *config.Config, o *Options) (_ *Fleet, err error) {
	f := &Fleet{config: c, drivers: map[string]Driver{}, clusters: map[string]*kubernetes.Driver{}, notes: map[string]string{}}
	if o != nil {
		f.o = *o
	}
	f.store, f.audit = &worker.Memory{}, &worker.MemoryAudit{}
	if f.log = f.o.Logger; f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.down.Run(context.WithoutCancel(ctx)))
		}
	}()
	if r := f.o.Records; r != nil {
		f.store, f.audit, f.shared = r.Store, r.Audit, r.Shared
		f.down.Push("records", recordsBudget, func(context.Context) error {
			if r.Close == nil {
				return nil
			}
			return r.Close()
		})
	}
	if err := f.hold(); err != nil {
		return nil, err
	}
	if err := f.openDir(ctx); err != nil {
		return nil, err
	}
	if err := f.openHost(ctx); err != nil {
		return nil, err
	}
	if err := f.serve(ctx); err != nil {
		return nil, err
	}
	if err := f.adopt(ctx); err != nil {
		return nil, err
	}
	f.reap(ctx)
	f.down.Push("sandboxes", drainTime, f.drain)
	return f, nil
}

// hold takes the data directory for this process: two would take each other's
// sandboxes for their own.
func (f *Fleet) hold() error {
	if f.o.Data == "" {
		return nil
	}
	dir := filepath.Join(f.o.Data, keptDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("open gateway: %w", err)
	}
	release, err := filelock.Hold(filepath.Join(dir, "lock"))
	if errors.Is(err, filelock.ErrHeld) {
		return fmt.Errorf("open gateway: another process has the gateway of %s", f.o.Data)
	}
	if err != nil {
		return fmt.Errorf("open gateway: %w", err)
	}
	f.down.Push("lock", time.Second, func(context.Context) error { release(); return nil })
	return nil
}

// openDir makes the directory of this process, below which sandboxes can reach
// their socket, and removes those of earlier processes that were killed.
func (f *Fleet) openDir(ctx context.Context) (err error) {
	note := ""
	if f.o.Data != "" {
		note = filepath.Join(f.o.Data, keptDir, "directory")
		if left, err := os.ReadFile(note); err == nil && abandoned(ctx, strings.TrimSpace(string(left))) { // our data may be a copy of another's
			removeLeft(strings.TrimSpace(string(left)))
		}
	}
	if f.dir, err = makeDir(); err != nil {
		return fmt.Errorf("make directory of sandboxes: %w", err)
	}
	release, err := filelock.HoldDir(f.dir)
	if err != nil {
		return errors.Join(fmt.Errorf("hold directory of sandboxes: %w", err), os.RemoveAll(f.dir))
	}
	f.down.Push("directory", driversBudget, func(context.Context) error {
		defer release()
		return os.RemoveAll(f.dir)
	})
	sweepDirs(ctx, f.dir)
	if note != "" {
		if err := os.WriteFile(note, []byte(f.dir+"\n"), 0o600); err != nil {
			return fmt.Errorf("open gateway: %w", err)
		}
	}
	return nil
}

func (f *Fleet) openHost(ctx context.Context) (err error) {
	c := &f.config.Gateway
	artifacts := f.o.Artifacts
	if artifacts == "" {
		artifacts = filepath.Join(cmp.Or(f.o.Data, f.dir), ArtifactsDir)
	}
	bounds := gateway.DirOptions{
		MaxArtifact: int64(c.Artifacts.Max), SessionQuota: int64(c.Artifacts.Session), SessionFiles: c.Artifacts.Files,
		Keep: c.Artifacts.Keep, Total: int64(c.Artifacts.Total),
	}
	if f.o.Own {
		bounds.Keep, bounds.Total = -1, -1
	}
	f.artifacts, err = gateway.OpenDir(artifacts, &bounds)
	if err != nil {
		return err
	}
	f.down.Push("artifacts", time.Second, func(context.Context) error { return f.artifacts.Close() })
	if f.owner, err = f.ownName(); err != nil {
		return err
	}
	if f.tokens, err = f.openTokens(); err != nil {
		return err
	}
	f.down.Push("keys", time.Second, func(context.Context) error { f.tokens.Close(); return nil })
	f.openTrail(ctx)
	f.host = worker.NewHost(f.tokens, f.store, &worker.HostOptions{
		Logger: f.log, Image: version.Name + " " + version.Number(), Owner: f.owner, Addr: f.config.Gateway.Address, Audit: f.trail, Sandboxes: f, Observe: f.observe,
	})
	f.down.Push("host", hostBudget, func(context.Context) error { f.host.Close(); return nil })
	if f.shared && f.config.Gateway.KeyFile != "" {
		f.calls = gateway.NewCalls(f.host, f.store, f.tokens.Tokens(), &gateway.CallsOptions{Logger: f.log})
		f.down.Push("calls", hostBudget, func(context.Context) error { f.calls.Close(); return nil })
	}
	f.gateway = gateway.New(f.host, f.tokens, f.artifacts, &gateway.Options{Logger: f.log})
	return nil
}

// openTrail writes the audit behind what happens.
func (f *Fleet) openTrail(ctx context.Context) {
	log := f.log
	if f.o.Quiet {
		log = slog.New(slog.DiscardHandler)
	}
	f.trail = worker.NewAuditTrail(f.audit, log)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ran := make(chan error, 1)
	go func() { ran <- f.trail.Run(ctx) }()
	f.down.Push("audit", trailBudget, func(context.Context) error {
		stop()
		return <-ran
	})
}

// ownName is the name of this host among those of its store: that of its data
// directory, so that the next process takes up what this one leaves.
func (f *Fleet) ownName() (string, error) {
	fresh := "gw_" + strings.ToLower(rand.Text())
	if f.o.Data == "" {
		return fresh, nil
	}
	path := filepath.Join(f.o.Data, keptDir, "owner")
	text, err := os.ReadFile(path)
	if name := strings.TrimSpace(string(text)); err == nil && validID.MatchString(name) {
		return name, nil
	}
	if err := os.WriteFile(path, []byte(fresh+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("name the gateway: %w", err)
	}
	return fresh, nil
}

func (f *Fleet) openTokens() (*gateway.Keyring, error) {
	c := &f.config.Gateway
	path, shared := c.KeyFile, c.KeyFile != ""
	if !shared && f.o.Data != "" {
		path = filepath.Join(f.o.Data, keptDir, "keys.json")
	}
	life := time.Duration(0)
	for _, name := range f.config.SandboxNames() {
		s, _ := f.config.Sandbox(name)
		life = max(life, s.TokenLife())
	}
	if f.o.Data == "" { // no other process, so nobody's tokens but ours
		path, shared = "", false
	}
	return gateway.OpenKeyring(path, &gateway.KeyringOptions{Shared: shared, Age: c.Rotate, Life: life, Logger: f.log})
}

// adopt takes up what an earlier process left. What ran on this machine ended with
// it, and is failed at once; the others have what is left of their windows.
func (f *Fleet) adopt(ctx context.Context) error {
	if err := f.host.Restore(ctx); err != nil {
		return err
	}
	for _, s := range f.host.Sessions() {
		p, known := f.config.Sandbox(s.Record().Profile.Name)
		if known && p.Driver != config.DriverKubernetes {
			s.Exited("its sandbox ended with the process that had made it")
		} else if known {
			if _, err := f.driver(ctx, &p); err != nil { // nobody hears of their ends, but deadlines do end them
				f.log.LogAttrs(ctx, slog.LevelWarn, "sandboxes of a cluster are not watched", logattr.Session(s.ID()), logattr.Err(err))
			}
		}
	}
	return nil
}

// observe passes on what there is to count, and wakes whoever looks.
func (f *Fleet) observe(o worker.Observation) {
	if f.o.Observe != nil {
		f.o.Observe(o)
	}
	f.changed.Ring("")
}

// Listen calls changed whenever sandboxes are other than they were, until stop is
// called; changed must not block, nor ask the fleet anything: who listens looks at
// [Fleet.List] afterwards.
func (f *Fleet) Listen(changed func()) (stop func()) {
	return f.changed.Listen(func(string) { changed() })
}

// Profiles are the kinds of sandboxes that there can be, by name.
func (f *Fleet) Profiles() []config.Sandbox {
	var all []config.Sandbox
	for _, name := range f.config.SandboxNames() {
		if p, known := f.config.Sandbox(name); known {
			all = append(all, p)
		}
	}
	return all
}

// exited tells a session that its sandbox ended.
func (f *Fleet) exited(session, detail string) {
	if s, err := f.host.Session(session); err == nil {
		s.Exited(detail)
	}
}

// drain ends what runs: sandboxes that end with this process are released, calls
// first; workers that live elsewhere are sent to another host, or to the next
// process of this directory.
func (f *Fleet) drain(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	var ends sync.WaitGroup
	for _, s := range f.host.Sessions() {
		p, known := f.config.Sandbox(s.Record().Profile.Name)
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
	if err := f.host.Drain(ctx); err != nil && !errors.Is(err, teardown.ErrBudget) {
		return err
	}
	return nil
}

// Close ends the gateway and the sandboxes of this machine, in the opposite order
// of its making, each step within its budget.
func (f *Fleet) Close(ctx context.Context) error { return f.down.Run(ctx) }
