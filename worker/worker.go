package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/logattr"
)

// Defaults of Options.
const (
	DefaultWorkspace = "/workspace"
	// endTime bounds the wait for goroutines when a worker ends; a tool that ignores
	// its context is left to the end of the process.
	endTime = 5 * time.Second
)

// Executors are what the tools of a worker run on. Each method may be nil.
type Executors struct {
	// Prepare builds the executors and checks the workspace. Ready is said only
	// after it returned. Its error ends the worker with 78.
	Prepare func(ctx context.Context) error
	// Pulse proves that a call could run now, by the way that a call goes, and
	// measures the workspace, in bytes. A heartbeat leaves only after it returned:
	// executors that hang make the worker fall silent, and the host ends it.
	Pulse func(ctx context.Context) (workspaceBytes int64, err error)
	// Flush stops background work and uploads outputs, within the time of ctx.
	Flush func(ctx context.Context) (Report, error)
}

// Options configure a [Worker]. The zero value is usable.
type Options struct {
	Logger *slog.Logger // nil discards
	Image  string       // names this program in initialize, for instance an image tag
	// Workspace is the directory that ready names.
	Workspace string
	Executors Executors
	// Transport dials; nil is a transport of our own with the proxy of the
	// environment.
	Transport http.RoundTripper
	// TerminationGrace is the time between SIGTERM and SIGKILL; zero is unknown.
	TerminationGrace time.Duration
	// MCPVersions are the versions of MCP that the server speaks here, newest
	// first; nil is MCPVersion.
	MCPVersions []string
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	out.Image = cmp.Or(out.Image, "unknown")
	out.Workspace = cmp.Or(out.Workspace, DefaultWorkspace)
	if out.MCPVersions == nil {
		out.MCPVersions = []string{MCPVersion}
	}
	return out
}

// Exit is the end of a worker process.
type Exit struct {
	Code   ExitCode
	Reason string // with both versions, if a version was refused
}

// Worker is the process in the sandbox: it serves the tools of an MCP server
// over the channel until it is released or must give up.
//
// One goroutine, that of Run, decides; each connection has a reader, and a
// writer while there is something to write.
type Worker struct {
	server *mcp.Server
	env    Environment
	o      Options

	events chan any
	over   chan struct{} // closed when Run decides nothing any more
	work   sync.WaitGroup
	dialer *dialer
	m      *workerMachine
	desk   *desk
	link   *workerLink // the connection of the machine
	last   channelID
	timers map[timerID]*time.Timer
	nextID int64
	beats  map[int64]int64 // request id → heartbeat
	probe  bool            // a heartbeat is being proved
	tools  []string
	booted time.Duration
	begun  time.Time
	exit   *Exit
	cancel context.CancelFunc
}

// New returns a worker that serves server. The server must have its tools; those
// outside env.Tools are the caller's to leave out.
func New(server *mcp.Server, env Environment, o *Options) *Worker {
	return &Worker{
		server: server, env: env, o: o.orDefaults(),
		events: make(chan any, 64), over: make(chan struct{}),
		timers: map[timerID]*time.Timer{}, beats: map[int64]int64{},
	}
}

// Events of the driver, beside those of the machine.
type (
	linkOpened struct{ ws *websocket.Conn }
	linkFrame  struct {
		ch   channelID
		data []byte
		text bool
	}
	linkEnded struct {
		ch  channelID
		end ended
	}
	portMessage struct{ m jsonrpc.Message }
	pulsed      struct {
		ch    channelID
		seq   int64
		bytes int64
		err   error
	}
)

// workerLink is a connection of the worker.
type workerLink struct {
	*link
	ch     channelID
	broken int
}

// Run serves until the worker ends; ctx ends it as SIGTERM does. It is called
// once. The exit code is for the process; Run itself exits nothing.
func (w *Worker) Run(ctx context.Context) Exit {
	d, done, err := newDialer(w.env.ControlURL, w.env.Token, w.o.Transport)
	if err != nil {
		return Exit{ExitConfig, err.Error()}
	}
	defer done()
	w.dialer = d
	w.begun = time.Now()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx)) // calls end by decision, not with ctx
	w.cancel = cancel
	defer cancel()
	if err := w.connect(work); err != nil {
		return Exit{ExitConfig, err.Error()}
	}
	w.work.Go(func() { w.prepare(work) })
	var acts []workerAction
	w.m, acts = newWorkerMachine(workerSetup{
		sessionID: w.env.SessionID, instanceID: rand.Text(), mcp: w.o.MCPVersions,
		budgets: w.env.Budgets, termination: w.o.TerminationGrace, chance: mathrand.Float64,
	}, w.begun)
	w.execute(work, acts)
	stop := ctx.Done()
	for w.exit == nil {
		select {
		case ev := <-w.events:
			w.handle(work, ev)
		case <-stop:
			stop = nil
			w.step(work, workerSignalled{})
		}
	}
	w.end()
	return *w.exit
}

