package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ossicle/ossicle/internal/logattr"
)

// Hub serves subscriptions/listen, and for legacy sessions resources/subscribe,
// in front of an SDK server. See the package documentation. It is safe for
// concurrent use, and needs nothing while nobody listens.
type Hub struct {
	reg     *Registry
	ownsReg bool
	opts    HubOptions
	lists   [listCount]*topic // nil where not announced
	writers writers
	beats   beats
	cut     atomic.Int64

	mu      sync.Mutex // taken last
	listens map[*listener]struct{}
	open    int // of them, without those that are being told their end
	closed  bool
	tasks   int           // goroutines of the hub
	idle    chan struct{} // closed when the hub is closed and all is over
}

// NewHub returns a hub over the sources of a registry. With a nil registry the
// hub takes every URI that Authorize permits, and the server says by
// [Hub.Updated] what has changed.
func NewHub(reg *Registry, opts *HubOptions) *Hub {
	h := &Hub{
		reg: reg, opts: opts.withDefaults(),
		listens: make(map[*listener]struct{}), idle: make(chan struct{}),
	}
	if reg == nil {
		h.reg, h.ownsReg = NewRegistry(&RegistryOptions{Linger: -1}), true
		h.reg.sources = []Source{openSource{}}
	}
	methods := [listCount]string{notificationToolsListChanged, notificationPromptsListChanged, notificationResourcesListChanged}
	for _, list := range h.opts.Lists {
		h.lists[list] = &topic{method: methods[list]}
	}
	h.writers = writers{hub: h, limit: runtime.GOMAXPROCS(0)}
	h.beats.interval = h.opts.KeepAlive
	return h
}

// Updated says that a resource changed: all who listen to exactly this URI are
// told. It is for servers without a [Source]; sources say it themselves. The
// specification lets an update name a sub-resource of the URI that was asked
// for; whether a change below concerns those who watch a parent only the server
// knows, so it calls Updated for the parent, too. Updated never blocks, and
// calls coalesce: at least one notification follows the last of them.
func (h *Hub) Updated(uri string) { h.reg.announce(uri) }

// ListChanged says that a list of the server changed. It never blocks and calls
// coalesce. A list that [HubOptions] do not name is ignored. Legacy sessions are
// told by the SDK, not by the hub.
func (h *Hub) ListChanged(list List) {
	if list >= 0 && list < listCount && h.lists[list] != nil {
		h.lists[list].announce()
	}
}

// End ends every listen that has the URI politely, for instance because rights
// were withdrawn: the client will listen again and see what it still gets. It
// returns the number of listens. Legacy sessions cannot be told, and are left
// alone.
func (h *Hub) End(uri string) int {
	o := h.reg.observed(uri)
	if o == nil {
		return 0
	}
	n := 0
	for _, to := range o.observers() {
		if l, ok := to.(*listener); ok && l.hub == h && l.id != "" {
			l.end()
			n++
		}
	}
	return n
}

// Stats are counters of a [Hub].
type Stats struct {
	Listens int   // open now, legacy sessions with subscriptions included
	CutOff  int64 // ended because their peers did not read, since the start
}

// Stats returns the counters.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Stats{Listens: h.open, CutOff: h.cut.Load()}
}

// Shutdown takes no more listens, ends all politely, and waits until that is
// over. When ctx ends first the rest is cut off, and ctx's error is returned.
// [http.Server.Shutdown] does not know the connections that the hub has taken
// over: call this one, before or beside it. The registry stays open.
func (h *Hub) Shutdown(ctx context.Context) error {
	for _, l := range h.closeDoor() {
		l.end()
	}
	var err error
	select {
	case <-h.idle:
	case <-ctx.Done():
		left := h.closeDoor()
		for _, l := range left {
			l.leave()
		}
		err = fmt.Errorf("shut down listens: %d cut off: %w", len(left), context.Cause(ctx))
	}
	if h.ownsReg {
		h.reg.Close()
	}
	return err
}

// closeDoor refuses what comes and returns what is there.
func (h *Hub) closeDoor() []*listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	all := make([]*listener, 0, len(h.listens))
	for l := range h.listens {
		all = append(all, l)
	}
	h.checkIdleLocked()
	return all
}

// admit counts a listener in.
func (h *Hub) admit(l *listener) *fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return faultShuttingDown()
	}
	if h.open >= h.opts.MaxListens {
		return faultTooManyListens(h.opts.MaxListens)
	}
	h.open++
	h.listens[l] = struct{}{}
	return nil
}

