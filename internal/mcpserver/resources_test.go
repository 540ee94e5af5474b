package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/listen"
)

// pages lists all pages, and returns the values of one member of the entries.
func (p *peer) pages(method, list, member string) (values []string, pages int) {
	p.t.Helper()
	cursor := ""
	for {
		pages++
		params := ""
		if cursor != "" {
			params = `"cursor":"` + cursor + `"`
		}
		res := p.result(modernCall(fmt.Sprint(pages), method, params))
		for _, e := range res[list].([]any) {
			values = append(values, fmt.Sprint(e.(map[string]any)[member]))
		}
		next, ok := res["nextCursor"].(string)
		if !ok {
			return values, pages
		}
		cursor = next
	}
}

// W-011: everything is listed, in one order, page by page.
func TestListsAreSortedAndPaged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, &Options{PageSize: 4})
	f.odd.items = 10
	p := f.connect(t.Context(), t)
	want := []string{"memo://notes", "odd://blob"}
	for i := range 10 {
		want = append(want, fmt.Sprintf("odd://item/%03d", i))
	}
	want = append(want, "odd://log")
	got, pages := p.pages("resources/list", "resources", "uri")
	if diff := cmp.Diff(want, got); diff != "" || pages != 4 {
		t.Errorf("%d pages (-want +got):\n%s", pages, diff)
	}
	got, pages = p.pages("resources/templates/list", "resourceTemplates", "uriTemplate")
	if diff := cmp.Diff([]string{"odd://fixed/{n}", "odd://item/{n}"}, got); diff != "" || pages != 1 {
		t.Errorf("%d pages of templates (-want +got):\n%s", pages, diff)
	}
	// A page that begins behind an entry which is gone misses nothing.
	cursor := base64.RawURLEncoding.EncodeToString([]byte("odd://item/004x"))
	res := p.result(modernCall("9", "resources/list", `"cursor":"`+cursor+`"`))
	if uri := res["resources"].([]any)[0].(map[string]any)["uri"]; uri != "odd://item/005" {
		t.Errorf("behind a lost entry comes %v", uri)
	}
	p.close()
}

func TestEntriesSayWhatCannotBeWatched(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	p := f.connect(t.Context(), t)
	static := map[string]any{}
	for method, list := range map[string]string{"resources/list": "resources", "resources/templates/list": "resourceTemplates"} {
		for _, e := range p.result(modernCall("1", method, ""))[list].([]any) {
			entry := e.(map[string]any)
			if meta, ok := entry["_meta"].(map[string]any); ok {
				static[entry["name"].(string)] = meta[MetaWatchable]
			}
		}
	}
	if diff := cmp.Diff(map[string]any{"blob": false, "fixed": false}, static); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A listen for it is acknowledged without it.
	p.send(listenCall("2", "odd://blob", "memo://notes"))
	m := p.next()
	if diff := cmp.Diff([]string{"memo://notes"}, m.Params.Notifications.ResourceSubscriptions); diff != "" {
		t.Errorf("acknowledged (-want +got):\n%s", diff)
	}
	p.initialize("2025-11-25")
	p.fails(legacyCall("3", "resources/subscribe", `"uri":"odd://blob"`), codeInvalidParams, "not watchable")
	p.close()
}

func (p *peer) contents(line string) map[string]any {
	p.t.Helper()
	all := p.result(line)["contents"].([]any)
	if len(all) != 1 {
		p.t.Fatalf("%s: %v", line, all)
	}
	return all[0].(map[string]any)
}

func seqs(t *testing.T, contents map[string]any) []int {
	t.Helper()
	var body struct {
		Events []struct{ Seq int }
	}
	if err := json.Unmarshal([]byte(contents["text"].(string)), &body); err != nil {
		t.Fatal(err)
	}
	got := []int{}
	for _, e := range body.Events {
		got = append(got, e.Seq)
	}
	return got
}

// M-6, W-021: a cursor gives the newer events only, no cursor the whole ring,
// and nothing of it is remembered.
func TestEventLogsAreReadFromACursor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	p := f.connect(t.Context(), t)
	p.initialize("2025-11-25")
	for cursor, want := range map[string][]int{
		"": {1, 2, 3}, "0": {1, 2, 3}, "1": {2, 3}, `"2"`: {3}, "3": {}, "null": {1, 2, 3}, `"9223372036854775807"`: {1, 2, 3},
	} {
		meta := ""
		if cursor != "" {
			meta = `,"` + MetaAfter + `":` + cursor
		}
		for _, line := range []string{
			strings.Replace(modernCall("1", "resources/read", `"uri":"odd://log"`), `"version":"1"}}`, `"version":"1"}`+meta+`}`, 1),
			legacyCall("1", "resources/read", `"uri":"odd://log","_meta":{"x":1`+meta+`}`),
		} {
			c := p.contents(line)
			if diff := cmp.Diff(want, seqs(t, c)); diff != "" || c["mimeType"] != listen.EventLogMIME || c["uri"] != "odd://log" {
				t.Errorf("after %s: %v (-want +got):\n%s", cursor, c, diff)
			}
		}
	}
	for _, cursor := range []string{"-1", "1.5", `"x"`, `""`, "[1]", "true", "9007199254740993", "1e300", `"9223372036854775808"`} {
		p.fails(legacyCall("2", "resources/read", `"uri":"odd://log","_meta":{"`+MetaAfter+`":`+cursor+`}`), codeInvalidParams, MetaAfter)
	}
	p.result(legacyCall("3", "resources/read", `"uri":"memo://notes","_meta":{"`+MetaAfter+`":1}`)) // state ignores it
	p.close()
}

