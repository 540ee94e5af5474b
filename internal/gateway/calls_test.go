package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/gateway"
	"github.com/ossicle/ossicle/worker"
)

// fleet is some gateways on one store behind one address.
type fleet struct {
	store  *worker.Memory
	tokens *gateway.Tokens
	front  *httptest.Server
	to     atomic.Pointer[member] // which one the address leads to
	calls  *gateway.Calls         // of a program that is no gateway
}

// member is a gateway.
type member struct {
	host   *worker.Host
	calls  *gateway.Calls
	dir    *gateway.Dir
	mux    *http.ServeMux
	server *httptest.Server
	stop   func()
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{store: &worker.Memory{}}
	f.tokens, _ = newTokens(t)
	f.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.to.Load().mux.ServeHTTP(w, r) }))
	t.Cleanup(f.front.Close)
	f.calls = gateway.NewCalls(nil, f.store, f.tokens, nil)
	t.Cleanup(f.calls.Close)
	return f
}

// join adds a gateway, to which the address leads from now on.
func (f *fleet) join(t *testing.T) *member {
	t.Helper()
	m := &member{mux: http.NewServeMux()}
	m.server = httptest.NewServer(m.mux)
	m.host = worker.NewHost(f.tokens, f.store, &worker.HostOptions{Addr: m.server.URL, Lease: 2 * time.Second})
	m.calls = gateway.NewCalls(m.host, f.store, f.tokens, nil)
	var err error
	m.dir, err = gateway.OpenDir(t.TempDir(), nil)
	must(t, err)
	gateway.New(m.host, f.tokens, m.dir, nil).Mount(m.mux)
	m.calls.Mount(m.mux)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = m.host.Run(ctx) })
	m.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		m.host.Close()
		m.calls.Close()
		m.server.Close()
		_ = m.dir.Close()
	})
	t.Cleanup(m.stop)
	f.to.Store(m)
	return m
}

// bench is a worker whose one tool says what it is told after a while.
type bench struct {
	runs, cancelled atomic.Int64
	exit            chan worker.Exit
}

