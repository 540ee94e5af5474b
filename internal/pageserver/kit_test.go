package pageserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/worker/workertest"
)

// board is a backend whose topics are counters: the state is the number, and
// every push says the next.
type board struct {
	mu      sync.Mutex
	streams map[Topic]map[*Stream]bool
	count   map[Topic]int
	opened  []string // topics that were asked for
	called  []Call
	left    int
	hold    chan struct{} // opening waits for it, if it is set
	answer  func(ctx context.Context, c *Call) (any, error)
}

func newBoard() *board {
	return &board{streams: map[Topic]map[*Stream]bool{}, count: map[Topic]int{}}
}

type number struct {
	N int `json:"n"`
}

// Open implements Backend.
func (b *board) Open(ctx context.Context, t Topic, after int64, to *Stream) (func(), error) {
	b.mu.Lock()
	b.opened = append(b.opened, t.String())
	hold := b.hold
	b.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if t.ID == "nobody" {
		return nil, Errorf(CodeNotFound, "there is no %s", t)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := to.Answer(number{b.count[t] + int(after)}); err != nil {
		return nil, err
	}
	if b.streams[t] == nil {
		b.streams[t] = map[*Stream]bool{}
	}
	b.streams[t][to] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.streams[t], to)
		b.left++
	}, nil
}

// Call implements Backend.
func (b *board) Call(ctx context.Context, c *Call) (any, error) {
	b.mu.Lock()
	b.called = append(b.called, *c)
	answer := b.answer
	b.mu.Unlock()
	if answer != nil {
		return answer(ctx, c)
	}
	return map[string]string{"did": c.Action}, nil
}

// say pushes the next number, with so many bytes beside it.
func (b *board) say(t Topic, extra int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count[t]++
	f, err := NewFrame(t, "said", struct {
		N   int    `json:"n"`
		Pad string `json:"pad,omitempty"`
	}{b.count[t], strings.Repeat("x", extra)})
	if err != nil {
		panic(err)
	}
	for s := range b.streams[t] {
		if !s.Push(f) {
			delete(b.streams[t], s)
		}
	}
}

func (b *board) watching(t Topic) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.streams[t])
}

// stand is a server on a network in memory.
type stand struct {
	t    *testing.T
	s    *Server
	net  *workertest.Net
	http *http.Server
	done chan struct{}
}

func newStand(t *testing.T, b Backend, o *Options) *stand {
	t.Helper()
	st := &stand{t: t, s: New(b, o), net: workertest.NewNet(), done: make(chan struct{})}
	mux := http.NewServeMux()
	for _, r := range st.s.Routes() {
		if r.Open {
			mux.Handle(r.Pattern, r.Handler)
		}
	}
	st.http = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(st.done)
		_ = st.http.Serve(st.net)
	}()
	return st
}

func (st *stand) close() {
	st.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := st.s.Shutdown(ctx); err != nil {
		st.t.Error(err)
	}
	_ = st.http.Close()
	<-st.done
}

// browser is a client of the page.
type browser struct {
	t  *testing.T
	ws *websocket.Conn
	id int
}

func (st *stand) dial(who *access.Principal) *browser {
	st.t.Helper()
	ticket, _, err := st.s.tickets.issue(who, time.Now())
	if err != nil {
		st.t.Fatal(err)
	}
	b, status := st.try(ticket, Subprotocol)
	if b == nil {
		st.t.Fatalf("the upgrade was answered %d", status)
	}
	return b
}

func (st *stand) try(ticket string, subprotocols ...string) (*browser, int) {
	st.t.Helper()
	tr := st.net.Transport()
	ws, resp, err := websocket.Dial(st.t.Context(), "ws://memory"+Path+"?ticket="+ticket, &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPClient: &http.Client{Transport: tr}, Subprotocols: subprotocols,
	})
	if err != nil {
		if resp == nil {
			st.t.Fatal(err)
		}
		return nil, resp.StatusCode
	}
	ws.SetReadLimit(16 << 20)
	return &browser{t: st.t, ws: ws}, resp.StatusCode
}

// got is a message of the server.
type got struct {
	ID     int64           `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *Error          `json:"error"`
	Topic  string          `json:"topic"`
	Action string          `json:"action"`
	Data   json.RawMessage `json:"data"`
}

func (b *browser) send(text string) {
	b.t.Helper()
	if err := b.ws.Write(b.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) read() got {
	b.t.Helper()
	g, code := b.next()
	if code != 0 {
		b.t.Fatalf("closed with %d", code)
	}
	return g
}

// next reads a message, or the code with which the connection was closed; -1 is
// none.
func (b *browser) next() (got, websocket.StatusCode) {
	b.t.Helper()
	_, text, err := b.ws.Read(b.t.Context())
	if err != nil {
		if closed, ok := errors.AsType[websocket.CloseError](err); ok {
			return got{}, closed.Code
		}
		return got{}, -1
	}
	var g got
	if err := json.Unmarshal(text, &g); err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
	return g, 0
}

// ask sends an action and reads until its answer comes.
func (b *browser) ask(action, params string) got {
	b.t.Helper()
	b.id++
	if params != "" {
		params = "," + params
	}
	b.send(fmt.Sprintf(`{"id":%d,"action":%q%s}`, b.id, action, params))
	for {
		if g := b.read(); g.ID == int64(b.id) {
			return g
		}
	}
}

func (b *browser) subscribe(topic string) got {
	b.t.Helper()
	return b.ask(actionSubscribe, fmt.Sprintf(`"topic":%q`, topic))
}

func (b *browser) close() { _ = b.ws.CloseNow() }

func (g got) n() int {
	var v number
	text := g.Data
	if g.Result != nil {
		text = g.Result
	}
	_ = json.Unmarshal(text, &v)
	return v.N
}

func code(g got) Code {
	if g.Error == nil {
		return ""
	}
	return g.Error.Code
}

// some is a principal with the right to some sessions.
func some(sessions ...string) *access.Principal {
	return &access.Principal{Name: "some", Rights: access.Rights{Sessions: sessions}}
}

// all is one with the right to all.
func all() *access.Principal { return &access.Principal{Name: "all", Rights: access.AllRights()} }

func (b *board) said(t Topic) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count[t]
}
