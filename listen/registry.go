package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// DefaultLinger is how long a [Registry] keeps observing a URI after its last
// watcher has gone, so that a client which reconnects finds the observation,
// and an event log its ring, still running.
const DefaultLinger = 60 * time.Second

// ErrClosed is returned by a [Registry] after Close.
var ErrClosed = errors.New("listen: registry is closed")

// errAbandoned marks an observation whose start ended with the context of the
// caller who started it: for others who wait, that says nothing.
var errAbandoned = errors.New("listen: start of the observation was abandoned")

// RegistryOptions tune a [Registry]. The zero value, and nil, mean the
// defaults.
type RegistryOptions struct {
	// Linger is how long an observation outlives its last watcher. Zero means
	// [DefaultLinger], a negative value not at all.
	Linger time.Duration
	// Logger gets one line at debug level for each start and stop of an
	// observation. Nil discards.
	Logger *slog.Logger
}

// Registry mounts sources and shares their observations: however many watch a
// URI, its source observes it once, from the first watcher until a linger after
// the last. A Registry is itself a [Source]. It is safe for concurrent use.
type Registry struct {
	linger time.Duration
	log    *slog.Logger

	mu           sync.Mutex // held before topic.mu, never while a source is called
	sources      []Source
	observations map[string]*observation
	closed       bool
	stopping     sync.WaitGroup // stops that the linger began
}

var _ Source = (*Registry)(nil)

// observation is one URI that its source observes, or is about to. All fields
// but the topic are guarded by Registry.mu; err and stop are also readable,
// unguarded, after started is closed.
type observation struct {
	topic
	holders int           // watchers, and callers who wait for the start
	claims  int           // counts claims: a linger that began before the last one is void
	started chan struct{} // closed when the start has succeeded or failed
	err     error
	stop    func()
	linger  *time.Timer
}

// NewRegistry returns a registry without sources.
func NewRegistry(opts *RegistryOptions) *Registry {
	if opts == nil {
		opts = &RegistryOptions{}
	}
	r := &Registry{linger: opts.Linger, log: opts.Logger, observations: make(map[string]*observation)}
	if r.linger == 0 {
		r.linger = DefaultLinger
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r
}

// Mount adds a source behind those already mounted. Where two own the same URI
// it belongs to the one mounted first. Mount fails for a nil source and after
// Close.
func (r *Registry) Mount(s Source) error {
	if s == nil {
		return errors.New("mount source: source is nil")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("mount source: %w", ErrClosed)
	}
	// A fresh slice: Owner and List walk the old one without the lock.
	r.sources = append(slices.Clip(r.sources), s)
	return nil
}

func (r *Registry) mounted() []Source {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sources
}

// Owner returns the source that the URI belongs to.
func (r *Registry) Owner(uri string) (Source, bool) {
	for _, s := range r.mounted() {
		if s.Owns(uri) {
			return s, true
		}
	}
	return nil, false
}

// Owns reports whether a mounted source owns the URI.
func (r *Registry) Owns(uri string) bool {
	_, ok := r.Owner(uri)
	return ok
}

// List returns what the sources offer, in the order of mounting; a URI or
// template that an earlier source lists is left out of a later one. A source
// that fails does not hide the others: their listing is returned together with
// the joined errors.
func (r *Registry) List(ctx context.Context) (Listing, error) {
	var all Listing
	var errs []error
	resources, templates := map[string]bool{}, map[string]bool{}
	for _, s := range r.mounted() {
		part, err := s.List(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("list resources: %w", err))
			continue
		}
		for _, res := range part.Resources {
			if !resources[res.URI] {
				resources[res.URI] = true
				all.Resources = append(all.Resources, res)
			}
		}
		for _, t := range part.Templates {
			if !templates[t.URITemplate] {
				templates[t.URITemplate] = true
				all.Templates = append(all.Templates, t)
			}
		}
	}
	return all, errors.Join(errs...)
}

// Read reads the URI from its owner. Errors: [*NotFoundError] also where no
// source owns it, otherwise those of the source.
func (r *Registry) Read(ctx context.Context, uri string, opts ReadOptions) ([]Contents, error) {
	s, ok := r.Owner(uri)
	if !ok {
		return nil, &NotFoundError{URI: uri}
	}
	return s.Read(ctx, uri, opts)
}

// Watch calls changed after each change of the URI until stop is called. Any
// number may watch one URI; its source sees one observation. ctx bounds the
// start only. changed must not block, and must not call the registry or its own
// stop; stop may be called more than once. Errors: [*NotFoundError] also where
// no source owns the URI, [ErrNotWatchable], [ErrClosed], ctx's error,
// otherwise those of the source.
func (r *Registry) Watch(ctx context.Context, uri string, changed func()) (stop func(), err error) {
	w := &watcher{to: observerFunc(changed)}
	if err := r.subscribe(ctx, uri, w); err != nil {
		return nil, err
	}
	return sync.OnceFunc(w.stop), nil
}

