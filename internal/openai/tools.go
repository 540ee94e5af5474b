package openai

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	openaisdk "github.com/openai/openai-go/v3"

	"github.com/ossicle/ossicle/agent"
)

// toolbox is what the model may call, by the names that it sees.
type toolbox struct {
	tools  map[string]agent.Tool
	params []openaisdk.ChatCompletionToolUnionParam
}

// maxName is the longest name of a tool that the API takes.
const maxName = 64

func newToolbox(tools []agent.Tool) *toolbox {
	b := &toolbox{tools: map[string]agent.Tool{}}
	for _, t := range tools {
		name := apiName(t.Name)
		for n := 2; ; n++ {
			if _, taken := b.tools[name]; !taken {
				break
			}
			suffix := fmt.Sprintf("_%d", n)
			name = apiName(t.Name)
			name = name[:min(len(name), maxName-len(suffix))] + suffix
		}
		b.tools[name] = t
		b.params = append(b.params, functionTool(name, t))
	}
	return b
}

// apiName makes a name of the letters that the API takes.
func apiName(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		default:
			return '_'
		}
	}, s)
	if s == "" {
		s = "tool"
	}
	return s[:min(len(s), maxName)]
}

// runTools runs the calls of one answer, one after the other, and reports
// whether one of them has ended the turn. An error is ctx's.
func (e *Engine) runTools(ctx context.Context, t *turn, calls []call, ids []string) (over bool, err error) {
	for i, c := range calls {
		if over || i >= maxCalls {
			text := "Not called: the turn is over."
			if !over {
				text = fmt.Sprintf("Not called: an answer may hold %d calls.", maxCalls)
			}
			e.history.result(t.n, ids[i], text)
			continue
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		r := e.runTool(ctx, ids[i], c)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		e.history.result(t.n, ids[i], r.Text)
		over = r.EndTurn
	}
	return over, nil
}

func (e *Engine) runTool(ctx context.Context, id string, c call) agent.ToolResult {
	if c.args == "" {
		c.args = "{}"
	}
	tool, known := e.tools.tools[c.name]
	shown := agent.ToolCall{ID: id, Title: clip(c.name, maxErrorText), Kind: "other", Status: agent.ToolRunning}
	if tool.ReadOnly {
		shown.Kind = "read"
	}
	ok := isObject(c.args)
	if ok {
		shown.Input = stdjson.RawMessage(c.args)
	}
	e.emit(shown)
	var r agent.ToolResult
	switch {
	case !known:
		r = agent.ToolResult{Text: fmt.Sprintf("There is no tool %q.", clip(c.name, maxErrorText)), IsError: true}
	case !ok:
		r = agent.ToolResult{Text: "The arguments are not a JSON object: " + clip(objectError(c.args).Error(), maxErrorText), IsError: true}
	default:
		var err error
		if r, err = tool.Call(ctx, stdjson.RawMessage(c.args)); err != nil {
			r = agent.ToolResult{Text: "The tool failed: " + clip(err.Error(), maxErrorText), IsError: true}
		}
	}
	if full := len(r.Text); full > maxResult {
		r.Text = clip(r.Text, maxResult) + fmt.Sprintf("\n[cut: %d bytes]", full)
	}
	r.Text = strings.ToValidUTF8(r.Text, "\uFFFD")
	done := agent.ToolCall{ID: id, Status: agent.ToolCompleted}
	if r.IsError {
		done.Status = agent.ToolFailed
	}
	if out, err := stdjson.Marshal(r.Text); err == nil {
		done.Output = out
	}
	e.emit(done)
	return r
}

func isObject(args string) bool { return objectError(args) == nil }

// objectError says why a text is not a JSON object; duplicate names make it
// none.
func objectError(args string) error {
	v := jsontext.Value(args)
	if v.Kind() != '{' {
		return fmt.Errorf("it begins with %q", clip(strings.TrimSpace(args), 10))
	}
	d := jsontext.NewDecoder(strings.NewReader(args))
	if _, err := d.ReadValue(); err != nil {
		return err
	}
	if d.PeekKind() != 0 {
		return fmt.Errorf("text after its end at %d", d.InputOffset())
	}
	return nil
}
