package pageserver

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Frame is a message to clients. It is made once, however many get it.
type Frame struct{ text []byte }

// Size is that of the message, in bytes.
func (f *Frame) Size() int { return len(f.text) }

// NewFrame makes what is pushed for a topic. Data is encoded as encoding/json
// does, and nil is left out.
func NewFrame(topic Topic, action string, data any) (*Frame, error) {
	return encode(struct {
		Topic  string `json:"topic"`
		Action string `json:"action"`
		Data   any    `json:"data,omitempty"`
	}{topic.String(), action, data})
}

func gapFrame(topic Topic) *Frame {
	f, err := NewFrame(topic, actionGap, nil)
	if err != nil { // a topic is text
		return &Frame{}
	}
	return f
}

// resultFrame answers a request.
func resultFrame(id int64, result any) (*Frame, error) {
	return encode(struct {
		ID     int64 `json:"id"`
		Result any   `json:"result"`
	}{id, result})
}

// errorFrame answers one that failed.
func errorFrame(id int64, e *Error) *Frame {
	f, err := encode(struct {
		ID    int64  `json:"id"`
		Error *Error `json:"error"`
	}{id, e})
	if err != nil { // text again
		return &Frame{}
	}
	return f
}

// encode writes JSON as it stands: the page never makes markup of it.
func encode(v any) (*Frame, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode frame: %w", err)
	}
	return &Frame{bytes.TrimSuffix(b.Bytes(), []byte("\n"))}, nil
}