// observerFunc is an observer of one topic.
type observerFunc func()

func (f observerFunc) observed(*watcher) { f() }

// Close stops all observations, the lingering ones too, and waits for that. Who
// watches hears nothing more. Read and List go on to work.
func (r *Registry) Close() {
	r.mu.Lock()
	r.closed = true
	var running []*observation
	for uri, o := range r.observations {
		if isClosed(o.started) { // otherwise start sees closed, and stops it
			running = append(running, o)
			delete(r.observations, uri)
		}
		if o.linger != nil {
			o.linger.Stop()
		}
	}
	r.mu.Unlock()
	for _, o := range running {
		r.stopObserving(o)
	}
	r.stopping.Wait()
}

// subscribe makes w a watcher of the URI, whose source it starts if need be.
func (r *Registry) subscribe(ctx context.Context, uri string, w *watcher) error {
	for {
		o, first, err := r.claim(uri)
		if err != nil {
			return err
		}
		if first {
			r.start(ctx, o)
		}
		select {
		case <-o.started:
		case <-ctx.Done():
			r.unclaim(o)
			return ctx.Err()
		}
		if o.err == nil {
			o.add(w)
			return nil
		}
		r.unclaim(o)
		if !errors.Is(o.err, errAbandoned) || ctx.Err() != nil {
			return o.err
		}
	}
}

// claim returns the observation of the URI and counts the caller among its
// holders. The first one has to start it.
func (r *Registry) claim(uri string) (o *observation, first bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, false, fmt.Errorf("watch %q: %w", uri, ErrClosed)
	}
	o, ok := r.observations[uri]
	if !ok {
		o = &observation{started: make(chan struct{})}
		o.method, o.uri = notificationResourceUpdated, uri
		o.release = func() { r.unclaim(o) }
		r.observations[uri] = o
	}
	if o.linger != nil {
		o.linger.Stop()
		o.linger = nil
	}
	o.holders++
	o.claims++
	return o, !ok, nil
}

// unclaim lets go of the observation. The last one begins its linger.
func (r *Registry) unclaim(o *observation) {
	r.mu.Lock()
	o.holders--
	if o.holders > 0 || r.observations[o.uri] != o || !isClosed(o.started) {
		r.mu.Unlock()
		return
	}
	if r.linger > 0 && !r.closed {
		claims := o.claims
		o.linger = time.AfterFunc(r.linger, func() { r.expire(o, claims) })
		r.mu.Unlock()
		return
	}
	delete(r.observations, o.uri)
	r.mu.Unlock()
	r.stopObserving(o)
}

// expire ends an observation whose linger is over, unless it was claimed
// meanwhile.
func (r *Registry) expire(o *observation, claims int) {
	r.mu.Lock()
	if r.closed || o.claims != claims || r.observations[o.uri] != o {
		r.mu.Unlock()
		return
	}
	delete(r.observations, o.uri)
	r.stopping.Add(1)
	r.mu.Unlock()
	defer r.stopping.Done()
	r.stopObserving(o)
}

func (r *Registry) stopObserving(o *observation) {
	o.stop()
	r.log.Debug("observation stopped", logattr.URI(o.uri))
}

// start begins the observation. ctx bounds it while it starts; afterwards the
// observation lives until it is stopped, whoever started it.
func (r *Registry) start(ctx context.Context, o *observation) {
	stop, err := r.startSource(ctx, o)
	r.mu.Lock()
	if err == nil && r.closed {
		err = fmt.Errorf("watch %q: %w", o.uri, ErrClosed)
	}
	if o.err = err; err != nil {
		delete(r.observations, o.uri)
	} else {
		o.stop = stop
	}
	close(o.started)
	r.mu.Unlock()
	if err == nil {
		r.log.DebugContext(ctx, "observation started", logattr.URI(o.uri))
	} else if stop != nil {
		stop()
	}
}

func (r *Registry) startSource(ctx context.Context, o *observation) (stop func(), err error) {
	s, ok := r.Owner(o.uri)
	if !ok {
		return nil, &NotFoundError{URI: o.uri}
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, end)
	sourceStop, err := s.Watch(life, o.uri, o.announce)
	inTime := release()
	if err == nil {
		stop = func() {
			if sourceStop != nil {
				sourceStop()
			}
			end()
		}
	}
	switch {
	case !inTime:
		return stop, fmt.Errorf("%w: %w", errAbandoned, ctx.Err())
	case err != nil:
		end()
		return nil, err
	}
	return stop, nil
}

// announce tells the watchers of a URI that it changed, as if its source had.
func (r *Registry) announce(uri string) {
	if o := r.observed(uri); o != nil {
		o.announce()
	}
}

// observed returns the observation of the URI, or nil.
func (r *Registry) observed(uri string) *observation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.observations[uri]
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