// vacate gives the place of a listener free, which its client may want as soon as
// it reads of the end.
func (h *Hub) vacate(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.vacateLocked(l)
}

func (h *Hub) vacateLocked(l *listener) {
	if !l.vacated {
		l.vacated = true
		h.open--
	}
}

func (h *Hub) remove(l *listener) {
	h.beats.remove(l)
	h.opts.Logger.Debug("listen ended", idAttr(l.id))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.vacateLocked(l)
	delete(h.listens, l)
	h.checkIdleLocked()
}

func (h *Hub) cutOff(l *listener, err error) {
	h.cut.Add(1)
	h.opts.Logger.Warn("peer cut off", idAttr(l.id), logattr.Err(err))
}

// spawn runs f in a goroutine that Shutdown waits for.
func (h *Hub) spawn(f func()) {
	h.mu.Lock()
	h.tasks++
	h.mu.Unlock()
	go func() {
		f()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.tasks--
		h.checkIdleLocked()
	}()
}

func (h *Hub) checkIdleLocked() {
	if h.closed && h.tasks == 0 && len(h.listens) == 0 && !isClosed(h.idle) {
		close(h.idle)
	}
}

// subscribe makes l an observer of what the filter asks for, and returns what of
// it is honoured and why the rest is not. ctx bounds it together with the open
// timeout. News are pending from here on; nothing is sent before activate.
func (h *Hub) subscribe(ctx context.Context, l *listener, asked Filter) (honoured Filter, refused []refusal) {
	ctx, cancel := context.WithTimeout(ctx, h.opts.OpenTimeout)
	defer cancel()
	l.opening(cancel)
	defer l.opening(nil)
	lists := h.listsOf(&asked, &honoured)
	// Topics point into the slice: it must not grow.
	l.watchers = make([]watcher, 0, len(asked.ResourceSubscriptions)+len(lists))
	for _, t := range lists {
		l.watchers = append(l.watchers, watcher{to: l})
		t.add(&l.watchers[len(l.watchers)-1])
	}
	seen := make(map[string]bool, len(asked.ResourceSubscriptions))
	for _, uri := range asked.ResourceSubscriptions {
		if seen[uri] {
			continue
		}
		seen[uri] = true
		n := len(l.watchers)
		l.watchers = append(l.watchers, watcher{to: l})
		w := &l.watchers[n]
		if err := h.watch(ctx, uri, w); err != nil {
			l.watchers = l.watchers[:n]
			refused = append(refused, refuse(uri, err))
			continue
		}
		// The observation's string is shared by all who watch it.
		honoured.ResourceSubscriptions = append(honoured.ResourceSubscriptions, w.topic.uri)
	}
	return honoured, refused
}

// listsOf returns the lists that are asked for and announced, and notes them as
// honoured.
func (h *Hub) listsOf(asked, honoured *Filter) []*topic {
	var topics []*topic
	for list, t := range h.lists {
		if t != nil && *asked.wants(List(list)) {
			*honoured.wants(List(list)) = true
			topics = append(topics, t)
		}
	}
	return topics
}

// watch makes w a watcher of the URI if the caller may read it and it exists.
func (h *Hub) watch(ctx context.Context, uri string, w *watcher) error {
	if len(uri) > maxURI {
		return fmt.Errorf("uri is longer than %d bytes", maxURI)
	}
	if h.opts.Authorize != nil {
		if err := h.opts.Authorize(ctx, uri); err != nil {
			return err
		}
	}
	return h.reg.subscribe(ctx, uri, w)
}

// refuse says why a URI is not acknowledged, with the code that a read of it
// would be answered with.
func refuse(uri string, err error) refusal {
	r := refusal{URI: uri, Code: codeInvalidParams, Message: truncate(err.Error(), 512)}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrClosed) {
		r.Code = codeInternalError
	}
	return r
}

// openSource owns every URI and observes nothing: [Hub.Updated] does.
type openSource struct{}

func (openSource) Owns(string) bool { return true }

func (openSource) List(context.Context) (Listing, error) { return Listing{}, nil }

func (openSource) Read(_ context.Context, uri string, _ ReadOptions) ([]Contents, error) {
	return nil, &NotFoundError{URI: uri}
}

func (openSource) Watch(context.Context, string, func()) (func(), error) { return func() {}, nil }

// idAttr names a listen in a log line. The id comes from outside.
func idAttr(id string) slog.Attr { return slog.String("listen_id", id) }

// truncate cuts s to about n bytes, at a character.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
