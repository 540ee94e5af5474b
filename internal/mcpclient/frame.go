package mcpclient

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxFrame bounds one message of a server, in bytes, on every transport
// (specification M-16).
const maxFrame = 16 << 20

// lax is what is forgiven in foreign JSON: text that is no UTF-8, as tools
// produce by quoting files. Duplicate names never are, and names match by case.
var lax = json.JoinOptions(jsontext.AllowInvalidUTF8(true))

// header is what tells one message from another.
type header struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitempty"`
	Method  *string        `json:"method"`
	Result  jsontext.Value `json:"result,omitempty"`
	Error   jsontext.Value `json:"error,omitempty"`
}

// checkFrame decides whether raw is a JSON-RPC message. notMessage is true for
// what does not even try to be one, such as a log line.
func checkFrame(raw []byte) (h header, notMessage bool, err error) {
	if json.Unmarshal(raw, &h, lax) == nil && h.JSONRPC == "2.0" {
		return h, false, nil
	}
	id, version := salvage(raw)
	if version != "2.0" {
		return header{}, true, &FrameError{Problem: "not a JSON-RPC message"}
	}
	return header{ID: id}, false, &FrameError{Problem: "malformed or with duplicate names"}
}

// salvage reads the id and version of a message that cannot be read as a whole,
// as far as they stand before the damage. A message with a method has no id to
// answer for: it is the peer's own.
func salvage(raw []byte) (id jsontext.Value, version string) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil, ""
	}
	for {
		tok, err := dec.ReadToken()
		if err != nil || tok.Kind() != '"' {
			return id, version
		}
		name := tok.String()
		value, err := dec.ReadValue()
		if err != nil {
			return id, version
		}
		switch {
		case name == "jsonrpc" && value.Kind() == '"':
			_ = json.Unmarshal(value, &version)
		case name == "id" && id == nil:
			id = value.Clone()
		case name == "method":
			return nil, version
		}
	}
}

// failure is the response that stands for one that could not be read. It is nil
// when nobody can be told.
func failure(id jsontext.Value, err error) *jsonrpc.Response {
	rid, ok := makeID(id)
	if !ok {
		return nil
	}
	return &jsonrpc.Response{ID: rid, Error: err}
}

func makeID(raw jsontext.Value) (jsonrpc.ID, bool) {
	var v any
	switch raw.Kind() {
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return jsonrpc.ID{}, false
		}
		v = s
	case '0':
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || n != int64(float64(n)) {
			return jsonrpc.ID{}, false
		}
		v = float64(n)
	default:
		return jsonrpc.ID{}, false
	}
	id, err := jsonrpc.MakeID(v)
	return id, err == nil
}
