package acp

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/logattr"
)

const (
	// maxRequests bounds the agent's requests that are worked on at once; more
	// are refused.
	maxRequests = 64
	// drainWait is how long the session may think about a drain request. Qwen
	// waits for 2 s and gives up for good after three of them.
	drainWait = time.Second
	// A replay is over when nothing came for replayQuiet, or after replayLimit.
	replayQuiet = 300 * time.Millisecond
	replayLimit = 10 * time.Second
	// drainWrite bounds the wait until the answer is written.
	drainWrite = 5 * time.Second
	// maxStray is how much of a line that is no frame an event shows, in bytes.
	maxStray = 4 << 10
)

// host is our side of the conversation: what the agent may ask of us.
type host struct {
	c       *conn
	log     *slog.Logger
	emit    agent.Sink
	files   *files // nil: neither files nor terminals were offered
	noFiles bool
	env     []string
	terms   *terminals // nil: not offered
	perms   permissions
	// attachment hears what the agent says about its servers; nil: nobody does.
	attachment agent.Attachment

	session  atomic.Pointer[string] // nil until a session is open
	replay   atomic.Bool            // a conversation is being replayed
	replayed chan struct{}          // wakes who waits for the end of a replay

	slots chan struct{} // one for each request that is worked on
	wg    sync.WaitGroup

	mu      sync.Mutex
	running map[string]context.CancelFunc // by raw request id
	usage   agent.Usage                   // what is known so far
}

func (h *host) notification(f frame) {
	switch f.method {
	case methodUpdate:
		h.update(f)
	case methodCancelRequest:
		var q cancelRequestParams
		if decode(f.params, &q) == nil {
			h.withdraw(q.ID)
		}
	default:
		h.emit(agent.Raw{Kind: f.method, JSON: message(f.line)})
	}
}

func (h *host) update(f frame) {
	if h.replay.Load() {
		select {
		case h.replayed <- struct{}{}:
		default: // told already
		}
		return
	}
	var q struct {
		SessionID string         `json:"sessionId"`
		Update    jsontext.Value `json:"update"`
	}
	if decode(f.params, &q) != nil || q.Update == nil {
		h.emit(agent.Raw{Kind: f.method, JSON: message(f.line)})
		return
	}
	if ours := h.session.Load(); ours != nil && *ours != q.SessionID {
		// Another conversation of the same agent, for instance of a sub-agent.
		h.emit(agent.Raw{Kind: f.method, JSON: message(f.line)})
		return
	}
	h.reported(q.Update)
	switch e := decodeUpdate(q.Update).(type) {
	case nil:
	case agent.Usage:
		h.emitUsage(e)
	default:
		h.emit(e)
	}
}

// reported passes on what the agent says about its servers, in an update that is
// shown as what it is besides.
func (h *host) reported(update jsontext.Value) {
	if h.attachment == nil || !mayReport(update) {
		return
	}
	if e, ok := Reported(update); ok {
		h.attachment.Saw(e)
	}
}

// emitUsage tells all that is known: agents report the context and the tokens
// of a turn apart, and who shows them keeps the last report.
func (h *host) emitUsage(u agent.Usage) {
	h.mu.Lock()
	if u.ContextUsed > 0 || u.ContextSize > 0 {
		h.usage.ContextUsed, h.usage.ContextSize = u.ContextUsed, u.ContextSize
	}
	h.usage.InputTokens, h.usage.OutputTokens = u.InputTokens, u.OutputTokens
	u = h.usage
	h.mu.Unlock()
	h.emit(u)
}

