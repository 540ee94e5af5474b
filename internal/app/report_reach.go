package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/shim"
)

const (
	// reachTime bounds a test of a server: connecting, and listing its tools.
	reachTime = 15 * time.Second
	// reachGrace is what a server that is a command has for each step of its end.
	reachGrace = 500 * time.Millisecond
)

// Reasons why a server is not tested.
var (
	ErrNotLive     = errors.New("test server: the session does not run here")
	ErrNoServer    = errors.New("test server: the session has none of that name")
	ErrTesting     = errors.New("test server: another test of this session is under way")
	ErrNotAttached = errors.New("test server: the agent of this session was not started yet, or has these tools in this process")
)

// TestEndpoint asks whether a server of a session can be reached from here: it
// connects as the agent would, with a client of its own, lists the tools within
// 15 s, and ends the client and its process whatever comes (specification A-22).
// Nothing but the name of a server in the session's effective configuration is
// taken. The result, kept in the report too, says nothing about the agent and
// changes no status. A server that cannot be reached is a result; errors are
// ErrNotLive, ErrNoServer, ErrTesting, ErrNotAttached, and that of ctx.
func (a *Agents) TestEndpoint(ctx context.Context, session, server string) (evidence.EndpointTest, error) {
	r := a.reports.find(session)
	if r == nil {
		return evidence.EndpointTest{}, ErrNotLive
	}
	return r.test(ctx, server)
}

func (r *sessionReport) test(ctx context.Context, server string) (result evidence.EndpointTest, err error) {
	i := slices.IndexFunc(r.o.servers, func(s configured) bool { return s.name == server })
	if i < 0 {
		return result, ErrNoServer
	}
	if err := r.startTest(); err != nil {
		return result, err
	}
	defer r.endTest()
	s := &r.o.servers[i]
	spec, done, err := r.reach(s)
	if err != nil {
		return result, err
	}
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.gone, func() { cancel(ErrNotLive) })()
	result = reach(ctx, spec, r.reachTime, r.environ(s), r.all.log)
	if ctx.Err() != nil {
		return evidence.EndpointTest{}, context.Cause(ctx) // whoever asked has gone: nothing is said of the server
	}
	if a := r.current(); a != nil {
		a.take(evidence.Evidence{Server: s.name, Kind: evidence.EndpointTested, OccurredAt: result.TestedAt, Detail: evidence.Detail{
			Succeeded: &result.Succeeded, Reason: result.Reason, Summary: result.Summary, ToolCount: result.ToolCount,
		}})
	}
	return result, nil
}

func (r *sessionReport) startTest() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return ErrNotLive
	case r.testing:
		return ErrTesting
	}
	r.testing = true
	r.ending.Add(1) // close waits
	return nil
}

func (r *sessionReport) endTest() {
	r.mu.Lock()
	r.testing = false
	r.mu.Unlock()
	r.ending.Done()
}

// reach says how we get to a server: past the relay, and to our own endpoint by a
// path that is not the agent's.
func (r *sessionReport) reach(s *configured) (spec mcpclient.Spec, done func(), err error) {
	if s.spec != nil {
		spec = *s.spec
		if spec.Dir == "" && !s.byOssicle() {
			spec.Dir = r.o.dir
		}
		return spec, func() {}, nil
	}
	if s.transport == evidence.InProcess {
		return spec, nil, ErrNotAttached
	}
	if s.box != nil {
		url, done, err := s.box.probe()
		return mcpclient.Spec{Name: s.name, Transport: mcpclient.HTTP, URL: url}, done, err
	}
	url, done, ok := r.o.endpoint.probe(r.o.session)
	if !ok {
		return spec, nil, ErrNotAttached
	}
	return mcpclient.Spec{Name: s.name, Transport: mcpclient.HTTP, URL: url}, done, nil
}

// environ is the environment of a server that whoever connects starts: ours, and
// that of the agent.
func (r *sessionReport) environ(s *configured) []string {
	if s.byOssicle() {
		return nil
	}
	return slices.Concat(os.Environ(), r.o.env)
}

