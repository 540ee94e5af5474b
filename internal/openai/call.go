package openai

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	openaisdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/shared"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/logattr"
)

// ModelError is a refusal of the model server.
type ModelError struct {
	Status  int    // HTTP
	Code    string // the server's own, may be empty
	Message string // the server's own words, bounded
}

func (e *ModelError) Error() string {
	s := fmt.Sprintf("model server answered %d", e.Status)
	if text := http.StatusText(e.Status); text != "" {
		s += " " + text
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

const maxErrorText = 500 // bytes

// modelError keeps what a person can act on of the SDK's error.
func modelError(err error) error {
	var broken *ssestream.StreamError
	if errors.As(err, &broken) {
		return fmt.Errorf("model server broke off: %s", clip(broken.Message, maxErrorText))
	}
	var refused *openaisdk.Error
	if !errors.As(err, &refused) {
		return err
	}
	text := refused.Message
	if text == "" {
		text = refused.RawJSON()
	}
	return &ModelError{Status: refused.StatusCode, Code: refused.Code, Message: clip(text, maxErrorText)}
}

func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// answer is what one model call said.
type answer struct {
	text    string
	calls   []call
	stop    agent.StopReason // empty if the model came to its end or calls tools
	started bool             // something has been shown already
}

// call is a tool call.
type call struct{ id, name, args string }

// minBudget is the least that the conversation is trimmed to when the server
// says that it is too long, in bytes.
const minBudget = 8 << 10

// call makes one model call, within its time. It adapts to what the server says
// about its limits, and repeats a stream that was cut off before it said
// anything. With an error too it returns what had been said until then.
func (e *Engine) call(ctx context.Context, t *turn) (*answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.o.CallTimeout, fmt.Errorf("%w: %v", ErrTimeout, e.o.CallTimeout))
	defer cancel()
	for cut := 0; ; {
		began := time.Now()
		a, err := e.stream(ctx, t)
		e.log.DebugContext(ctx, "model call", logattr.Duration(time.Since(began)), logattr.Err(err))
		var refused *ModelError
		switch {
		case err == nil:
			return a, nil
		case ctx.Err() != nil:
			return a, context.Cause(ctx)
		case errors.As(err, &refused) && e.adapt(refused):
		case !a.started && errors.Is(err, ErrCut) && cut < e.o.Retries:
			cut++
		default:
			return a, err
		}
	}
}

// adapt reports whether another request may succeed after a refusal.
func (e *Engine) adapt(refused *ModelError) bool {
	if refused.Status != http.StatusBadRequest && refused.Status != http.StatusRequestEntityTooLarge {
		return false
	}
	text := strings.ToLower(refused.Code + " " + refused.Message)
	switch {
	case !e.completionTokens && strings.Contains(text, "max_completion_tokens"):
		e.completionTokens = true
		return true
	case strings.Contains(text, "context") && (strings.Contains(text, "length") || strings.Contains(text, "window") || strings.Contains(text, "size")):
		size := e.history.size()
		if e.history.budget = min(e.history.budget, size) / 2; e.history.budget < minBudget {
			return false
		}
		e.history.trim()
		return e.history.size() < size
	}
	return false
}

func (e *Engine) request() openaisdk.ChatCompletionNewParams {
	q := openaisdk.ChatCompletionNewParams{
		Model: e.model, Messages: e.history.render(), Tools: e.tools.params,
		StreamOptions: openaisdk.ChatCompletionStreamOptionsParam{IncludeUsage: openaisdk.Bool(true)},
	}
	if e.completionTokens {
		q.MaxCompletionTokens = openaisdk.Int(e.o.MaxTokens)
	} else {
		q.MaxTokens = openaisdk.Int(e.o.MaxTokens)
	}
	return q
}

// stream makes a request and shows the answer while it comes.
func (e *Engine) stream(ctx context.Context, t *turn) (*answer, error) {
	s := e.chat.NewStreaming(ctx, e.request())
	defer func() { _ = s.Close() }()
	r := &reader{e: e, t: t, a: &answer{}}
	for s.Next() {
		chunk := s.Current()
		if err := r.chunk(&chunk); err != nil {
			return r.a, err
		}
	}
	err := s.Err()
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), err == nil && !r.ended:
		err = ErrCut
	case errors.Is(err, bufio.ErrTooLong):
		err = fmt.Errorf("%w: one event", ErrTooLarge)
	case err != nil:
		err = modelError(err)
	}
	for _, c := range r.calls {
		r.a.calls = append(r.a.calls, call{id: c.id, name: c.name.String(), args: c.args.String()})
	}
	r.a.text = r.text.String()
	return r.a, err
}