// awaitQuiet waits until a replay is over: Gemini goes on with it after it has
// answered session/load, and marks no end.
func (h *host) awaitQuiet(ctx context.Context) {
	quiet, limit := time.NewTimer(replayQuiet), time.NewTimer(replayLimit)
	defer quiet.Stop()
	defer limit.Stop()
	for {
		select {
		case <-h.replayed:
			quiet.Reset(replayQuiet)
		case <-quiet.C:
			return
		case <-limit.C:
			return
		case <-h.c.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (h *host) request(ctx context.Context, f frame) {
	switch f.method {
	case methodPermission:
		if !h.perms.ask(h.c, f, h.emit) {
			h.c.refuse(f.id, codeInvalidParams, "invalid params", nil)
		}
	case methodDrain:
		h.drain(f)
	case methodReadFile, methodWriteFile:
		if h.files == nil || h.noFiles {
			h.unknown(f)
			return
		}
		h.work(ctx, f, h.file)
	case methodTerminalNew, methodTerminalOutput, methodTerminalWait, methodTerminalKill, methodTerminalFree:
		if h.terms == nil {
			h.unknown(f)
			return
		}
		h.work(ctx, f, h.terminal)
	default:
		h.unknown(f)
	}
}

// unknown answers what we do not know: agents stall without an answer.
func (h *host) unknown(f frame) {
	h.c.refuse(f.id, codeMethodNotFound, "method not found", map[string]string{"method": f.method})
	h.emit(agent.Raw{Kind: f.method, JSON: message(f.line)})
}

func (h *host) stray(line []byte, size int) {
	shown, err := json.Marshal(map[string]any{"text": string(line[:min(len(line), maxStray)]), "bytes": size})
	if err == nil {
		h.emit(agent.Raw{Kind: "stdout", JSON: shown})
	}
}

// work runs a request beside the reader, which it may keep waiting otherwise.
func (h *host) work(ctx context.Context, f frame, do func(context.Context, frame) (any, error)) {
	select {
	case h.slots <- struct{}{}:
	default:
		h.c.refuse(f.id, codeInternal, "too many requests at once", nil)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	h.mu.Lock()
	h.running[string(f.id)] = cancel
	h.mu.Unlock()
	h.wg.Go(func() {
		defer func() {
			h.mu.Lock()
			delete(h.running, string(f.id))
			h.mu.Unlock()
			cancel()
			<-h.slots
		}()
		result, err := do(ctx, f)
		if err != nil {
			h.log.Debug("agent request failed", methodAttr(f.method), logattr.Err(err))
			h.c.refuse(f.id, errorCode(err), err.Error(), nil)
			return
		}
		h.c.reply(f.id, result)
	})
}

func (h *host) withdraw(id jsontext.Value) {
	h.perms.withdraw(id)
	h.mu.Lock()
	cancel := h.running[string(id)]
	h.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

var errParams = errors.New("invalid params")

func errorCode(err error) int {
	switch {
	case errors.Is(err, errParams), errors.Is(err, ErrOutside), errors.Is(err, ErrNotRegular):
		return codeInvalidParams
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrNoTerminal):
		return codeNotFound
	case errors.Is(err, context.Canceled):
		return codeCancelled
	default:
		return codeInternal
	}
}

func (h *host) file(_ context.Context, f frame) (any, error) {
	if f.method == methodReadFile {
		var q readFileParams
		if err := decode(f.params, &q); err != nil {
			return nil, errors.Join(errParams, err)
		}
		text, err := h.files.read(q.Path, q.Line, q.Limit)
		return readFileResult{Content: text}, err
	}
	var q writeFileParams
	if err := decode(f.params, &q); err != nil {
		return nil, errors.Join(errParams, err)
	}
	return empty{}, h.files.write(q.Path, q.Content)
}

func (h *host) terminal(ctx context.Context, f frame) (any, error) {
	if f.method == methodTerminalNew {
		var q terminalNewParams
		if err := decode(f.params, &q); err != nil {
			return nil, errors.Join(errParams, err)
		}
		dir, err := h.files.directory(q.CWD)
		if err != nil {
			return nil, err
		}
		id, err := h.terms.create(q, h.env, dir)
		return terminalParams{TerminalID: id}, err
	}
	var q terminalParams
	if err := decode(f.params, &q); err != nil {
		return nil, errors.Join(errParams, err)
	}
	if f.method == methodTerminalFree {
		return empty{}, h.terms.release(q.TerminalID)
	}
	t, err := h.terms.get(q.TerminalID)
	if err != nil {
		return nil, err
	}
	switch f.method {
	case methodTerminalOutput:
		return t.output(), nil
	case methodTerminalWait:
		return t.wait(ctx)
	default:
		t.kill()
		return empty{}, nil
	}
}

// drain asks the session for what waits and answers in time in any case.
func (h *host) drain(f frame) {
	var once sync.Once
	late := time.AfterFunc(drainWait, func() {
		once.Do(func() { h.c.reply(f.id, drainResult{Messages: []string{}}) })
	})
	h.emit(agent.Drain{Reply: func(p agent.Prompt) error {
		err := errAnswered
		once.Do(func() {
			late.Stop()
			r := drainResult{Messages: []string{}}
			if len(p.Parts) > 0 {
				r.Messages = append(r.Messages, p.Text())
			}
			err = h.c.replyWait(f.id, r, drainWrite)
		})
		return err
	}})
}

var errAnswered = errors.New("answer agent: too late, or answered before")

// methodAttr is the name of a request of the protocol.
func methodAttr(name string) slog.Attr { return slog.String("method", clip(name)) }

// close ends what the agent had us do; the reader has ended before.
func (h *host) close() {
	if h.terms != nil {
		h.terms.close()
	}
	h.wg.Wait()
	if h.files != nil {
		h.files.close()
	}
}

func newHost(c *conn, log *slog.Logger, emit agent.Sink) *host {
	return &host{
		c: c, log: log, emit: emit,
		replayed: make(chan struct{}, 1), slots: make(chan struct{}, maxRequests), running: map[string]context.CancelFunc{},
	}
}

// transportAttr is how an agent reaches an MCP server.
func transportAttr(name string) slog.Attr { return slog.String("transport", name) }

// environ is a base environment with additions.
func environ(base, more []string) []string { return slices.Concat(base, more) }
