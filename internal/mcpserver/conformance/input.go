//nolint:staticcheck // The scenarios ask for sampling, roots and logging, which are deprecated.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The tools here ask the client for something: in the modern era by a result
// that wants input, in the legacy one by a request of the server's. Handlers
// say what they want once; the SDK does it in the way of the era.

// asks are input requests by their keys.
type asks = mcp.InputRequestMap

func want(requests asks, state string) *mcp.CallToolResult {
	return &mcp.CallToolResult{InputRequests: requests, RequestState: state}
}

// askFor elicits the properties of a JSON Schema, given as JSON members.
func askFor(message, properties string, required ...string) *mcp.ElicitParams {
	r, _ := json.Marshal(required) // strings
	if required == nil {
		r = []byte("[]")
	}
	return &mcp.ElicitParams{Message: message, RequestedSchema: json.RawMessage(`{"type":"object","properties":{` + properties + `},"required":` + string(r) + `}`)}
}

func askName() *mcp.ElicitParams {
	return askFor("What is your name?", `"name":{"type":"string"}`, "name")
}

func askConfirm() *mcp.ElicitParams {
	return askFor("Please confirm", `"ok":{"type":"boolean"}`, "ok")
}

func sample(prompt string, maxTokens int64) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{MaxTokens: maxTokens, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: prompt}}}}
}

// accepted is the content of an elicitation that was accepted, or nil.
func accepted(responses mcp.InputResponseMap, key string) map[string]any {
	if r, ok := responses[key].(*mcp.ElicitResult); ok && r != nil && r.Action == "accept" {
		return r.Content
	}
	return nil
}

// sampled is the text of a sampling response, or empty.
func sampled(responses mcp.InputResponseMap, key string) string {
	r, ok := responses[key].(*mcp.CreateMessageWithToolsResult)
	if !ok || r == nil {
		return ""
	}
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			return t.Text
		}
	}
	return ""
}

func roots(responses mcp.InputResponseMap, key string) ([]string, bool) {
	r, ok := responses[key].(*mcp.ListRootsResult)
	if !ok || r == nil {
		return nil, false
	}
	var uris []string
	for _, root := range r.Roots {
		uris = append(uris, root.URI)
	}
	return uris, true
}

func addInputTools(s *mcp.Server, seal *sealer) {
	addTool(s, "test_sampling", "Asks the client's model", `{"type":"object","properties":{"prompt":{"type":"string"}},"required":["prompt"]}`, askModel)
	elicit := func(name, schema string, ask func(message string) *mcp.ElicitParams) {
		addTool(s, name, "Asks the client's user", schema, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if r, ok := req.Params.InputResponses["input"].(*mcp.ElicitResult); ok {
				b, err := json.Marshal(r.Content)
				return text(fmt.Sprintf("Elicitation completed: action=%s, content=%s", r.Action, b)), err
			}
			return want(asks{"input": ask(argument(req, "message"))}, ""), nil
		})
	}
	elicit("test_elicitation", `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`, func(message string) *mcp.ElicitParams {
		return askFor(message, `"username":{"type":"string","description":"Your name"},"email":{"type":"string","description":"Your address"}`, "username", "email")
	})
	elicit("test_elicitation_sep1034_defaults", none, func(string) *mcp.ElicitParams { return askFor("Values with defaults", withDefaults) })
	elicit("test_elicitation_sep1330_enums", none, func(string) *mcp.ElicitParams { return askFor("Values of enumerations", withEnums) })

	addTool(s, "test_input_required_result_elicitation", "Asks for a name", none, greet)
	addTool(s, "test_input_required_result_sampling", "Asks a model", none, askCapital)
	addTool(s, "test_input_required_result_list_roots", "Asks for roots", none, askRoots)
	addTool(s, "test_input_required_result_multiple_inputs", "Asks for three things at once", none, seal.askThree)
	addTool(s, "test_input_required_result_capabilities", "Asks for what the client can give", none, askPossible)
	addTool(s, "test_input_required_result_multi_round", "Asks twice", none, seal.askTwice)
	for _, name := range []string{"test_input_required_result_request_state", "test_input_required_result_tampered_state"} {
		addTool(s, name, "Asks, with a state that must come back as it was", none, seal.confirm)
	}
}

func argument(req *mcp.CallToolRequest, name string) string {
	var args map[string]any
	_ = json.Unmarshal(req.Params.Arguments, &args) // what is missing stays empty
	s, _ := args[name].(string)
	return s
}

const withDefaults = `
	"name":{"type":"string","description":"A name","default":"John Doe"},
	"age":{"type":"integer","description":"An age","default":30},
	"score":{"type":"number","description":"A score","default":95.5},
	"status":{"type":"string","description":"A status","enum":["active","inactive","pending"],"default":"active"},
	"verified":{"type":"boolean","description":"Whether it is verified","default":true}`

const withEnums = `
	"untitledSingle":{"type":"string","description":"One of three","enum":["option1","option2","option3"]},
	"titledSingle":{"type":"string","description":"One with a title","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
	"legacyEnum":{"type":"string","description":"One in the older way","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
	"untitledMulti":{"type":"array","description":"Several of three","minItems":1,"maxItems":3,"items":{"type":"string","enum":["option1","option2","option3"]}},
	"titledMulti":{"type":"array","description":"Several with titles","minItems":1,"maxItems":3,"items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}`