// WA-02: the media type of others is served on request, by option or by read.
func TestEventLogMediaType(t *testing.T) {
	t.Parallel()
	read := func(mime string) string {
		return legacyCall("1", "resources/read", `"uri":"odd://log","_meta":{"`+MetaEventLogMIME+`":"`+mime+`"}`)
	}
	for option, listed := range map[string]string{"": listen.EventLogMIME, listen.EventLogMIMECompat: listen.EventLogMIMECompat} {
		f := newFixture(t, &Options{EventLogMIME: option})
		p := f.connect(t.Context(), t)
		p.initialize("2025-11-25")
		for _, e := range p.result(legacyCall("2", "resources/list", ""))["resources"].([]any) {
			if entry := e.(map[string]any); entry["uri"] == "odd://log" && entry["mimeType"] != listed {
				t.Errorf("listed as %v, want %s", entry["mimeType"], listed)
			}
		}
		if got := p.contents(legacyCall("3", "resources/read", `"uri":"odd://log"`))["mimeType"]; got != listed {
			t.Errorf("read as %v, want %s", got, listed)
		}
		for _, asked := range []string{listen.EventLogMIME, listen.EventLogMIMECompat} {
			if got := p.contents(read(asked))["mimeType"]; got != asked {
				t.Errorf("asked for %s, got %v", asked, got)
			}
		}
		p.fails(read("text/plain"), codeInvalidParams, MetaEventLogMIME)
		p.close()
	}
}

func TestBlobsAreBase64(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	p := f.connect(t.Context(), t)
	want := map[string]any{"uri": "odd://blob", "mimeType": "image/png", "blob": "AQID"}
	if diff := cmp.Diff(want, p.contents(modernCall("1", "resources/read", `"uri":"odd://blob"`))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want = map[string]any{"uri": "odd://item/1", "mimeType": "text/plain", "text": "<item>"}
	if diff := cmp.Diff(want, p.contents(modernCall("2", "resources/read", `"uri":"odd://item/1"`))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.close()
}

// M-9: what the caller may not do is refused and not listed.
func TestRightsAreAsked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, &Options{Authorize: func(_ context.Context, a Access) error {
		if a == (Access{Read, "memo://notes"}) || a == (Access{Call, "memo_get"}) {
			return nil
		}
		return &ForbiddenError{Verb: a.Verb, Target: a.Target, Hint: "ask the operator"}
	}})
	p := f.connect(t.Context(), t)
	tools, _ := p.pages("tools/list", "tools", "name")
	resources, _ := p.pages("resources/list", "resources", "uri")
	if diff := cmp.Diff([][]string{{"memo_get"}, {"memo://notes"}}, [][]string{tools, resources}); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	p.result(modernCall("1", "tools/call", `"name":"memo_get"`))
	p.result(modernCall("2", "resources/read", `"uri":"memo://notes"`))
	p.fails(modernCall("3", "tools/call", `"name":"memo_set","arguments":{"key":"a","value":1}`), CodeForbidden, "ask the operator")
	p.fails(modernCall("4", "resources/read", `"uri":"odd://log"`), CodeForbidden, "ask the operator")
	if got := string(f.notes.JSON()); got != "{}" {
		t.Errorf("notes = %s after a refused call", got)
	}
	p.close()
}

func TestToolsKeepTheirAnnotations(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	p := f.connect(t.Context(), t)
	got := map[string]any{}
	for _, e := range p.result(modernCall("1", "tools/list", ""))["tools"].([]any) {
		tool := e.(map[string]any)
		hints := tool["annotations"].(map[string]any)
		got[tool["name"].(string)] = []any{hints["readOnlyHint"], hints["destructiveHint"], hints["idempotentHint"], hints["openWorldHint"]}
	}
	want := map[string]any{
		"memo_set": []any{false, true, true, false}, "memo_get": []any{true, false, true, false}, "memo_delete": []any{false, true, true, false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hints (-want +got):\n%s", diff)
	}
	p.close()
}

func TestToolsMayChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	p := f.connect(t.Context(), t)
	p.send(modernCall("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
	p.next()
	f.AddTools(Tool{Name: "fresh", Call: func(context.Context, json.RawMessage) (ToolResult, error) { return ToolResult{Text: "1"}, nil }})
	if m := p.next(); m.Method != "notifications/tools/list_changed" || m.subscription() != "1" {
		t.Errorf("after AddTools: %s", m)
	}
	p.result(modernCall("2", "tools/call", `"name":"fresh"`))
	f.RemoveTools("fresh")
	if m := p.next(); m.Method != "notifications/tools/list_changed" {
		t.Errorf("after RemoveTools: %s", m)
	}
	p.fails(modernCall("3", "tools/call", `"name":"fresh"`), codeInvalidParams, "fresh")
	p.close()
	for _, m := range p.seen {
		t.Errorf("unasked for: %s", m)
	}
}

func TestNewRefusesBrokenTools(t *testing.T) {
	t.Parallel()
	call := func(context.Context, json.RawMessage) (ToolResult, error) { return ToolResult{}, nil }
	for _, tool := range []Tool{
		{Call: call}, {Name: "x"}, {Name: "x", Call: call, InputSchema: json.RawMessage(`{}`)}, {Name: "x", Call: call, InputSchema: json.RawMessage(`{"type":"object"`)},
	} {
		if _, err := makeFixture(nil, tool); err == nil {
			t.Errorf("New took %+v", tool)
		}
	}
}
