package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/worker"
	"github.com/ossicle/ossicle/worker/workertest"
)

// tokens says that the token "t-ID" is for the session ID.
type tokens struct{}

func (tokens) Authenticate(_ context.Context, token string) (string, error) {
	id, ok := strings.CutPrefix(token, "t-")
	if !ok {
		return "", errors.New("not a token")
	}
	return id, nil
}

// auditLog keeps entries.
type auditLog struct {
	mu      sync.Mutex
	entries []worker.AuditEntry
}

func (a *auditLog) Audit(e worker.AuditEntry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.entries = append(a.entries, e)
}

func (a *auditLog) count(event string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.entries {
		if e.Event == event {
			n++
		}
	}
	return n
}

// deleted counts teardowns.
type deleted struct {
	n    atomic.Int64
	fail atomic.Int64 // this many times first
}

func (d *deleted) Delete(context.Context, string) error {
	if d.fail.Add(-1) >= 0 {
		return errors.New("the cluster does not answer")
	}
	d.n.Add(1)
	return nil
}

// rig is a host on a network in memory.
type rig struct {
	net     *workertest.Net
	host    *worker.Host
	audit   *auditLog
	deleted *deleted
	server  *http.Server
	served  chan struct{}
}

func newRig(store worker.Store, change func(*worker.HostOptions)) *rig {
	r := &rig{net: workertest.NewNet(), audit: &auditLog{}, deleted: &deleted{}, served: make(chan struct{})}
	o := worker.HostOptions{Image: "api:1", Audit: r.audit, Sandboxes: r.deleted}
	if change != nil {
		change(&o)
	}
	r.host = worker.NewHost(tokens{}, store, &o)
	r.server = &http.Server{Handler: r.host}
	go func() {
		defer close(r.served)
		_ = r.server.Serve(r.net)
	}()
	return r
}

// close ends everything, which a bubble requires.
func (r *rig) close() {
	r.host.Close()
	_ = r.server.Close()
	<-r.served
	r.net.Reset()
}

// env is what the sandbox of a session gets.
func env(id string) worker.Environment {
	return worker.Environment{SessionID: id, ControlURL: "ws://127.0.0.1/", Token: func() (string, error) { return "t-" + id, nil }}
}

// process is a worker that runs.
type process struct {
	exit worker.Exit
	done chan struct{}
	stop context.CancelFunc
}

func (r *rig) start(id string, server *mcp.Server, change func(*worker.Environment, *worker.Options)) *process {
	e, tr := env(id), r.net.Transport()
	o := worker.Options{Image: "img:2", Transport: tr}
	if change != nil {
		change(&e, &o)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &process{done: make(chan struct{}), stop: stop}
	go func() {
		defer close(p.done)
		p.exit = worker.New(server, e, &o).Run(ctx)
		tr.CloseIdleConnections()
	}()
	return p
}

func (p *process) wait() worker.Exit {
	<-p.done
	p.stop()
	return p.exit
}

// tools is a server with the tools of the profile light, which do what their
// tests need: exec sleeps and echoes, file fails.
type toolbox struct {
	server  *mcp.Server
	started atomic.Int64
	stopped atomic.Int64 // calls whose context ended
	session atomic.Value // the id of the MCP session, a string
}

type execArgs struct {
	Say    string  `json:"say,omitempty"`
	Sleep  float64 `json:"sleep,omitempty"` // seconds
	Steps  int     `json:"steps,omitempty"`
	Sample bool    `json:"sample,omitempty"`
	Size   int     `json:"size,omitempty"` // bytes of text to return
}

func newToolbox() *toolbox {
	b := &toolbox{server: mcp.NewServer(&mcp.Implementation{Name: "inner", Version: "1"}, nil)}
	mcp.AddTool(b.server, &mcp.Tool{Name: "exec"}, func(ctx context.Context, req *mcp.CallToolRequest, a execArgs) (*mcp.CallToolResult, any, error) {
		b.started.Add(1)
		b.session.Store(req.Session.ID())
		for i := range a.Steps {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: float64(i + 1)})
		}
		if a.Sample {
			//nolint:staticcheck // deprecated is what a hostile tool does not care about
			_, err := req.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 1, Messages: []*mcp.SamplingMessage{}})
			return nil, nil, err
		}
		if a.Size > 0 {
			a.Say = strings.Repeat("x", a.Size)
		}
		if a.Sleep > 0 {
			select {
			case <-time.After(time.Duration(a.Sleep * float64(time.Second))):
			case <-ctx.Done():
				b.stopped.Add(1)
				return nil, nil, ctx.Err()
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Say}}, StructuredContent: json.RawMessage(`{"big":9007199254740993}`)}, nil, nil
	})
	mcp.AddTool(b.server, &mcp.Tool{Name: "file"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, errors.New("no such file")
	})
	return b
}

func textOf(res *mcp.CallToolResult) string {
	if len(res.Content) == 1 {
		if c, ok := res.Content[0].(*mcp.TextContent); ok {
			return c.Text
		}
	}
	return ""
}

// switchTransport dials one network, then another.
type switchTransport struct {
	mu sync.Mutex
	to *workertest.Net
}

func (s *switchTransport) set(n *workertest.Net) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = n
}

func (s *switchTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	tr := s.to.Transport()
	s.mu.Unlock()
	return tr.RoundTrip(req)
}
