package scripted

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

type anthropicRequest struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role    string         `json:"role"`
		Content jsontext.Value `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name string `json:"name"`
	} `json:"tools"`
}

type anthropicBlock struct {
	Type    string         `json:"type"`
	Text    string         `json:"text"`
	Name    string         `json:"name"`
	Input   jsontext.Value `json:"input"`
	Content jsontext.Value `json:"content"`
}

func parseAnthropic(_ *http.Request, body []byte) (Turn, error) {
	var q anthropicRequest
	if err := json.Unmarshal(body, &q); err != nil {
		return Turn{}, fmt.Errorf("parse messages request: %w", err)
	}
	t := Turn{Model: q.Model, Stream: q.Stream}
	for _, m := range q.Messages {
		if m.Content.Kind() == '"' {
			if m.Role == "user" {
				t.user(textOf(m.Content))
			}
			continue
		}
		var blocks []anthropicBlock
		if err := json.Unmarshal(m.Content, &blocks); err != nil {
			return Turn{}, fmt.Errorf("parse message content: %w", err)
		}
		t.anthropic(blocks, m.Role == "user")
	}
	for _, tool := range q.Tools {
		t.Tools = append(t.Tools, tool.Name)
	}
	return t, nil
}

// anthropic reads one message. Reminders that the agent adds to a user message
// are not what the user said.
func (t *Turn) anthropic(blocks []anthropicBlock, fromUser bool) {
	text := ""
	for _, b := range blocks {
		switch {
		case b.Type == "tool_use":
			t.made(b.Name, string(b.Input))
		case b.Type == "tool_result":
			t.result(textOf(b.Content))
		case b.Type == "text" && fromUser && !isReminder(b.Text):
			text = b.Text
		}
	}
	if fromUser {
		t.user(text)
	}
}

func writeAnthropic(out *output, t Turn, r Reply) {
	usage := object{"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
	message := func(content array, stop any) object {
		return object{
			"id": fmt.Sprintf("msg_%d", t.N), "type": "message", "role": "assistant", "model": t.Model,
			"content": content, "stop_reason": stop, "stop_sequence": nil, "usage": usage,
		}
	}
	stop := "end_turn"
	if len(r.Calls) > 0 {
		stop = "tool_use"
	}
	if !t.Stream {
		content := array{}
		for i, c := range r.Calls {
			content = append(content, toolUse(t, i, jsontext.Value(c.Args), c.Tool))
		}
		if len(r.Calls) == 0 {
			content = append(content, object{"type": "text", "text": r.Text})
		}
		out.document(message(content, stop))
		return
	}
	event := func(kind string, e object) {
		e["type"] = kind
		out.event(kind, e)
	}
	block := func(i int, start object, deltas ...object) {
		event("content_block_start", object{"index": i, "content_block": start})
		for _, d := range deltas {
			event("content_block_delta", object{"index": i, "delta": d})
		}
		event("content_block_stop", object{"index": i})
	}
	event("message_start", object{"message": message(array{}, nil)})
	for i, c := range r.Calls {
		block(i, toolUse(t, i, jsontext.Value("{}"), c.Tool), object{"type": "input_json_delta", "partial_json": c.Args})
	}
	if len(r.Calls) == 0 {
		var deltas []object
		for _, word := range strings.SplitAfter(r.Text, " ") {
			deltas = append(deltas, object{"type": "text_delta", "text": word})
		}
		block(0, object{"type": "text", "text": ""}, deltas...)
	}
	event("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": usage})
	event("message_stop", object{})
}

func toolUse(t Turn, i int, input jsontext.Value, name string) object {
	return object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d_%d", t.N, i), "name": name, "input": input}
}