// reader puts an answer together.
type reader struct {
	e     *Engine
	t     *turn
	a     *answer
	text  strings.Builder
	calls []*pieces
	size  int
	ended bool // the server gave a reason for the end
}

// pieces are a call that is still coming.
type pieces struct {
	id         string
	name, args strings.Builder
}

func (r *reader) chunk(c *openaisdk.ChatCompletionChunk) error {
	if c.Usage.TotalTokens > 0 || c.Usage.CompletionTokens > 0 {
		r.t.usage.InputTokens += c.Usage.PromptTokens
		r.t.usage.OutputTokens += c.Usage.CompletionTokens
		r.t.usage.ContextUsed = c.Usage.PromptTokens + c.Usage.CompletionTokens
	}
	if len(c.Choices) == 0 {
		return nil
	}
	choice := &c.Choices[0]
	d := &choice.Delta
	if thought := thoughtOf(d); thought != "" {
		if err := r.grow(len(thought)); err != nil {
			return err
		}
		r.a.started = true
		r.e.emit(agent.Thought{Text: thought})
	}
	if said := d.Content + d.Refusal; said != "" {
		if err := r.grow(len(said)); err != nil {
			return err
		}
		r.a.started = true
		r.text.WriteString(said)
		r.e.emit(agent.Text{Text: said, Message: r.t.message})
	}
	for i := range d.ToolCalls {
		if err := r.toolCall(&d.ToolCalls[i]); err != nil {
			return err
		}
	}
	if choice.FinishReason != "" {
		r.ended = true
		if r.a.stop == "" {
			r.a.stop = stopReason(choice.FinishReason)
		}
	}
	if d.Refusal != "" {
		r.a.stop = agent.StopRefusal
	}
	return nil
}

func (r *reader) grow(n int) error {
	if r.size += n; r.size > maxAnswer {
		r.a.text = r.text.String()
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, maxAnswer)
	}
	return nil
}

// toolCall adds a piece of a call. Some servers number every call 0 and send it
// whole: a new id with a name begins a new call.
func (r *reader) toolCall(d *openaisdk.ChatCompletionChunkChoiceDeltaToolCall) error {
	if err := r.grow(len(d.ID) + len(d.Function.Name) + len(d.Function.Arguments) + 1); err != nil {
		return err
	}
	at := int(d.Index)
	switch {
	case d.Index < 0 || at > len(r.calls):
		at = len(r.calls)
	case at < len(r.calls) && d.ID != "" && d.Function.Name != "" && r.calls[at].id != "" && r.calls[at].id != d.ID:
		at = len(r.calls)
	}
	if at == len(r.calls) {
		r.calls = append(r.calls, &pieces{})
	}
	c := r.calls[at]
	if c.id == "" {
		c.id = d.ID
	}
	c.name.WriteString(d.Function.Name)
	c.args.WriteString(d.Function.Arguments)
	return nil
}

// thoughtOf reads the reasoning that servers send beside the standard.
func thoughtOf(d *openaisdk.ChatCompletionChunkChoiceDelta) string {
	for _, name := range []string{"reasoning_content", "reasoning"} {
		if f, ok := d.JSON.ExtraFields[name]; ok {
			var s string
			if json.Unmarshal([]byte(f.Raw()), &s) == nil && s != "" {
				return s
			}
		}
	}
	return ""
}

func stopReason(finish string) agent.StopReason {
	switch finish {
	case "length":
		return agent.StopMaxTokens
	case "content_filter":
		return agent.StopRefusal
	default: // stop, tool_calls, and what servers invent
		return ""
	}
}

// limitBody bounds every response.
func limitBody(q *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	resp, err := next(q)
	if err == nil && resp.Body != nil {
		resp.Body = &limitedBody{ReadCloser: resp.Body, left: maxBody}
	}
	return resp, err
}

type limitedBody struct {
	io.ReadCloser

	left int
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%w: more than %d bytes of stream", ErrTooLarge, maxBody)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// functionTool offers a tool with its schema byte for byte.
func functionTool(name string, t agent.Tool) openaisdk.ChatCompletionToolUnionParam {
	f := shared.FunctionDefinitionParam{Name: name}
	if t.Description != "" {
		f.Description = openaisdk.String(t.Description)
	}
	if len(t.InputSchema) > 0 {
		f.SetExtraFields(map[string]any{"parameters": t.InputSchema})
	}
	return openaisdk.ChatCompletionFunctionTool(f)
}
