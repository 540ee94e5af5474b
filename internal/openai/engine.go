package openai

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	openaisdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/logattr"
)

// Defaults of Options.
const (
	DefaultMaxTokens     = 8192
	DefaultCallTimeout   = 600 * time.Second
	DefaultMaxRounds     = 50
	DefaultContextBudget = 400 << 10 // bytes, about 100,000 tokens
	DefaultRetries       = 2
	DefaultRetryDelay    = 30 * time.Second
)

const (
	// maxBody and maxAnswer bound what one model call may send and say, in bytes.
	maxBody   = 32 << 20
	maxAnswer = 4 << 20
	// maxCalls bounds the tool calls of one answer; more are refused to the model.
	maxCalls = 64
	// maxResult bounds the text of a tool result, in bytes.
	maxResult = 64 << 10
	// startTimeout bounds the question for the server's models.
	startTimeout = 60 * time.Second
)

// Errors of an engine.
var (
	ErrBusy     = errors.New("model has a turn in flight")
	ErrStarted  = errors.New("engine was started before")
	ErrNoModel  = errors.New("model server lists no model and none was named")
	ErrCut      = errors.New("model stream ended before the answer did")
	ErrTooLarge = errors.New("model answer is too large")
	ErrTimeout  = errors.New("model call took too long")

	errCancelled = errors.New("turn cancelled")
)

// Options change an engine. The zero value is the default.
type Options struct {
	Logger *slog.Logger // nil: silent
	Key    string       // bearer token; empty: none is sent
	// MaxTokens is the most that the model may say in one call, in tokens.
	MaxTokens int64
	// CallTimeout bounds one model call with its repetitions.
	CallTimeout time.Duration
	// MaxRounds bounds the model calls of one turn.
	MaxRounds int
	// ContextBudget is the size of the conversation that is sent, in bytes; a
	// token is about four. The newest round is sent even if it is larger.
	ContextBudget int
	// Retries bounds the repetitions of a call that failed before it said
	// anything; negative is none.
	Retries int
	// RetryDelay bounds the pause before a repetition, also one that the server
	// asks for.
	RetryDelay time.Duration
	// Client sends the requests; nil is a client of its own.
	Client *http.Client
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.MaxTokens <= 0 {
		d.MaxTokens = DefaultMaxTokens
	}
	if d.CallTimeout <= 0 {
		d.CallTimeout = DefaultCallTimeout
	}
	if d.MaxRounds <= 0 {
		d.MaxRounds = DefaultMaxRounds
	}
	if d.ContextBudget <= 0 {
		d.ContextBudget = DefaultContextBudget
	}
	if d.Retries == 0 {
		d.Retries = DefaultRetries
	}
	d.Retries = max(d.Retries, 0)
	if d.RetryDelay <= 0 {
		d.RetryDelay = DefaultRetryDelay
	}
	return d
}

// Engine runs a model as an agent. It implements agent.Engine and
// agent.Steerer. Its conversation ends with it, Info.Conversation is empty; what
// was said in an earlier life it takes from StartOptions.History.
type Engine struct {
	base  string
	o     Options
	log   *slog.Logger
	own   *http.Client // closed with the engine; nil if the client was given
	chat  openaisdk.ChatCompletionService
	tools *toolbox

	// Set by Start, then used by one turn at a time.
	model            string
	emit             agent.Sink
	history          *history
	completionTokens bool // the server wants max_completion_tokens

	mu      sync.Mutex
	started bool
	closed  bool
	turn    *turn
	turns   int
}

var (
	_ agent.Engine  = (*Engine)(nil)
	_ agent.Steerer = (*Engine)(nil)
)

// turn is the one in flight.
type turn struct {
	n       int
	cancel  context.CancelCauseFunc
	done    chan struct{}
	offers  []*offer
	usage   agent.Usage
	message string // names the message that the model is at
}

// New returns an engine for a model behind base, for instance
// "http://127.0.0.1:11434/v1"; a base without a path gets "/v1". An empty model
// is the first one that the server lists.
func New(base, model string, o *Options) *Engine {
	e := &Engine{base: base, model: model, o: o.withDefaults()}
	e.log = e.o.Logger
	return e
}

// Start checks the address and finds the model. It sends nothing if the model
// is named: whether it answers shows in the first turn. See agent.Engine.
func (e *Engine) Start(ctx context.Context, so agent.StartOptions, sink agent.Sink) (agent.Info, error) {
	e.mu.Lock()
	was, closed := e.started, e.closed
	e.started = true
	e.mu.Unlock()
	switch {
	case closed:
		return agent.Info{}, agent.ErrClosed
	case was:
		return agent.Info{}, ErrStarted
	}
	if err := e.open(ctx, sink); err != nil {
		_ = e.Close()
		return agent.Info{}, err
	}
	e.emit = sink
	e.tools = newToolbox(so.Tools)
	e.history = &history{system: so.System, budget: e.o.ContextBudget}
	if so.History != nil {
		past, err := so.History(ctx)
		if err != nil {
			e.log.WarnContext(ctx, "model starts without its history", logattr.Err(err))
		}
		e.history.recall(past)
	}
	return agent.Info{Name: e.model, Protocol: "openai chat", System: true, Steering: true}, nil
}

