package wake

import (
	"errors"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/notice/noticetest"
)

// D-11: a tool's result ends with what is pending, once.
func TestAppend(t *testing.T) {
	t.Parallel()
	in := inbox(t, 1, nil)
	result := func() *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "42"}}, StructuredContent: 42}
	}
	res := result()
	p, err := Append(t.Context(), in, "a", res)
	if err != nil {
		t.Fatal(err)
	}
	want := []mcp.Content{&mcp.TextContent{Text: "42"}, &mcp.TextContent{Text: aside}}
	equal(t, []any{res.Content, res.StructuredContent}, []any{want, 42})
	other := result() // a second call while the first is answered
	q, err := Append(t.Context(), in, "a", other)
	equal(t, []any{len(other.Content), err, q.Seen(t.Context())}, []any{1, error(nil), error(nil)})
	equal(t, []any{stateOf(t, in, "n0"), p.Release(t.Context())}, []any{notice.Persisted, error(nil)}) // the answer was lost
	if p, err = Append(t.Context(), in, "a", result()); err != nil || len(p.Notices) != 1 {
		t.Fatalf("got %v, %v", p, err)
	}
	equal(t, []any{p.Seen(t.Context()), stateOf(t, in, "n0")}, []any{error(nil), notice.Seen})
	res = result()
	_, err = Append(t.Context(), in, "a", res)
	equal(t, []any{len(res.Content), err}, []any{1, error(nil)})
	if _, err := Append(t.Context(), in, "b", res); !errors.As(err, new(*notice.UnknownAgentError)) || len(res.Content) != 1 {
		t.Errorf("got %v", err)
	}
}

// D-17.
func TestAppendHostile(t *testing.T) {
	t.Parallel()
	for _, h := range noticetest.Corpus(t) {
		in := inbox(t, 0, nil)
		for range 30 {
			post(t, in, notice.Notice{Source: notice.SourceWatch, Title: h.Text, Text: h.Text})
		}
		res := &mcp.CallToolResult{}
		if _, err := Append(t.Context(), in, "a", res); err != nil {
			t.Fatal(err)
		}
		noticetest.Bearable(t, res.Content[0].(*mcp.TextContent).Text, 1)
	}
}