func askModel(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if _, ok := req.Params.InputResponses["input"]; ok {
		return text("LLM response: " + sampled(req.Params.InputResponses, "input")), nil
	}
	return want(asks{"input": sample(argument(req, "prompt"), 100)}, ""), nil
}

func greet(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if name, _ := accepted(req.Params.InputResponses, "user_name")["name"].(string); name != "" {
		return text("Hello, " + name + "!"), nil
	}
	return want(asks{"user_name": askName()}, ""), nil
}

func askCapital(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if answer := sampled(req.Params.InputResponses, "capital_question"); answer != "" {
		return text("The model says: " + answer), nil
	}
	return want(asks{"capital_question": sample("What is the capital of France?", 100)}, ""), nil
}

func askRoots(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if uris, ok := roots(req.Params.InputResponses, "client_roots"); ok {
		return text("The roots are: " + strings.Join(uris, ", ")), nil
	}
	return want(asks{"client_roots": &mcp.ListRootsParams{}}, ""), nil
}

// askPossible asks only for what the client says it can give.
func askPossible(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if got := slices.Sorted(maps.Keys(req.Params.InputResponses)); len(got) > 0 {
		return text("The client gave: " + strings.Join(got, ", ")), nil
	}
	requests := asks{}
	caps := req.ClientCapabilities()
	if caps == nil {
		caps = &mcp.ClientCapabilities{}
	}
	if caps.Elicitation != nil {
		requests["user_name"] = askName()
	}
	if caps.Sampling != nil {
		requests["greeting"] = sample("Write a short greeting", 50)
	}
	if caps.RootsV2 != nil {
		requests["client_roots"] = &mcp.ListRootsParams{}
	}
	if len(requests) == 0 {
		return text("The client can give nothing."), nil
	}
	return want(requests, ""), nil
}

// sealer makes states that a client can keep but not change. The key is of this
// process: a state is good as long as the server runs.
type sealer struct{ key []byte }

func newSealer() *sealer {
	s := &sealer{key: make([]byte, 32)}
	_, _ = rand.Read(s.key) // it cannot fail
	return s
}

// seal binds a state to its tool.
func (s *sealer) seal(tool, state string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(state)) + "." + base64.RawURLEncoding.EncodeToString(s.sum(tool, state))
}

func (s *sealer) sum(tool, state string) []byte {
	m := hmac.New(sha256.New, s.key)
	fmt.Fprintf(m, "%q %q", tool, state)
	return m.Sum(nil)
}

// open returns the state of a request; empty is that of the first one.
func (s *sealer) open(req *mcp.CallToolRequest) (string, error) {
	sealed := req.Params.RequestState
	if sealed == "" {
		return "", nil
	}
	head, tail, _ := strings.Cut(sealed, ".")
	state, err := base64.RawURLEncoding.DecodeString(head)
	if err == nil {
		var sum []byte
		if sum, err = base64.RawURLEncoding.DecodeString(tail); err == nil && hmac.Equal(sum, s.sum(req.Params.Name, string(state))) {
			return string(state), nil
		}
	}
	return "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "requestState is not what this server gave out: call the tool again without it"}
}

// confirm wants a confirmation, and its state back.
func (s *sealer) confirm(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	state, err := s.open(req)
	if err != nil {
		return nil, err
	}
	if state != "" && accepted(req.Params.InputResponses, "confirm") != nil {
		return text("state-ok: the confirmation came with its state"), nil
	}
	return want(asks{"confirm": askConfirm()}, s.seal(req.Params.Name, "asked")), nil
}

func (s *sealer) askThree(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if _, err := s.open(req); err != nil {
		return nil, err
	}
	in := req.Params.InputResponses
	name, _ := accepted(in, "user_name")["name"].(string)
	greeting := sampled(in, "greeting")
	uris, ok := roots(in, "client_roots")
	if name != "" && greeting != "" && ok {
		return text(fmt.Sprintf("%s %s, with %d roots", greeting, name, len(uris))), nil
	}
	return want(asks{"user_name": askName(), "greeting": sample("Write a greeting", 50), "client_roots": &mcp.ListRootsParams{}}, s.seal(req.Params.Name, "asked")), nil
}

// askTwice keeps the first answer in the state of the second round.
func (s *sealer) askTwice(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	state, err := s.open(req)
	if err != nil {
		return nil, err
	}
	in := req.Params.InputResponses
	if first, ok := strings.CutPrefix(state, "2:"); ok {
		color, _ := accepted(in, "step2")["color"].(string)
		return text(fmt.Sprintf("%s likes %s", first, color)), nil
	}
	if state == "1" {
		name, _ := accepted(in, "step1")["name"].(string)
		return want(asks{"step2": askFor("Step 2: What is your favorite color?", `"color":{"type":"string"}`, "color")}, s.seal(req.Params.Name, "2:"+name)), nil
	}
	return want(asks{"step1": askFor("Step 1: What is your name?", `"name":{"type":"string"}`, "name")}, s.seal(req.Params.Name, "1")), nil
}
