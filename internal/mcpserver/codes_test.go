//nolint:bodyclose // frame reads bodies to their end and closes them.
package mcpserver

import (
	"fmt"
	"net/http"
	"testing"
)

type oddRequest struct{ id, method, text string }

// oddRequests are all methods of the protocol with params of all wrong kinds.
func oddRequests() []oddRequest {
	var all []oddRequest
	id := 1000
	for _, method := range []string{
		"ping", "tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe",
		"prompts/list", "prompts/get", "completion/complete", "logging/setLevel", "server/discover", "subscriptions/listen", "initialize",
		"notifications/initialized", "notifications/cancelled", "sampling/createMessage", "roots/list", "tasks/get", "", "rpc.discover",
	} {
		for _, params := range []string{
			``, `,"params":null`, `,"params":{}`, `,"params":{"uri":7,"name":7,"cursor":7,"level":7,"ref":7,"arguments":7,"requestId":{},"protocolVersion":{}}`,
			`,"params":{"uri":"x","name":"x","cursor":"x","level":"x","ref":{"type":"x"},"argument":{},"arguments":[]}`,
			`,"params":{"_meta":7}`, `,"params":{"_meta":{"progressToken":{}}}`, `,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}`,
			`,"params":{` + modernMeta + `}`, `,"params":{` + modernMeta + `,"uri":7,"name":7,"cursor":7,"notifications":7,"inputResponses":7}`,
			`,"params":{` + modernMeta + `,"notifications":{"resourceSubscriptions":[7]}}`,
			`,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":7}}`,
			`,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"9999-99-99","io.modelcontextprotocol/clientCapabilities":{}}}`,
		} {
			id++
			all = append(all, oddRequest{fmt.Sprint(id), method, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q%s}`, id, method, params)})
		}
	}
	return all
}

// checkCode says whether an error may be answered with.
func checkCode(t *testing.T, request string, m message) {
	t.Helper()
	if m.Error == nil {
		return
	}
	switch c := m.Error.Code; {
	case c == codeParseError, c >= codeInternal && c <= codeInvalidRequest, c <= -32020 && c >= -32022:
	case c <= -31001 && c >= -31004:
	default:
		t.Errorf("%s\ngot the code %d: %s", request, c, m)
	}
	if m.Error.Code == codeInternal || len(m.Error.Message) < 10 {
		t.Errorf("%s\nis the client's mistake, and told as: %s", request, m)
	}
}

// M-7: whatever is asked, an error has a code that exists, and the server blames
// itself for nothing that the client did wrong.
func TestEveryErrorHasACodeThatExists(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	p := f.connect(t.Context(), t)
	for range 2 { // before initialize and after it
		for _, request := range oddRequests() {
			p.send(request.text)
			checkCode(t, request.text, p.answer(request.id))
		}
		if err := p.call(initializeCall(`"init"`, "2025-11-25")).Error; err != nil && err.Code != codeInvalidRequest {
			t.Errorf("initialize: %+v", err)
		}
	}
	p.close()
}

func TestEveryErrorOverHTTPHasACodeThatExists(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	session := s.begin("2025-11-25")
	for _, request := range oddRequests() {
		for _, headers := range [][]string{nil, session, {"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: " + request.method}} {
			res := s.post(request.text, headers...)
			switch res.StatusCode {
			case http.StatusAccepted, http.StatusNoContent:
				_ = res.Body.Close()
			default:
				checkCode(t, fmt.Sprint(headers, request.text), s.frame(res))
			}
		}
	}
}
