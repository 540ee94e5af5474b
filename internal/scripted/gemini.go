package scripted

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

type geminiRequest struct {
	Contents []struct {
		Role  string `json:"role"`
		Parts []struct {
			Text         string `json:"text"`
			FunctionCall *struct {
				Name string         `json:"name"`
				Args jsontext.Value `json:"args"`
			} `json:"functionCall"`
			FunctionResponse *struct {
				Response jsontext.Value `json:"response"`
			} `json:"functionResponse"`
		} `json:"parts"`
	} `json:"contents"`
	Tools []struct {
		FunctionDeclarations []struct {
			Name string `json:"name"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
}

func parseGemini(r *http.Request, body []byte) (Turn, error) {
	var q geminiRequest
	if err := json.Unmarshal(body, &q); err != nil {
		return Turn{}, fmt.Errorf("parse generateContent request: %w", err)
	}
	model, _, _ := strings.Cut(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:], ":")
	t := Turn{Model: model, Stream: strings.Contains(r.URL.Path, ":stream")}
	for _, c := range q.Contents {
		for _, p := range c.Parts {
			switch {
			case p.FunctionCall != nil:
				t.made(p.FunctionCall.Name, string(p.FunctionCall.Args))
			case p.FunctionResponse != nil:
				t.result(string(p.FunctionResponse.Response))
			case c.Role == "user" && !isReminder(p.Text):
				t.user(p.Text)
			}
		}
	}
	for _, tool := range q.Tools {
		for _, f := range tool.FunctionDeclarations {
			t.Tools = append(t.Tools, f.Name)
		}
	}
	return t, nil
}

func writeGemini(out *output, t Turn, r Reply) {
	parts := array{}
	for i, c := range r.Calls {
		parts = append(parts, object{"functionCall": object{"id": callID(t, i), "name": c.Tool, "args": jsontext.Value(c.Args)}})
	}
	if len(r.Calls) == 0 {
		parts = append(parts, object{"text": r.Text})
	}
	reply := object{
		"candidates":    array{object{"index": 0, "content": object{"role": "model", "parts": parts}, "finishReason": "STOP"}},
		"usageMetadata": object{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
		"modelVersion":  t.Model, "responseId": fmt.Sprint(t.N),
	}
	if t.Stream {
		out.event("", reply)
		return
	}
	out.document(reply)
}