func (e *Engine) open(ctx context.Context, sink agent.Sink) error {
	base, err := baseURL(e.base)
	if err != nil {
		return err
	}
	client := e.o.Client
	if client == nil {
		transport, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			transport = &http.Transport{}
		}
		client = &http.Client{Transport: transport.Clone()}
		e.mu.Lock()
		e.own = client
		e.mu.Unlock()
	}
	options := []option.RequestOption{
		option.WithBaseURL(base), option.WithHTTPClient(client), option.WithMaxRetries(e.o.Retries),
		option.WithMaxRetryDelay(e.o.RetryDelay), option.WithMiddleware(limitBody),
	}
	if e.o.Key != "" {
		options = append(options, option.WithAPIKey(e.o.Key))
	}
	e.chat = openaisdk.NewChatCompletionService(options...)
	if e.model != "" {
		return nil
	}
	sink(agent.Progress{What: "asking for the server's models"})
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	models := openaisdk.NewModelService(options...)
	page, err := models.List(ctx)
	if err != nil {
		return fmt.Errorf("list models: %w", modelError(err))
	}
	if len(page.Data) == 0 || page.Data[0].ID == "" {
		return ErrNoModel
	}
	e.model = page.Data[0].ID
	return nil
}

func baseURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", fmt.Errorf("parse model server: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", fmt.Errorf("parse model server: %q is no http address", u.Redacted())
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1"
	}
	return u.String(), nil
}

// Turn runs the model until it has answered. See agent.Engine. What a turn
// that was cut off was told stays in the conversation, but for its notices:
// they will be offered again.
func (e *Engine) Turn(ctx context.Context, p agent.Prompt) (agent.Outcome, error) {
	t, ctx, err := e.begin(ctx)
	if err != nil {
		return agent.Outcome{}, err
	}
	defer e.end(t)
	e.history.ask(t.n, p.Parts)
	stop, err := e.rounds(ctx, t)
	if t.usage != (agent.Usage{}) {
		e.emit(t.usage)
	}
	if err == nil {
		return agent.Outcome{Stop: stop}, nil
	}
	e.history.undelivered(t.n)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errCancelled):
		return agent.Outcome{Stop: agent.StopCancelled}, nil
	case errors.Is(cause, agent.ErrClosed):
		return agent.Outcome{}, agent.ErrClosed
	case cause != nil:
		return agent.Outcome{}, fmt.Errorf("prompt model: %w", cause)
	}
	return agent.Outcome{}, fmt.Errorf("prompt model: %w", err)
}

func (e *Engine) begin(ctx context.Context) (*turn, context.Context, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, nil, agent.ErrClosed
	case e.history == nil:
		return nil, nil, errors.New("prompt model: not started")
	case e.turn != nil:
		return nil, nil, ErrBusy
	}
	ctx, cancel := context.WithCancelCause(ctx)
	e.turns++
	e.turn = &turn{n: e.turns, cancel: cancel, done: make(chan struct{})}
	return e.turn, ctx, nil
}

func (e *Engine) end(t *turn) {
	e.mu.Lock()
	e.turn = nil
	for _, o := range t.offers {
		o.settle(agent.SteerNeedsTurn)
	}
	t.offers = nil
	e.mu.Unlock()
	t.cancel(nil)
	close(t.done)
}

// rounds calls the model and the tools in turns.
func (e *Engine) rounds(ctx context.Context, t *turn) (agent.StopReason, error) {
	for round := 1; round <= e.o.MaxRounds; round++ {
		if round > 1 {
			e.takeOffers(t)
		}
		e.history.trim()
		t.message = fmt.Sprintf("turn %d call %d", t.n, round)
		a, err := e.call(ctx, t)
		if err != nil {
			e.history.answer(t.n, a.text, nil) // what was shown
			return "", err
		}
		calls := a.calls
		if a.stop != "" {
			calls = nil // the last of them may be half a call
		}
		ids := e.history.answer(t.n, a.text, calls)
		switch {
		case len(calls) > 0:
			over, err := e.runTools(ctx, t, calls, ids)
			if err != nil {
				return "", err
			}
			if over {
				e.endTurn(t)
				return agent.StopEndTurn, nil
			}
		case a.stop == "" && round < e.o.MaxRounds && e.takeOffers(t):
			// Somebody spoke meanwhile: the turn goes on.
		case a.stop == "":
			return agent.StopEndTurn, nil
		default:
			return a.stop, nil
		}
	}
	return agent.StopMaxRequests, nil
}

// endTurn makes NO_REPLY as code the same as NO_REPLY as the answer
// (specification N-7, W-261).
func (e *Engine) endTurn(t *turn) {
	e.history.answer(t.n, agent.NoReply, nil)
	e.emit(agent.Text{Text: agent.NoReply, Message: t.message + " end"})
}

// Cancel ends the running turn. See agent.Engine.
func (e *Engine) Cancel(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.turn != nil {
		e.turn.cancel(errCancelled)
	}
	return nil
}

// Close ends the running turn and waits for it. See agent.Engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	t, own := e.turn, e.own
	if t != nil {
		t.cancel(agent.ErrClosed)
	}
	e.mu.Unlock()
	if t != nil {
		<-t.done
	}
	if own != nil {
		own.CloseIdleConnections()
	}
	return nil
}
