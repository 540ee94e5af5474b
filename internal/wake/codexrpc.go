package wake

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/internal/process"
	"github.com/ossicle/ossicle/notice"
)

const (
	maxCodexLine  = 64 << 20 // bytes of one message; items carry whole files
	codexInbox    = 256      // messages that wait for us; then the app-server does
	codexNoMethod = -32601
)

// codexRPC speaks to an app-server: JSON-RPC without its version member, one
// message a line. What the app-server asks is refused at once, because an
// unattended turn may be allowed nothing by us, and an unanswered question holds
// it up for ever.
type codexRPC struct {
	p    *process.Process
	id   int
	in   chan codexMessage // closed at the end
	err  error             // set before in is closed
	done sync.WaitGroup
	quit chan struct{}

	writes chan struct{}  // holds one: whoever writes
	early  []codexMessage // of turns, that came while an answer was waited for
}

type codexMessage struct {
	ID     jsontext.Value `json:"id,omitzero"`
	Method string         `json:"method,omitzero"`
	Params jsontext.Value `json:"params,omitzero"`
	Result jsontext.Value `json:"result,omitzero"`
	Error  *codexError    `json:"error,omitzero"`
}

type codexError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func newCodexRPC(p *process.Process) *codexRPC {
	r := &codexRPC{p: p, in: make(chan codexMessage, codexInbox), quit: make(chan struct{}), writes: make(chan struct{}, 1)}
	r.done.Go(r.read)
	return r
}

// close ends the app-server and waits for it.
func (r *codexRPC) close() {
	close(r.quit)
	r.p.Stop()
	r.done.Wait()
}

func (r *codexRPC) read() {
	defer close(r.in)
	lines := bufio.NewReader(r.p.Stdout)
	for {
		line, err := readLine(lines, maxCodexLine)
		if err != nil {
			r.err = err
			return
		}
		var m codexMessage
		if json.Unmarshal(line, &m) != nil {
			continue // a line of a log
		}
		select {
		case r.in <- m:
		case <-r.quit:
			r.err = errors.New("closed")
			return
		}
	}
}

// readLine reads a line of at most limit bytes.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return nil, errors.New("read message: a line is too long")
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err
		default:
			return bytes.TrimSpace(line), nil
		}
	}
}

// write sends a message. A write that hangs is ended by close, which every user
// calls after an error.
func (r *codexRPC) write(ctx context.Context, m any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	select {
	case r.writes <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	written := make(chan error, 1)
	r.done.Go(func() {
		_, err := r.p.Stdin.Write(append(b, '\n'))
		<-r.writes
		written <- err
	})
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *codexRPC) notify(ctx context.Context, method string) error {
	return r.write(ctx, codexMessage{Method: method})
}

// call sends a request and waits for its answer, which it unmarshals into
// result. A turn may begin, and even end, before the answer that names it.
func (r *codexRPC) call(ctx context.Context, method string, params, result any) error {
	b, err := json.Marshal(params)
	if err != nil {
		return err
	}
	r.id++
	id := fmt.Sprint(r.id)
	if err := r.write(ctx, codexMessage{ID: jsontext.Value(id), Method: method, Params: b}); err != nil {
		return fmt.Errorf("call %s: %w", method, err)
	}
	for {
		m, err := r.receive(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("call %s: %w", method, err)
		case strings.HasPrefix(m.Method, "turn/") && len(r.early) < codexInbox:
			r.early = append(r.early, m)
			continue
		case m.Method != "" || string(m.ID) != id:
			continue
		case m.Error != nil && m.Error.Code == codexOverloaded:
			return &notice.BusyError{Reason: "the app-server is overloaded", Retry: busyRetry}
		case m.Error != nil:
			return &notice.HostError{Op: "call " + method, Code: m.Error.Code, Detail: m.Error.Message}
		case result == nil:
			return nil
		}
		if json.Unmarshal(m.Result, result) != nil {
			return fmt.Errorf("call %s: the answer is not what was expected", method)
		}
		return nil
	}
}

// next returns the next notification, and what it says of a turn.
func (r *codexRPC) next(ctx context.Context) (string, codexTurn, error) {
	for {
		var m codexMessage
		var err error
		if len(r.early) > 0 {
			m, r.early = r.early[0], r.early[1:]
		} else if m, err = r.receive(ctx); err != nil {
			return "", codexTurn{}, err
		}
		var turn codexTurn
		if m.Method != "" && json.Unmarshal(m.Params, &turn) == nil {
			return m.Method, turn, nil
		}
	}
}

// receive returns the next message that is not a question, and refuses those
// that are.
func (r *codexRPC) receive(ctx context.Context) (codexMessage, error) {
	for {
		select {
		case m, open := <-r.in:
			switch {
			case !open && errors.Is(r.err, io.EOF):
				return m, errors.New("the app-server has ended")
			case !open:
				return m, r.err
			case m.Method == "" || m.ID == nil:
				return m, nil
			}
			refusal := codexMessage{ID: m.ID, Error: &codexError{Code: codexNoMethod, Message: "nobody is here to ask"}}
			if err := r.write(ctx, refusal); err != nil {
				return m, err
			}
		case <-ctx.Done():
			return codexMessage{}, ctx.Err()
		}
	}
}
