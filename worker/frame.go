package worker

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/internal/jsonx"
)

// kind is what a frame is.
type kind int

const (
	kindRequest kind = iota + 1
	kindNotification
	kindResult
	kindError
)

// maxID bounds the length of the id of a request, in bytes of JSON.
const maxID = 256

// frame is one JSON-RPC message, validated as far as JSON-RPC goes. The parts
// are slices of the message that was parsed.
type frame struct {
	kind   kind
	id     jsontext.Value // a string or integer; null in an error about a frame whose id was not readable
	method string
	params jsontext.Value // an object or array, or nil
	result jsontext.Value
	err    *wireError
}

// wireError is the error object of JSON-RPC.
type wireError struct {
	Code    int64          `json:"code"`
	Message string         `json:"message"`
	Data    jsontext.Value `json:"data,omitzero"`
}

// Error implements error.
func (e *wireError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// frameError says how a frame is broken, with the code that answers it. The id
// is that of the frame, if it could be read.
type frameError struct {
	code int64
	id   jsontext.Value
	why  string
}

func (e *frameError) Error() string { return e.why }

// nullID stands for the id of a frame that could not be read.
var nullID = jsontext.Value("null")

// parseFrame reads one message: exactly one JSON object in UTF-8 and a JSON-RPC
// 2.0 message, or a *frameError. It is stricter than the Go SDK for MCP, which
// loses a second value, rounds ids and lets the last of two equal names win.
func parseFrame(data []byte) (frame, *frameError) {
	var v, method jsonx.Span
	var id, params, result, failure jsonx.Span
	object, err := jsonx.ScanObject(data, func(name string, at jsonx.Span) {
		switch name {
		case "jsonrpc":
			v = at
		case "id":
			id = at
		case "method":
			method = at
		case "params":
			params = at
		case "result":
			result = at
		case "error":
			failure = at
		}
	})
	f := frame{id: nullID}
	if err == nil && id.Found() {
		if raw := id.Of(data); validID(raw) {
			f.id = raw
		}
	}
	bad := func(why string) (frame, *frameError) {
		return frame{}, &frameError{codeInvalidRequest, bytes.Clone(f.id), why}
	}
	switch {
	case err != nil && !jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true)):
		return frame{}, &frameError{codeParse, nullID, "the message is not one JSON value"}
	case err != nil:
		return bad("the message repeats a name or exceeds a bound")
	case !object:
		return bad("the message is not an object; there are no batches")
	case !v.Found() || string(v.Of(data)) != `"2.0"`:
		return bad(`jsonrpc is not "2.0"`)
	case id.Found() && len(f.id) == 4 && f.id[0] == 'n' && (!failure.Found() || string(id.Of(data)) != "null"):
		return bad("the id is neither a string nor an integer")
	}
	if method.Found() {
		return parseCall(data, f, method, id, params, result, failure, bad)
	}
	return parseAnswer(data, f, id, result, failure, bad)
}

func parseCall(data []byte, f frame, method, id, params, result, failure jsonx.Span, bad func(string) (frame, *frameError)) (frame, *frameError) {
	if result.Found() || failure.Found() {
		return bad("the message has a method and an answer")
	}
	raw := method.Of(data)
	if raw[0] != '"' {
		return bad("the method is not a string")
	}
	name, err := jsontext.AppendUnquote(nil, raw)
	if err != nil || len(name) == 0 {
		return bad("the method is not a name")
	}
	f.method = string(name)
	if params.Found() {
		f.params = params.Of(data)
		if f.params[0] != '{' && f.params[0] != '[' {
			return bad("the params are neither an object nor an array")
		}
	}
	f.kind = kindNotification
	if id.Found() {
		f.kind = kindRequest
	}
	return f, nil
}

func parseAnswer(data []byte, f frame, id, result, failure jsonx.Span, bad func(string) (frame, *frameError)) (frame, *frameError) {
	switch {
	case !result.Found() && !failure.Found():
		return bad("the message has neither a method nor an answer")
	case result.Found() && failure.Found():
		return bad("the message has a result and an error")
	case !id.Found():
		return bad("the answer has no id")
	case result.Found():
		f.kind, f.result = kindResult, result.Of(data)
		return f, nil
	}
	f.kind, f.err = kindError, &wireError{}
	if err := json.Unmarshal(failure.Of(data), f.err); err != nil || failure.Of(data)[0] != '{' {
		return bad("the error is not an object with a code and a message")
	}
	return f, nil
}

// validID reports whether raw is a string or an integer literal.
func validID(raw []byte) bool {
	if len(raw) == 0 || len(raw) > maxID {
		return false
	}
	if raw[0] == '"' {
		return true
	}
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return false
	}
	return !bytes.ContainsAny(raw, ".eE")
}

// intID is the id of one of our own requests.
func intID(n int64) jsontext.Value { return strconv.AppendInt(nil, n, 10) }

// ourID reads back an id that intID made.
func ourID(raw jsontext.Value) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// kindName names a kind of JSON value for people.
func kindName(k jsontext.Kind) string {
	switch k {
	case '0':
		return "a number"
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "nothing"
	}
}
