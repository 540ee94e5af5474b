package pageserver

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever comes is a request, or an error with a code, and never both; nothing of
// MCP passes, and no request is about nothing.
func FuzzParseRequest(f *testing.F) {
	for _, text := range []string{
		`{"id":1,"action":"subscribe","topic":"session:a","after":12}`, `{"id":2,"action":"unsubscribe","topic":"inbox"}`,
		`{"id":3,"action":"session.mcp_test_endpoint","session_id":"a","server_name":"s"}`, `{"id":4,"action":"session.mcp_recent_agent_output","session_id":"a"}`,
		`{"id":5,"action":"terminal.input","session_id":"a","data":"aGk="}`, `{"id":6,"action":"terminal.resize","session_id":"a","cols":80,"rows":24}`,
		`{"id":7,"action":"mcp.tools/call","session_id":"a"}`, `{"id":1e3,"action":"x"}`, `{"id":9007199254740993,"action":"subscribe","topic":"sessions"}`,
		`{"id":1,"id":1}`, `{"ID":1,"Action":"subscribe"}`, "{\"id\":1,\"action\":\"\xff\"}", `[]`, ``, `{"id":1,"action":"subscribe","topic":"session:` + strings.Repeat("a", 300) + `"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRequest(text)
		if err != nil {
			e := told(err)
			if e.Code != CodeBadRequest && e.Code != CodeRefused || e.Message == "" || !utf8.ValidString(e.Message) || strings.ContainsAny(e.Message, "\n") {
				t.Errorf("%q: %+v", text, e)
			}
			return
		}
		switch {
		case r.id < 1, strings.HasPrefix(r.action, refusedPrefix):
			t.Errorf("%q: %+v", text, r)
		case r.call != nil:
			if r.call.Session == "" || r.call.Action != r.action || r.topic != (Topic{}) {
				t.Errorf("%q: %+v", text, r)
			}
		default:
			if again, err := parseTopic(r.topic.String()); err != nil || again != r.topic || r.after < 0 {
				t.Errorf("%q: %+v", text, r)
			}
		}
	})
}