// end closes what is open and waits for it, within bounds.
func (w *Worker) end() {
	if w.link != nil {
		w.link.close(closeGoingAway, w.exit.Reason)
	}
	for id, t := range w.timers {
		t.Stop()
		delete(w.timers, id)
	}
	w.cancel()
	_ = w.desk.port.Close()
	close(w.over)
	finished := make(chan struct{})
	go func() {
		w.work.Wait()
		close(finished)
	}()
	limit := time.NewTimer(endTime)
	defer limit.Stop()
	select {
	case <-finished:
	case <-limit.C:
		w.o.Logger.WarnContext(context.Background(), "the worker ends although something of it still runs", logattr.Session(w.env.SessionID))
	}
}

// post hands an event to Run.
func (w *Worker) post(ev any) {
	select {
	case w.events <- ev:
	case <-w.over:
	}
}

// connect starts the MCP server's one session. Its handshake never leaves the
// process: the one on the wire is the channel's.
func (w *Worker) connect(ctx context.Context) error {
	p := newPort(w.env.SessionID, func(m jsonrpc.Message) { w.post(portMessage{m}) })
	w.desk = newDesk(p)
	if _, err := w.server.Connect(ctx, p, nil); err != nil {
		return fmt.Errorf("start MCP server: %w", err)
	}
	w.desk.send(methodInitialize, jsontext.Value(`{"protocolVersion":"`+MCPVersion+`","capabilities":{},"clientInfo":{"name":"`+HostName+`","version":""}}`))
	w.desk.notify(methodInitialized, jsontext.Value("{}"))
	return nil
}

// prepare builds the executors and learns the names of the tools, beside the
// dialing.
func (w *Worker) prepare(ctx context.Context) {
	var err error
	if f := w.o.Executors.Prepare; f != nil {
		err = f(ctx)
	}
	w.post(workerPrepared{err})
}

// step gives the machine an event and does what it decides.
func (w *Worker) step(ctx context.Context, ev workerEvent) {
	w.execute(ctx, w.m.step(time.Now(), ev))
}

func (w *Worker) handle(ctx context.Context, ev any) {
	switch e := ev.(type) {
	case linkOpened:
		w.opened(ctx, e.ws)
	case linkFrame:
		if w.link != nil && e.ch == w.link.ch {
			w.frame(ctx, e)
		}
	case linkEnded:
		if e.end.tooBig {
			w.step(ctx, workerBadFrames{e.ch})
		}
		if w.link != nil && w.link.ch == e.ch {
			w.link = nil
		}
		w.step(ctx, workerClosed{e.ch, e.end.code, e.end.reason})
	case portMessage:
		w.served(ctx, e.m)
	case pulsed:
		w.pulsed(ctx, e)
	case workerPrepared:
		w.prepared(ctx, e)
	case workerEvent:
		w.step(ctx, e)
	}
}

// prepared asks the server for its tools before ready may be said, so that
// ready names them.
func (w *Worker) prepared(ctx context.Context, e workerPrepared) {
	w.booted = time.Since(w.begun)
	if e.failed != nil {
		w.step(ctx, e)
		return
	}
	r := w.desk.send(methodToolsList, jsontext.Value("{}"))
	if r == nil {
		w.step(ctx, workerPrepared{fmt.Errorf("ask for the tools: %w", ErrBusy)})
		return
	}
	r.probe = func(bool) {
		var page struct {
			Tools []struct {
				Name string `json:"name"`
			} `json:"tools"`
		}
		f, _ := parseFrame(r.answer(intID(0)))
		if err := json.Unmarshal(f.result, &page); err != nil || f.kind != kindResult {
			w.step(ctx, workerPrepared{fmt.Errorf("ask for the tools: %w", errMissing)})
			return
		}
		w.tools = []string{}
		for _, t := range page.Tools {
			w.tools = append(w.tools, t.Name)
		}
		slices.Sort(w.tools)
		w.step(ctx, e)
	}
}

// opened reads a new connection.
func (w *Worker) opened(ctx context.Context, ws *websocket.Conn) {
	w.last++
	l, read := openLink(ws, &w.work)
	wl := &workerLink{link: l, ch: w.last}
	old := w.link
	w.link = wl
	clear(w.beats)
	w.work.Go(func() {
		end := l.read(read, func(data []byte, text bool) { w.post(linkFrame{wl.ch, data, text}) })
		w.post(linkEnded{wl.ch, end})
	})
	w.step(ctx, workerDialed{wl.ch})
	if old != nil && w.link == wl { // never two of ours
		old.close(closeGoingAway, "a newer connection of this process serves")
	}
}
