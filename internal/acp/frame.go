package acp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// frame is one line of the protocol, taken apart and not yet understood. Its
// values are parts of the line, byte for byte.
type frame struct {
	line   []byte
	id     jsontext.Value // string, number or null; nil for a notification
	method string         // empty for a response
	params jsontext.Value
	result jsontext.Value
	err    jsontext.Value // never the literal null
}

func (f frame) isRequest() bool  { return f.method != "" && f.id != nil }
func (f frame) isResponse() bool { return f.method == "" }

var errNotFrame = errors.New("not a JSON-RPC frame")

// parseFrame takes a line apart. The parts may still be damaged: a duplicate
// name or bad UTF-8 inside params shall fail that request, not the connection.
func parseFrame(line []byte) (frame, error) {
	f := frame{line: line}
	d := jsontext.NewDecoder(bytes.NewBuffer(line), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if d.PeekKind() != '{' {
		return f, errNotFrame
	}
	if _, err := d.ReadToken(); err != nil {
		return f, fmt.Errorf("%w: %w", errNotFrame, err)
	}
	seen := 0
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return f, fmt.Errorf("%w: %w", errNotFrame, err)
		}
		key := name.String()
		value, err := d.ReadValue()
		if err != nil {
			return f, fmt.Errorf("%w: %w", errNotFrame, err)
		}
		bit, err := f.member(key, bytes.Clone(value))
		if err != nil {
			return f, err
		}
		if seen&bit != 0 {
			return f, fmt.Errorf("%w: duplicate %s", errNotFrame, key)
		}
		seen |= bit
	}
	if _, err := d.ReadToken(); err != nil {
		return f, fmt.Errorf("%w: %w", errNotFrame, err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return f, fmt.Errorf("%w: text after its end", errNotFrame)
	}
	if f.method == "" && (f.id == nil || (f.result == nil && f.err == nil)) {
		return f, fmt.Errorf("%w: neither request nor response", errNotFrame)
	}
	return f, nil
}

// member sets one member and returns a bit that stands for its name.
func (f *frame) member(name string, v jsontext.Value) (int, error) {
	switch name {
	case "id":
		if k := v.Kind(); k != '"' && k != '0' && k != 'n' {
			return 0, fmt.Errorf("%w: id is neither string nor number", errNotFrame)
		}
		f.id = v
		return 1, nil
	case "method":
		if err := json.Unmarshal(v, &f.method); err != nil || f.method == "" {
			return 0, fmt.Errorf("%w: method is no name", errNotFrame)
		}
		return 2, nil
	case "params":
		f.params = v
		return 4, nil
	case "result":
		f.result = v
		return 8, nil
	case "error":
		if v.Kind() != 'n' {
			f.err = v
		}
		return 16, nil
	default:
		return 0, nil
	}
}

// call returns the number of our call that a response answers. Some peers
// answer with the number as a string.
func (f frame) call() (int64, bool) {
	id := f.id
	if id.Kind() == '"' && len(id) > 2 {
		id = id[1 : len(id)-1]
	}
	n, err := strconv.ParseInt(string(id), 10, 64)
	return n, err == nil
}

// decode reads params, a result or an error: names match by case, duplicate
// names are refused, members that we do not know are ignored.
func decode(v jsontext.Value, into any) error {
	if len(v) == 0 {
		v = jsontext.Value("{}")
	}
	if err := json.Unmarshal(v, into); err != nil {
		return fmt.Errorf("decode params: %w", err)
	}
	return nil
}

// encode writes what is ours; invalid UTF-8 becomes U+FFFD.
func encode(v any) (jsontext.Value, error) {
	// Agents that split lines with Node's readline take U+2028 for the end of one.
	b, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true), jsontext.EscapeForJS(true))
	if err != nil {
		return nil, fmt.Errorf("encode frame: %w", err)
	}
	return b, nil
}

// RPCError is an error that the agent answered.
type RPCError struct {
	Code    int64
	Message string
	Data    jsontext.Value // raw, may be nil
}

func (e *RPCError) Error() string {
	s := e.Message
	if s == "" {
		s = "no message"
	}
	s = fmt.Sprintf("agent answered error %d: %s", e.Code, clip(s))
	if len(e.Data) > 0 {
		s += " " + clip(string(e.Data))
	}
	return s
}

// maxErrorText bounds what an error repeats of the agent's words, in bytes.
const maxErrorText = 500

func clip(s string) string {
	if len(s) <= maxErrorText {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:maxErrorText]), nil)) + "…"
}

// rpcError reads the error of a response, whatever its shape.
func rpcError(raw jsontext.Value) *RPCError {
	var e struct {
		Code    int64          `json:"code"`
		Message string         `json:"message"`
		Data    jsontext.Value `json:"data"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return &RPCError{Code: codeInternal, Message: "unreadable error", Data: raw}
	}
	return &RPCError{Code: e.Code, Message: e.Message, Data: e.Data}
}
