package mcpserver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// frame is what routing must know of one message. Names match by case, and a
// duplicate name anywhere makes a frame invalid: two readers could otherwise
// see two messages in one.
type frame struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitempty"`
	Method  *string        `json:"method,omitempty"`
	Params  jsontext.Value `json:"params,omitempty"`
	Result  jsontext.Value `json:"result,omitempty"`
	Error   jsontext.Value `json:"error,omitempty"`
}

// parseFrame reads one message. On an error the frame holds the id as far as it
// could be read.
func parseFrame(data []byte) (frame, *jsonrpc.Error) {
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		// Of what is no JSON, or has a name twice, the id is nobody's.
		code := int64(codeInvalidRequest)
		if !jsontext.Value(data).IsValid() {
			code, f.ID = codeParseError, nil
		}
		if !validID(f.ID) {
			f.ID = nil
		}
		return f, newError(code, "this is not one JSON-RPC message: "+err.Error(), nil)
	}
	if f.Params.Kind() == 'n' {
		f.Params = nil // some clients spell what they leave out
	}
	switch {
	case f.ID != nil && !validID(f.ID):
		f.ID = nil
		return f, newError(codeInvalidRequest, "the id must be a string, or an integer within ±2^53; use a string for others", nil)
	case f.JSONRPC != "2.0":
		return f, newError(codeInvalidRequest, `the member "jsonrpc" must be "2.0"`, nil)
	case f.Method == nil && (f.ID == nil || f.Result == nil && f.Error == nil):
		return f, newError(codeInvalidRequest, "a message is a request with a method, or a response with an id", nil)
	case f.isCall() && strings.HasPrefix(*f.Method, "notifications/"):
		return f, newError(codeInvalidRequest, "a notification has no id: leave it out", nil)
	case f.Method != nil && len(f.Params) > 0 && f.Params.Kind() != '{':
		return f, newError(codeInvalidRequest, "params must be an object", nil)
	}
	return f, nil
}

// maxID bounds an id, in bytes.
const maxID = 512

// validID reports whether an id comes back as it was: the SDK reads numbers as
// floats.
func validID(id jsontext.Value) bool {
	if len(id) == 0 || len(id) > maxID {
		return false
	}
	if id.Kind() == '"' {
		return true
	}
	if string(id) == "-0" {
		return false
	}
	digits := id
	if digits[0] == '-' {
		digits = digits[1:]
	}
	const most = "9007199254740992" // 2^53
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(digits) > 0 && (len(digits) < len(most) || len(digits) == len(most) && string(digits) <= most)
}

func (f *frame) isCall() bool { return f.Method != nil && f.ID != nil }

func (f *frame) method() string {
	if f.Method == nil {
		return ""
	}
	return *f.Method
}

// version is the revision that _meta of a request names, or empty.
func (f *frame) version() string {
	var p struct {
		Meta map[string]jsontext.Value `json:"_meta"`
	}
	if len(f.Params) == 0 || json.Unmarshal(f.Params, &p) != nil {
		return ""
	}
	var v string
	if json.Unmarshal(p.Meta[mcp.MetaKeyProtocolVersion], &v) != nil {
		return ""
	}
	return v
}

// modern reports whether a request is one of the era without initialize.
func (f *frame) modern() bool { return f.version() >= modernVersion }

// pinLegacy makes the params of initialize ask for a legacy revision. The SDK
// negotiates one anyway, but then takes the session for what it had asked for.
func pinLegacy(params jsontext.Value) (jsontext.Value, string) {
	var p map[string]jsontext.Value
	if json.Unmarshal(params, &p) != nil {
		return params, "" // the SDK says what is wrong
	}
	var v string
	if json.Unmarshal(p["protocolVersion"], &v) != nil || slices.Contains(legacyVersions, v) {
		return params, v
	}
	v = legacyVersions[0]
	p["protocolVersion"] = jsontext.Value(`"` + v + `"`)
	pinned, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		return params, v
	}
	return pinned, v
}

// notSupported is the answer to a version that no revision has.
func notSupported(requested string) *jsonrpc.Error {
	return newError(codeVersion, fmt.Sprintf("protocol version %q is not supported", requested), map[string]any{
		"supported": append([]string{modernVersion}, legacyVersions...), "requested": requested,
	})
}
