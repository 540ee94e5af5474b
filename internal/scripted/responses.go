package scripted

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

type responsesRequest struct {
	Model  string         `json:"model"`
	Stream bool           `json:"stream"`
	Input  jsontext.Value `json:"input"`
	Tools  []struct {
		Type  string `json:"type"`
		Name  string `json:"name"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"` // of a namespace
	} `json:"tools"`
}

type responsesItem struct {
	Type      string         `json:"type"`
	Role      string         `json:"role"`
	Content   jsontext.Value `json:"content"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Arguments jsontext.Value `json:"arguments"`
	Output    jsontext.Value `json:"output"`
}

func parseResponses(_ *http.Request, body []byte) (Turn, error) {
	var q responsesRequest
	if err := json.Unmarshal(body, &q); err != nil {
		return Turn{}, fmt.Errorf("parse responses request: %w", err)
	}
	t := Turn{Model: q.Model, Stream: q.Stream}
	if q.Input.Kind() == '"' {
		t.user(textOf(q.Input))
	} else {
		var items []responsesItem
		if err := json.Unmarshal(q.Input, &items); err != nil {
			return Turn{}, fmt.Errorf("parse responses input: %w", err)
		}
		for _, it := range items {
			switch {
			case it.Role == "user":
				t.user(said(it.Content))
			case strings.HasSuffix(it.Type, "_call"):
				t.made(joinNamespace(it.Namespace, it.Name), textOf(it.Arguments))
			case strings.HasSuffix(it.Type, "_call_output"):
				t.result(textOf(it.Output))
			}
		}
	}
	for _, tool := range q.Tools {
		if tool.Name == "" {
			continue // one that the service itself would run
		}
		if tool.Tools == nil {
			t.Tools = append(t.Tools, tool.Name)
		}
		for _, sub := range tool.Tools {
			t.Tools = append(t.Tools, joinNamespace(tool.Name, sub.Name))
		}
	}
	return t, nil
}

func joinNamespace(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "." + name
}

func writeResponses(out *output, t Turn, r Reply) {
	id := fmt.Sprintf("resp_%d", t.N)
	items := responsesItems(t, r)
	head := func(status string, output array) object {
		return object{"id": id, "object": "response", "created_at": 1, "status": status, "model": t.Model, "output": output}
	}
	full := head("completed", items)
	full["usage"] = object{
		"input_tokens": 10, "input_tokens_details": object{"cached_tokens": 0},
		"output_tokens": 5, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": 15,
	}
	if !t.Stream {
		out.document(full)
		return
	}
	sequence := 0
	event := func(kind string, e object) {
		e["type"], e["sequence_number"] = kind, sequence
		sequence++
		out.event(kind, e)
	}
	event("response.created", object{"response": head("in_progress", array{})})
	for i, item := range items {
		event("response.output_item.added", object{"output_index": i, "item": item})
		at := func(e object) object {
			e["item_id"], e["output_index"] = item.(object)["id"], i
			return e
		}
		if len(r.Calls) > 0 {
			event("response.function_call_arguments.delta", at(object{"delta": r.Calls[i].Args}))
			event("response.function_call_arguments.done", at(object{"arguments": r.Calls[i].Args}))
		} else {
			event("response.content_part.added", at(object{"content_index": 0, "part": outputText("")}))
			event("response.output_text.delta", at(object{"content_index": 0, "delta": r.Text}))
			event("response.output_text.done", at(object{"content_index": 0, "text": r.Text}))
		}
		event("response.output_item.done", object{"output_index": i, "item": item})
	}
	event("response.completed", object{"response": full})
}

func responsesItems(t Turn, r Reply) array {
	if len(r.Calls) == 0 {
		return array{object{
			"type": "message", "id": fmt.Sprintf("msg_%d", t.N), "role": "assistant", "status": "completed",
			"content": array{outputText(r.Text)},
		}}
	}
	var items array
	for i, c := range r.Calls {
		item := object{
			"type": "function_call", "id": fmt.Sprintf("fc_%d_%d", t.N, i), "call_id": callID(t, i),
			"name": c.Tool, "arguments": c.Args, "status": "completed",
		}
		if namespace, name, ok := strings.Cut(c.Tool, "."); ok {
			item["namespace"], item["name"] = namespace, name
		}
		items = append(items, item)
	}
	return items
}

func outputText(s string) object {
	return object{"type": "output_text", "text": s, "annotations": array{}}
}
