package attach_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ossicle/ossicle/attach"
)

const canary = "kanarie-hunter2"

//
func TestTargets(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"http://127.0.0.1:4000/mcp/secret":             "http://127.0.0.1:4000",
		"HTTPS://user:pass@Host.Example/a?b=c#d":       "https://host.example",
		"http://[::1]:80/x":                            "http://[::1]:80",
		"not a url":                                    "",
		"//host/path":                                  "",
		"http://ho st/":                                "",
		"http:///path":                                 "",
		"http://<script>/":                             "",
		"wss://h.example:1/" + strings.Repeat("x", 99): "wss://h.example:1",
	} {
		if got := attach.NetworkTarget(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"/srv/a/.bin/server": "server", "npx": "npx", `C:\Tools\srv.exe`: "srv.exe", "/": "", "dir/": "dir", "a\x1b[2Jb": "a[2Jb",
	} {
		if got := attach.CommandTarget(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// What errors of real servers and agents say stays readable, without what they
// must not tell.
//
//
func TestSummaries(t *testing.T) {
	t.Parallel()
	s := attach.NewSanitizer()
	for in, want := range map[string]string{
		"dial tcp 127.0.0.1:9: connect: connection refused":                             "dial tcp 127.0.0.1:9: connect: connection refused",
		`Post "http://127.0.0.1:4000/mcp/abcdef?key=1": EOF`:                            `Post "http://127.0.0.1:4000": EOF`,
		`exec: "npx": executable file not found in $PATH`:                               `exec: "npx": executable file not found in $PATH`,
		"open /srv/a/b/.mcp.json: permission denied":                                    "open ….mcp.json: permission denied",
		"Authorization: Bearer abc.def":                                                 "Authorization: [redacted]",
		"got 401 with Bearer abcdef":                                                    "got 401 with Bearer [redacted]",
		"GITHUB_TOKEN=ghp_abc MODE='x y' srv failed":                                    "GITHUB_TOKEN=[redacted] MODE=[redacted] srv failed",
		"run srv --api-key abc --port=3 failed":                                         "run srv --api-key [redacted] --port=[redacted] failed",
		"bad key sk-proj-abcdefgh12345":                                                 "bad key [redacted]",
		"unexpected c3VwZXJzZWNyZXQ0Mg12345678 here":                                    "unexpected [redacted] here",
		"MCP server `m` failed to start: handshake":                                     "MCP server `m` failed to start: handshake",
		`request failed: {"headers":{"x":"y"}}`:                                         "request failed",
		`{"code":-32000,"message":"x"}`:                                                 "",
		`["a","b"]`:                                                                     "",
		"line one\nline two\x1b[31m\u202e\x00":                                          "line one line two[31m",
		"Streamable HTTP error: Error POSTing to endpoint (HTTP 500): Internal problem": "Streamable HTTP error: Error POSTing to endpoint (HTTP 500): Internal problem",
	} {
		if got := s.Summary(in); got != want {
			t.Errorf("%q:\n got %q\nwant %q", in, got, want)
		}
	}
	for _, long := range []string{strings.Repeat("é", 500), "x" + strings.Repeat("日", 500), strings.Repeat("a b ", 2000)} {
		got := s.Summary(long)
		if len(got) > attach.MaxSummary || len(got) < attach.MaxSummary-4 || !utf8.ValidString(got) {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	}
}

// Secrets that the configuration holds are taken out wherever they stand and
// however they are written.
//
//
func TestKnownSecrets(t *testing.T) {
	t.Parallel()
	secret := `pass word/` + canary + `"é`
	s := attach.NewSanitizer(secret, "Bearer "+canary+"-2", "abc")
	for name, form := range map[string]string{
		"plain": secret, "quoted": fmt.Sprintf("%q", secret), "query": url.QueryEscape(secret), "path": url.PathEscape(secret), "hex": hex.EncodeToString([]byte(secret)),
		"base64": base64.StdEncoding.EncodeToString([]byte(secret)), "a word of it": canary + "-2",
	} {
		got := s.Summary("the server said " + form + " and ended")
		if strings.Contains(got, canary) || strings.Contains(got, form) || !strings.Contains(got, "the server said") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A secret in any text field of evidence, in the shapes in which configuration
// and errors hold secrets, is in no report.
func TestCanaries(t *testing.T) {
	t.Parallel()
	shapes := []string{
		"Authorization: Bearer " + canary, "env API_KEY=" + canary, "run srv --token " + canary, `prompt {"text":"` + canary + `"}`,
		"https://user:" + canary + "@h.example/" + canary + "?t=" + canary + "#" + canary, "open /home/" + canary + "/x", `{"arguments":{"q":"` + canary + `"}}`,
		"Cookie: sid=" + canary, `x-api-key: "` + canary + `"`, `["` + canary + `"]`, "password is password: " + canary,
	}
	for _, shape := range shapes {
		e := saw(attach.ServerError, 1)
		d := reflect.ValueOf(&e.Detail).Elem()
		for _, field := range []string{"Source", "Transport", "Target", "Reason", "Summary", "ConnectionID", "Era"} {
			if field == "Target" && !strings.Contains(shape, "://") {
				continue // a command is given as the program alone
			}
			d.FieldByName(field).SetString(shape)
		}
		r := reduce(t, begin(t, attach.Report{}, "a", 0), saw(attach.ServerDelivered, 0), e)
		if got := text(t, r); strings.Contains(got, canary) {
			t.Errorf("%q leaks: %s", shape, got)
		}
		_, err := attach.Reduce(r, saw(attach.Kind(shape), 2))
		if err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%q: %v", shape, err)
		}
	}
}

//
func TestCatalogue(t *testing.T) {
	t.Parallel()
	var all []attach.Tool
	for i := range 200 {
		all = append(all, attach.Tool{
			Name: fmt.Sprintf("t%03d", 199-i), Description: strings.Repeat("é", 1000), InputSchema: []byte(`{"d":"` + strings.Repeat("x", 5000) + `"}`),
		})
	}
	all[199].InputSchema = []byte(`{"d":"` + strings.Repeat("x", attach.MaxSchema) + `"}`) // t000
	c := attach.NewCatalogue(all)
	schemas := 0
	for _, tool := range c.Tools {
		schemas += len(tool.InputSchema)
		if len(tool.Description) > attach.MaxDescription || !utf8.ValidString(tool.Description) {
			t.Fatalf("%d bytes", len(tool.Description))
		}
	}
	if len(c.Tools) != attach.MaxTools || c.Total != 200 || !c.Truncated || schemas > attach.MaxSchemas || c.Tools[0].InputSchema != nil || c.Tools[1].InputSchema == nil {
		t.Errorf("%d tools of %d, %d bytes, truncated %t", len(c.Tools), c.Total, schemas, c.Truncated)
	}
	all[0].Description = "x"
	if attach.NewCatalogue(all).Digest == c.Digest {
		t.Error("the digest does not tell the tools apart")
	}
	// The row of the current attempt has it, the timeline and old attempts do not.
	r := reduce(t, begin(t, attach.Report{}, "a", 0), saw(attach.ToolsListObserved, 1, func(e *attach.Evidence) { e.Catalogue = &c }))
	if a := r.CurrentAttempt(); a.Server("m").Catalogue == nil || a.Evidence[0].Catalogue != nil {
		t.Error("the catalogue is not where it belongs")
	}
	if r = begin(t, r, "b", 2); r.Attempts[1].Server("m").Catalogue != nil {
		t.Error("an old attempt keeps the catalogue")
	}
}

func FuzzSummary(f *testing.F) {
	f.Add("Post \"http://u:p@h/x\": token=abc --k v /a/b/c", "hunter22")
	f.Add(strings.Repeat("é=x ", 200), "")
	f.Fuzz(func(t *testing.T, in, secret string) {
		s := attach.NewSanitizer(secret)
		got := s.Summary(in)
		switch {
		case len(got) > attach.MaxSummary, !utf8.ValidString(got), strings.ContainsAny(got, "{}\n\r\x1b"):
			t.Errorf("%q", got)
		case s.Summary(got) != got:
			t.Errorf("%q becomes %q", got, s.Summary(got))
		case len(secret) >= 4 && utf8.ValidString(secret) && !strings.Contains("[redacted]", secret) && strings.Contains(got, secret):
			t.Errorf("%q has %q", got, secret)
		}
	})
}

func FuzzReduce(f *testing.F) {
	f.Add([]byte(`{"schema_version":1,"current_attachment_attempt_id":"a","attempts":[{"attachment_attempt_id":"a","execution_id":"x","servers":[{"name":"z"},{"name":"m"}]}]}`), "tools_list_observed", "m")
	f.Add([]byte(`{"attempts":null}`), "late_traffic", "")
	f.Fuzz(func(t *testing.T, stored []byte, kind, server string) {
		var r attach.Report
		if unmarshal(stored, &r) != nil {
			return
		}
		e := saw(attach.Kind(kind), 1, func(e *attach.Evidence) { e.Server = server })
		once, err := attach.Reduce(r, e)
		if err != nil {
			return
		}
		if again, err := attach.Reduce(once, e); err != nil || text(t, again) != text(t, once) {
			t.Errorf("%v\n%s\n%s", err, text(t, once), text(t, again))
		}
	})
}
