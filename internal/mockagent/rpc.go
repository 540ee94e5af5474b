package mockagent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

type object = map[string]any

// message is a frame of the protocol.
type message struct {
	ID     jsontext.Value `json:"id,omitzero"`
	Method string         `json:"method,omitzero"`
	Params jsontext.Value `json:"params,omitzero"`
	Result jsontext.Value `json:"result,omitzero"`
	Error  jsontext.Value `json:"error,omitzero"`
}

// agent is the state behind one pair of streams.
type agent struct {
	o    Options
	errw io.Writer
	die  context.CancelCauseFunc

	write sync.Mutex // one line at a time
	out   io.Writer

	mu       sync.Mutex
	last     int
	prompts  int
	pending  map[int]chan message
	sessions map[string]*session

	wg sync.WaitGroup
}

// read serves lines until the end of in. A line may be as long as memory
// allows: the client is the one that started us.
func (a *agent) read(ctx context.Context, in io.Reader) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			a.line(ctx, line)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil //nolint:nilerr // the end, or closed by us
		default:
			return fmt.Errorf("read from client: %w", err)
		}
	}
}

func (a *agent) line(ctx context.Context, line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		a.logf("bad frame: %v", err)
		return
	}
	switch {
	case m.Method == "":
		var n int
		if json.Unmarshal(m.ID, &n) == nil {
			a.mu.Lock()
			ch := a.pending[n]
			delete(a.pending, n)
			a.mu.Unlock()
			if ch != nil {
				ch <- m
			}
		}
	case m.Method == "session/cancel":
		a.cancelled(m)
	case m.Method == "session/prompt":
		a.prompt(ctx, m) // in order: what is in flight depends on it
	case m.ID != nil:
		a.wg.Go(func() { a.serve(ctx, m) })
	}
}

func (a *agent) send(v any) {
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		a.logf("bad reply: %v", err)
		return
	}
	a.write.Lock()
	defer a.write.Unlock()
	if a.o.Noise {
		_, _ = io.WriteString(a.out, "[debug] about to write a frame\n")
	}
	_, _ = a.out.Write(append(b, '\n'))
}

func (a *agent) reply(m message, result any) {
	a.send(object{"jsonrpc": "2.0", "id": m.ID, "result": result})
}

func (a *agent) refuse(m message, code int, text string) {
	a.send(object{"jsonrpc": "2.0", "id": m.ID, "error": object{"code": code, "message": text, "data": object{"method": m.Method}}})
}

func (a *agent) notify(method string, params any) {
	a.send(object{"jsonrpc": "2.0", "method": method, "params": params})
}

// call asks the client and waits for its answer.
func (a *agent) call(ctx context.Context, method string, params any) (jsontext.Value, error) {
	ch := make(chan message, 1)
	a.mu.Lock()
	a.last++
	n := a.last
	a.pending[n] = ch
	a.mu.Unlock()
	a.send(object{"jsonrpc": "2.0", "id": n, "method": method, "params": params})
	select {
	case m := <-ch:
		if m.Error != nil {
			return nil, fmt.Errorf("client refused %s: %s", method, m.Error)
		}
		return m.Result, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("call %s: %w", method, context.Cause(ctx))
	}
}

func (a *agent) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(a.errw, "mock-agent: "+format+"\n", args...)
}

func (a *agent) close() {
	a.wg.Wait()
	for _, s := range a.sessions {
		s.close()
	}
}
