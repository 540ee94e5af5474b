package app

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/pageserver"
)

const (
	// terminalPace is the time between two pieces of a terminal's output: what comes
	// meanwhile is one.
	terminalPace = 10 * time.Millisecond
	// maxTyped bounds what is typed at once, in bytes.
	maxTyped = 64 << 10
)

// terminalState is what a subscription to a terminal begins with.
type terminalState struct {
	Offset  int64 `json:"offset"` // of the first byte that comes
	Lost    int64 `json:"lost"`   // bytes between what was asked for and that
	Cols    int   `json:"cols"`
	Rows    int   `json:"rows"`
	Running bool  `json:"running"`
}

type terminalOutput struct {
	Offset int64  `json:"offset"`
	Lost   int64  `json:"lost,omitempty"`  // bytes before it: clear the screen
	Modes  []byte `json:"modes,omitempty"` // for a fresh screen, before the data
	Data   []byte `json:"data"`
}

// terminal finds the terminal of a session that runs here.
func (p *page) terminal(ctx context.Context, id string) (agent.Terminal, error) {
	one := p.agents.Agent(id)
	if one == nil {
		if _, err := p.api.meta(ctx, id); err != nil {
			return nil, pageError(err)
		}
		return nil, pageserver.Errorf(pageserver.CodeUnavailable, "the session does not run here; start it again under its name")
	}
	term, ok := one.Terminal()
	if !ok {
		return nil, pageserver.Errorf(pageserver.CodeUnavailable, "the agent of this session has no terminal")
	}
	return term, nil
}

// openTerminal begins a subscription to a terminal. Each reads for itself: nobody's
// screen is where another's is.
func (p *page) openTerminal(ctx context.Context, name pageserver.Topic, after int64, to *pageserver.Stream) (leave func(), err error) {
	term, err := p.terminal(ctx, name.ID)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil, errPageEnded
	}
	st := term.Status()
	state := terminalState{Offset: after, Cols: st.Cols, Rows: st.Rows, Running: st.Running}
	switch {
	case after == 0, after > st.End: // a fresh screen, or one of another life of this process
		after, state.Offset = -1, st.Oldest
	case after < st.Oldest:
		state.Offset, state.Lost = st.Oldest, st.Oldest-after
	}
	view := term.Attach(after)
	if err := to.Answer(state); err != nil {
		return nil, err
	}
	read, stop := context.WithCancel(context.Background())
	p.work.Go(func() {
		defer stop()
		p.show(read, name, view, to)
	})
	return stop, nil
}

// show passes output on until the end of the terminal or of the subscription.
func (p *page) show(ctx context.Context, name pageserver.Topic, view agent.TerminalView, to *pageserver.Stream) {
	pace := time.NewTimer(0)
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return
		}
		chunk, err := view.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		action, data := "terminal.output", any(terminalOutput{chunk.Offset, chunk.Lost, chunk.Modes, chunk.Data})
		if err != nil {
			end := map[string]string{}
			if !errors.Is(err, io.EOF) {
				end["error"] = err.Error()
			}
			action, data = "terminal.exit", end
		}
		f, ferr := pageserver.NewFrame(name, action, data)
		if ferr != nil || !to.Push(f) || err != nil {
			return
		}
		pace.Reset(terminalPace)
	}
}

// typed passes on what was typed.
func (p *page) typed(ctx context.Context, c *pageserver.Call) error {
	if len(c.Data) > maxTyped {
		return pageserver.Errorf(pageserver.CodeBadRequest, "at most %d bytes can be typed at once", maxTyped)
	}
	term, err := p.terminal(ctx, c.Session)
	if err == nil {
		err = term.Write(c.Data)
	}
	return terminalError(err)
}

func (p *page) resized(ctx context.Context, c *pageserver.Call) error {
	term, err := p.terminal(ctx, c.Session)
	if err == nil {
		err = term.Resize(c.Cols, c.Rows)
	}
	return terminalError(err)
}

func terminalError(err error) error {
	var code pageserver.Code
	switch {
	case err == nil:
		return nil
	case errors.Is(err, agent.ErrNoTerminal):
		code = pageserver.CodeUnavailable
	case errors.Is(err, agent.ErrTyping):
		code = pageserver.CodeTooMany
	case errors.Is(err, agent.ErrTerminalSize):
		code = pageserver.CodeBadRequest
	default:
		return pageError(err)
	}
	return pageserver.Errorf(code, "%s", err.Error())
}
