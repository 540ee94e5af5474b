package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/pageserver"
	"github.com/ossicle/ossicle/internal/ui"
)

// pageRead bounds one look at a store for the page.
const pageRead = 5 * time.Second

// page is the page of a process: its files, its routes, and what its live topics
// are made of. A topic is looked after while somebody looks at it.
type page struct {
	agents *Agents
	api    *sessionAPI
	boxes  *fleet.Fleet // nil: this process has none
	live   *pageserver.Server
	files  *ui.Page
	log    *slog.Logger

	mu    sync.Mutex
	open  map[pageserver.Topic]*openTopic
	ended bool
	work  sync.WaitGroup
}

// pageTopic is a live topic. Everything in it happens in the goroutine of run.
type pageTopic interface {
	run(ctx context.Context)
	// join gives a stream the state, and from then on what changes.
	join(ctx context.Context, to *pageserver.Stream) error
	leave(to *pageserver.Stream)
}

type openTopic struct {
	pageTopic

	users int
	stop  context.CancelFunc
}

// newPage makes the page of what api serves, and of the sandboxes of boxes, which
// may be nil. Recheck asks whether a token still
// stands; nil means that none is revoked. The caller shuts it down.
func newPage(api *sessionAPI, boxes *fleet.Fleet, recheck func(context.Context, *access.Principal) error, log *slog.Logger) (*page, error) {
	files, err := ui.New()
	if err != nil {
		return nil, err
	}
	p := &page{agents: api.agents, api: api, boxes: boxes, files: files, log: log, open: map[pageserver.Topic]*openTopic{}}
	p.live = pageserver.New(p, &pageserver.Options{Recheck: recheck, Logger: log})
	return p, nil
}

// routes are those of the page: its files and its live connection, which know
// themselves whom to let in, and its API.
func (p *page) routes() []httpserver.Route {
	return append(append(p.files.Routes(), p.live.Routes()...), p.apiRoutes()...)
}

// shutdown ends the live connections, and what looks after their topics.
func (p *page) shutdown(ctx context.Context) error {
	err := p.live.Shutdown(ctx)
	p.mu.Lock()
	p.ended = true
	for _, o := range p.open { // there are none, unless somebody has forgotten to leave
		o.stop()
	}
	p.mu.Unlock()
	p.work.Wait()
	return err
}

// errPageEnded is what is told at a shutdown.
var errPageEnded = pageserver.Errorf(pageserver.CodeUnavailable, "the server ends: come again")

// Open implements pageserver.Backend.
func (p *page) Open(ctx context.Context, name pageserver.Topic, after int64, to *pageserver.Stream) (leave func(), err error) {
	if err := p.find(ctx, name); err != nil {
		return nil, err
	}
	if name.Kind == pageserver.Terminal {
		return p.openTerminal(ctx, name, after, to)
	}
	t, err := p.enter(name)
	if err != nil {
		return nil, err
	}
	if err := t.join(ctx, to); err != nil {
		p.exit(name, t)
		return nil, pageError(err)
	}
	return func() {
		t.leave(to)
		p.exit(name, t)
	}, nil
}

// find reports what is not there, or not in this process.
func (p *page) find(ctx context.Context, name pageserver.Topic) error {
	var err error
	switch name.Kind {
	case pageserver.Session:
		_, err = p.api.meta(ctx, name.ID)
	case pageserver.Signals:
		err = p.agents.signals.exists(name.ID)
	case pageserver.Sessions, pageserver.Inbox, pageserver.Sandboxes, pageserver.Terminal:
	}
	return pageError(err)
}

// enter counts somebody in who looks at a topic.
func (p *page) enter(name pageserver.Topic) (*openTopic, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil, errPageEnded
	}
	if o := p.open[name]; o != nil {
		o.users++
		return o, nil
	}
	t, err := p.topic(name)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	o := &openTopic{pageTopic: t, users: 1, stop: stop}
	p.open[name] = o
	p.work.Go(func() {
		defer stop()
		t.run(ctx)
	})
	return o, nil
}

// exit counts somebody out. The last one ends the topic.
func (p *page) exit(name pageserver.Topic, o *openTopic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.users--; o.users > 0 {
		return
	}
	if p.open[name] == o {
		delete(p.open, name)
	}
	o.stop()
}

// topic makes what looks after a topic.
func (p *page) topic(name pageserver.Topic) (pageTopic, error) {
	switch name.Kind {
	case pageserver.Sessions:
		return newSessionsTopic(p), nil
	case pageserver.Session:
		return newSessionTopic(p, name), nil
	case pageserver.Inbox:
		return newInboxTopic(p), nil
	case pageserver.Signals:
		return newSignalsTopic(p, name), nil
	case pageserver.Sandboxes:
		if p.boxes != nil {
			return newSandboxesTopic(p, p.boxes), nil
		}
	case pageserver.Terminal:
	}
	return nil, pageserver.Errorf(pageserver.CodeUnavailable, "this process has no %s", name.Kind)
}

// pageError is an error of the application as the page is told it.
func pageError(err error) error {
	if err == nil || errors.As(err, new(*pageserver.Error)) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	code := pageserver.CodeFailed
	switch statusOf(err) {
	case http.StatusNotFound:
		code = pageserver.CodeNotFound
	case http.StatusBadRequest:
		code = pageserver.CodeBadRequest
	case http.StatusForbidden:
		code = pageserver.CodeForbidden
	case http.StatusConflict:
		code = pageserver.CodeUnavailable
	case http.StatusTooManyRequests:
		code = pageserver.CodeTooMany
	}
	return pageserver.Errorf(code, "%s", err.Error())
}
