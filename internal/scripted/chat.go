package scripted

import (
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

type chatRequest struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role      string         `json:"role"`
		Content   jsontext.Value `json:"content"`
		ToolCalls []struct {
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
}

func parseChat(_ *http.Request, body []byte) (Turn, error) {
	var q chatRequest
	if err := json.Unmarshal(body, &q); err != nil {
		return Turn{}, fmt.Errorf("parse chat request: %w", err)
	}
	t := Turn{Model: q.Model, Stream: q.Stream}
	for _, m := range q.Messages {
		switch m.Role {
		case "user":
			t.user(said(m.Content))
		case "assistant":
			for _, c := range m.ToolCalls {
				t.made(c.Function.Name, c.Function.Arguments)
			}
		case "tool":
			t.result(textOf(m.Content))
		}
	}
	for _, tool := range q.Tools {
		t.Tools = append(t.Tools, tool.Function.Name)
	}
	return t, nil
}

func writeChat(out *output, t Turn, r Reply) {
	id := fmt.Sprintf("chatcmpl-%d", t.N)
	usage := object{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
	var calls array
	for i, c := range r.Calls {
		calls = append(calls, object{
			"index": i, "id": callID(t, i), "type": "function",
			"function": object{"name": c.Tool, "arguments": c.Args},
		})
	}
	finish := "stop"
	if calls != nil {
		finish = "tool_calls"
	}
	if !t.Stream {
		message := object{"role": "assistant", "content": r.Text}
		if calls != nil {
			message["content"], message["tool_calls"] = nil, calls
		}
		out.document(object{
			"id": id, "object": "chat.completion", "created": 1, "model": t.Model, "usage": usage,
			"choices": array{object{"index": 0, "message": message, "finish_reason": finish}},
		})
		return
	}
	chunk := func(choices array, more object) {
		e := object{"id": id, "object": "chat.completion.chunk", "created": 1, "model": t.Model, "choices": choices}
		maps.Copy(e, more)
		out.event("", e)
	}
	delta := func(d object, finish any) {
		chunk(array{object{"index": 0, "delta": d, "finish_reason": finish}}, nil)
	}
	delta(object{"role": "assistant", "content": ""}, nil)
	if calls != nil {
		delta(object{"tool_calls": calls}, nil)
	} else {
		for _, word := range strings.SplitAfter(r.Text, " ") {
			delta(object{"content": word}, nil)
		}
	}
	delta(object{}, finish)
	chunk(array{}, object{"usage": usage})
	out.event("", rawText("[DONE]"))
}

func callID(t Turn, i int) string { return fmt.Sprintf("call_%d_%d", t.N, i) }