func (f *fleet) worker(t *testing.T, at *member, id string) *bench {
	t.Helper()
	p := worker.Light()
	p.Tools = []string{"exec"}
	p.Budgets.HeartbeatInterval, p.Budgets.HeartbeatGrace = 300*time.Millisecond, 3*time.Second
	s, err := at.host.Create(t.Context(), id, p)
	must(t, err)
	token, err := f.tokens.Issue(id, time.Hour)
	must(t, err)
	b := &bench{exit: make(chan worker.Exit, 1)}
	server := mcp.NewServer(&mcp.Implementation{Name: "inner", Version: "1"}, nil)
	type say struct {
		Text  string  `json:"text"`
		Sleep float64 `json:"sleep,omitempty"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "exec"}, func(ctx context.Context, _ *mcp.CallToolRequest, a say) (*mcp.CallToolResult, any, error) {
		b.runs.Add(1)
		select {
		case <-time.After(time.Duration(a.Sleep * float64(time.Second))):
		case <-ctx.Done():
			b.cancelled.Add(1)
			return nil, nil, ctx.Err()
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Text}}, StructuredContent: json.RawMessage(`{"n":9007199254740993}`)}, nil, nil
	})
	env := worker.Environment{SessionID: id, ControlURL: strings.Replace(f.front.URL, "http", "ws", 1) + gateway.WorkerPath, Token: func() (string, error) { return token, nil }, Budgets: p.Budgets}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.exit <- worker.New(server, env, nil).Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-done })
	wait, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must(t, s.Running(wait))
	return b
}

func say(text string, sleep float64) jsontext.Value {
	return jsontext.Value(fmt.Sprintf(`{"text":%q,"sleep":%g}`, text, sleep))
}

func said(t *testing.T, raw jsontext.Value, err error, want string) {
	t.Helper()
	if err != nil || !strings.Contains(string(raw), fmt.Sprintf("%q", want)) || !strings.Contains(string(raw), "9007199254740993") {
		t.Errorf("%s, %v; want %s", raw, err, want)
	}
}

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// AMB-21: a session is used from wherever the store is, with the results and the
// errors that its own host would give.
func TestCallsReachOtherGateways(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.join(t)
	f.worker(t, a, "s/1 ?")
	b := f.join(t)
	for name, calls := range map[string]*gateway.Calls{"its host": a.calls, "another": b.calls, "no gateway": f.calls} {
		raw, err := calls.CallRaw(patient(t), "s/1 ?", "exec", say(name, 0), nil)
		said(t, raw, err, name)
		if _, err := calls.CallRaw(patient(t), "s/1 ?", "file", nil, nil); !errors.Is(err, worker.ErrUnknownTool) {
			t.Errorf("%s: an unknown tool: %v", name, err)
		}
		if _, err := calls.CallRaw(patient(t), "s2", "exec", nil, nil); !errors.Is(err, worker.ErrUnknownSession) {
			t.Errorf("%s: an unknown session: %v", name, err)
		}
		var remote *worker.RemoteError
		if _, err := calls.CallRaw(patient(t), "s/1 ?", "exec", say("x", 0), &worker.CallOptions{ID: "of another"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := calls.CallRaw(patient(t), "s/1 ?", "exec", say("y", 0), &worker.CallOptions{ID: "of another"}); !errors.As(err, &remote) || remote.Code != -32602 {
			t.Errorf("%s: the id of another call: %v", name, err)
		}
		if rec, err := calls.Record(patient(t), "s/1 ?"); err != nil || rec.State != worker.StateRunning || rec.InstanceID == "" {
			t.Errorf("%s: %+v, %v", name, rec, err)
		}
	}
	rec, err := b.calls.Release(patient(t), "s/1 ?", worker.ReasonExplicit)
	if err != nil || rec.State != worker.StateReleased || rec.Release != worker.ReasonExplicit {
		t.Errorf("released: %+v, %v", rec, err)
	}
	if rec, err = f.calls.Release(patient(t), "s/1 ?", worker.ReasonExplicit); err != nil || rec.State != worker.StateReleased {
		t.Errorf("released again: %+v, %v", rec, err)
	}
	if _, err := b.calls.CallRaw(patient(t), "s/1 ?", "exec", nil, nil); !errors.Is(err, worker.ErrOver) {
		t.Errorf("a call after the end: %v", err)
	}
}

// RC-6, AMB-40: calls that run while their gateway drains, or ends without doing
// so, end at the next one with the result of their one run.
func TestCallsFollowTheSession(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*testing.T, *member){
		"drains": func(t *testing.T, m *member) {
			t.Helper()
			must(t, m.host.Drain(patient(t)))
			m.stop()
		},
		"ends": func(_ *testing.T, m *member) { m.server.CloseClientConnections(); m.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			a := f.join(t)
			w := f.worker(t, a, "s1")
			b := f.join(t)
			var calling sync.WaitGroup
			for i := range 4 {
				calls := []*gateway.Calls{a.calls, b.calls, f.calls, f.calls}[i]
				calling.Go(func() {
					raw, err := calls.CallRaw(patient(t), "s1", "exec", say(fmt.Sprint("call", i), 2), nil)
					said(t, raw, err, fmt.Sprint("call", i))
				})
			}
			for w.runs.Load() < 4 {
				time.Sleep(time.Millisecond) // they are on their way; nothing tells
			}
			leave(t, a)
			raw, err := f.calls.CallRaw(patient(t), "s1", "exec", say("later", 0), nil)
			said(t, raw, err, "later")
			calling.Wait()
			if w.runs.Load() != 5 || w.cancelled.Load() != 0 {
				t.Errorf("%d runs, %d cancelled", w.runs.Load(), w.cancelled.Load())
			}
			if rec, err := f.calls.Record(patient(t), "s1"); err != nil || rec.State != worker.StateRunning || rec.Attempt == 0 {
				t.Errorf("%+v, %v", rec, err)
			}
		})
	}
}

// A connection between gateways that breaks is no word of the caller: the call goes
// on and the repetition joins it. A caller that gives up is one: the tool is told.
func TestCallsOutliveConnections(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.join(t)
	w := f.worker(t, a, "s1")
	done := make(chan error, 1)
	go func() {
		raw, err := f.calls.CallRaw(patient(t), "s1", "exec", say("kept", 1), nil)
		if err == nil && !strings.Contains(string(raw), "kept") {
			err = errors.New(string(raw))
		}
		done <- err
	}()
	for w.runs.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	f.front.CloseClientConnections() // the worker's as well
	a.server.CloseClientConnections()
	must(t, <-done)
	if w.runs.Load() != 1 || w.cancelled.Load() != 0 {
		t.Errorf("%d runs, %d cancelled", w.runs.Load(), w.cancelled.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for w.runs.Load() == 1 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := f.calls.CallRaw(ctx, "s1", "exec", say("x", 60), nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for deadline := time.Now().Add(10 * time.Second); w.cancelled.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the tool was not told")
		}
	}
}

// AMB-39, AMB-21: what a sandbox uploads may come to a gateway that does not have
// its connection; of a session that is over none takes anything.
func TestUploadToOtherGateway(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.join(t)
	f.worker(t, a, "s1")
	b := f.join(t)
	token, err := f.tokens.Issue("s1", time.Hour)
	must(t, err)
	put := func(content string, want int) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, b.server.URL+"/v1/sessions/s1/artifacts/"+sumOf(content), strings.NewReader(content))
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := b.server.Client().Do(req)
		must(t, err)
		must(t, resp.Body.Close())
		if resp.StatusCode != want {
			t.Errorf("upload of %q: HTTP %d, want %d", content, resp.StatusCode, want)
		}
	}
	put("hello", http.StatusCreated)
	if _, err := f.calls.Release(patient(t), "s1", worker.ReasonExplicit); err != nil {
		t.Error(err)
	}
	put("late", http.StatusForbidden)
}

// A call whose host is gone is not repeated to a worker that would run it again.
func TestCallsOfOldWorkersAreNotRepeated(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	rec := worker.Record{ID: "s1", Profile: worker.Light(), State: worker.StateRunning, EverRan: true, Owner: "old", Versions: worker.Versions{Effective: "1.0.0"}}
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	must(t, f.store.Create(t.Context(), rec))
	_, err := f.store.Announce(t.Context(), worker.HostRecord{Owner: "old", Addr: server.URL}, time.Hour)
	must(t, err)
	if _, err := f.calls.CallRaw(patient(t), "s1", "exec", nil, nil); !errors.Is(err, worker.ErrUnknownOutcome) || asked.Load() != 1 {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
	rec.Versions.Effective = "1.1.0" // and to one that joins, until the caller gives up
	must(t, f.store.Save(t.Context(), rec, 0))
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	go func() {
		for asked.Load() < 3 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := f.calls.CallRaw(ctx, "s1", "exec", nil, nil); !errors.Is(err, context.Canceled) || asked.Load() < 3 {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
}

// CON-13: a sandbox is no gateway, and a gateway no sandbox.
func TestPeersAreToldByTheirTokens(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	a := f.join(t)
	f.worker(t, a, "s1")
	issued, err := f.tokens.Issue("s1", time.Hour)
	must(t, err)
	for name, header := range map[string]string{"none": "", "a worker's": "Bearer " + issued, "words": "Bearer x"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.server.URL+"/v1/peers/sessions/s1/call", strings.NewReader(`{"id":"i","tool":"exec","arguments":{"text":"x"}}`))
		must(t, err)
		req.Header.Set("Authorization", header)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		must(t, resp.Body.Close())
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("with the token %s: HTTP %d", name, resp.StatusCode)
		}
	}
	var token string
	spy := gateway.NewCalls(nil, f.store, f.tokens, &gateway.CallsOptions{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		token = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		return nil, errors.New("no")
	})})
	defer spy.Close()
	_, _ = spy.Record(t.Context(), "s1")
	if id, err := f.tokens.Authenticate(t.Context(), token); err == nil {
		t.Errorf("the token of a gateway is one of the worker %q", id)
	}
	f.worker(t, a, "s2")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.server.URL+"/v1/peers/sessions/s2/record", strings.NewReader(`{}`))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	must(t, resp.Body.Close())
	if token == "" || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a token for s1 at s2: HTTP %d", resp.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