// byOssicle reports whether ossicle connects to the server, and not the agent.
func (s *configured) byOssicle() bool { return s.spec != nil && !s.handed() }

// reach connects to a server, lists its tools, and ends all that it began.
func reach(ctx context.Context, spec mcpclient.Spec, within time.Duration, environ []string, log *slog.Logger) evidence.EndpointTest {
	result := evidence.EndpointTest{TestedAt: time.Now().UTC()}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	spec.Attach = ""
	pool, err := mcpclient.NewPool([]mcpclient.Spec{spec}, &mcpclient.Options{
		ConnectTimeout: within, RequestTimeout: within, RestartBudget: -1, StopGrace: reachGrace, Environ: environ,
	})
	if err == nil {
		defer pool.Close()
		var tools int
		if tools, err = listTools(ctx, pool.Servers()[0]); err == nil {
			result.Succeeded, result.ToolCount = true, &tools
			return result
		}
	}
	if ctx.Err() != nil && !errors.Is(err, context.Canceled) {
		err = errors.Join(context.DeadlineExceeded, err)
	}
	result.Reason = reachReason(err)
	clean := evidence.NewSanitizer(secretsIn(spec)...)
	result.Summary = clean.Summary(reachText(err))
	log.LogAttrs(ctx, slog.LevelDebug, "endpoint tested", logattr.Server(spec.Name), logattr.Reason(string(result.Reason)))
	return result
}

func listTools(ctx context.Context, s *mcpclient.Server) (int, error) {
	tools, err := s.Tools(ctx)
	return len(tools), err
}

// reachReason says why a server could not be reached.
func reachReason(err error) evidence.Reason {
	_, login := errors.AsType[*mcpclient.AuthError](err)
	_, frame := errors.AsType[*mcpclient.FrameError](err)
	_, noise := errors.AsType[*mcpclient.NoiseError](err)
	_, exit := errors.AsType[*exec.ExitError](err)
	_, spawn := errors.AsType[*os.PathError](err)
	switch {
	case login:
		return evidence.ReasonAuthRequired
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return evidence.ReasonCommandNotFound
	case errors.Is(err, context.DeadlineExceeded):
		return evidence.ReasonTimeout
	case frame, noise, mcpclient.Answered(err), strings.Contains(err.Error(), "unsupported content type"):
		return evidence.ReasonProtocolError
	case httpStatus(err):
		return evidence.ReasonHTTPStatus
	case exit:
		return evidence.ReasonExited
	case spawn:
		return evidence.ReasonSpawnFailed
	case errors.Is(err, mcp.ErrConnectionClosed): // the SDK gives up what is no MCP, and does not always say so
		return evidence.ReasonProtocolError
	}
	return shim.Reason(err)
}

// httpStatus reports whether a server answered with an HTTP error, for which the
// SDK has words and no type.
func httpStatus(err error) bool {
	text := err.Error()
	for code := http.StatusBadRequest; code < 600; code++ {
		if word := http.StatusText(code); word != "" && strings.HasSuffix(text, ": "+word) {
			return true
		}
	}
	return false
}

// reachText is the error without what a server wrote to its standard error, or as
// lines that are no messages.
func reachText(err error) string {
	if e, ok := errors.AsType[*mcpclient.ConnectError](err); ok {
		err = fmt.Errorf("connect: %w", e.Err)
	}
	if e, ok := errors.AsType[*mcpclient.LostError](err); ok {
		err = fmt.Errorf("connection lost: %w", e.Err)
	}
	if _, ok := errors.AsType[*mcpclient.NoiseError](err); ok {
		return "what it writes to standard output is no MCP"
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

func secretsIn(s mcpclient.Spec) []string {
	values := slices.Concat(slices.Collect(maps.Values(s.Headers)), slices.Collect(maps.Values(s.Env)), s.Args)
	return append(values, secretURL(s.URL)...)
}
