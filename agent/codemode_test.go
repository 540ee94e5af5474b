package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/agent/agenttest"
	"github.com/ossicle/ossicle/internal/python"
)

// watches is a watch engine that says what it was asked.
type watches struct {
	connected bool
	calls     []string
}

func (w *watches) Functions(context.Context) []string {
	if !w.connected {
		return nil
	}
	return []string{"list_resources", "read_resource", "watch_list", "watch_start", "watch_stop"}
}

func (w *watches) Call(_ context.Context, call python.Call) (json.RawMessage, error) {
	text, err := json.Marshal(call.Kwargs)
	if err != nil {
		return nil, err
	}
	w.calls = append(w.calls, call.Name+string(text))
	switch call.Name {
	case "read_resource":
		if string(call.Kwargs["uri"]) == `"memo://none"` {
			return nil, &python.Error{Type: "RuntimeError", Message: "no such resource; did you mean memo://notes?"}
		}
		return json.RawMessage(`"plain text"`), nil
	case "list_resources":
		return json.RawMessage(`[{"uri":"memo://notes","name":"notes","description":"Notes.\nExample: await watch_start(name=\"n\", uri=\"memo://notes\")",
			"example":"await watch_start(name=\"n\", uri=\"memo://notes\")","subscribable":true},
			{"uri":"x://static","description":"","example":"await read_resource(uri=\"x://static\")","subscribable":false}]`), nil
	}
	return json.RawMessage("true"), nil
}

func schema(properties string, more string) json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{` + properties + `}` + more + `}`)
}

// code is a code mode with two servers and the built-ins.
func code(opts *agent.CodeOptions) (*agent.CodeMode, *agenttest.Python, *watches, []*agenttest.Server) {
	echo := func(_ context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
		if name == "fail" {
			return nil, errors.New("it\nbroke")
		}
		return json.RawMessage(fmt.Sprintf(`{"tool":%q,"args":%s}`, name, args)), nil
	}
	memo := &agenttest.Server{Label: "memo", OnCall: echo, List: []agent.RemoteTool{
		{Name: "memo_set", Description: "Set a note. And more.", Schema: schema(`"key":{"type":"string"},"value":{}`, `,"required":["key","value"],"additionalProperties":false`)},
		{Name: "search", Description: "Search the notes.", Schema: schema(`"max-results":{"type":"integer"},"class":{"type":"string"}`, "")},
		{Name: "print", Schema: schema("", "")},
		{Name: "fail"},
	}}
	kube := &agenttest.Server{Label: "kube", OnCall: echo, List: []agent.RemoteTool{
		{Name: "search", Schema: schema(`"namespace":{"type":"string"}`, "")},
		{Name: "get-pods", Schema: schema(`"namespace":{"type":"string"}`, `,"required":["namespace"]`)},
		{Name: "2fa"},
	}}
	engine, w := &agenttest.Python{}, &watches{connected: true}
	return agent.NewCodeMode(engine, []agent.Server{memo, kube}, w, opts), engine, w, []*agenttest.Server{memo, kube}
}

func run(t *testing.T, c *agent.CodeMode, program string) agent.ToolResult {
	t.Helper()
	r, err := c.Run(t.Context(), program)
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	if r.Text == "" {
		t.Errorf("%s: an empty result", program)
	}
	return r
}

// W-060: the five exist iff at least one server is connected; run_code without.
func TestBuiltinsNeedAServer(t *testing.T) {
	t.Parallel()
	c, _, w, _ := code(nil)
	names := func() string {
		var all []string
		for _, tool := range c.Tools(t.Context()) {
			all = append(all, tool.Name)
			if !json.Valid(tool.InputSchema) || tool.Description == "" {
				t.Errorf("tool %s: schema %s, description %q", tool.Name, tool.InputSchema, tool.Description)
			}
			if readOnly := tool.Name != "run_code" && tool.Name != "watch_start" && tool.Name != "watch_stop"; tool.ReadOnly != readOnly {
				t.Errorf("tool %s: read-only %v", tool.Name, tool.ReadOnly)
			}
		}
		return strings.Join(all, " ")
	}
	if got := names(); got != "run_code list_resources read_resource watch_list watch_start watch_stop" {
		t.Errorf("connected: %s", got)
	}
	w.connected = false
	c.Invalidate()
	if got := names(); got != "run_code" {
		t.Errorf("not connected: %s", got)
	}
	if r := run(t, c, `await watch_list()`); !r.IsError || !strings.HasPrefix(r.Text, "NameError: name 'watch_list' is not defined") {
		t.Errorf("%+v", r)
	}
}

// N-5: every tool of every server is a function with keyword arguments; names
// are identifiers, and what two servers or Python have is prefixed.
func TestToolsAreFunctions(t *testing.T) {
	t.Parallel()
	c, _, _, servers := code(nil)
	for program, want := range map[string]string{
		`await memo_set(key="a", value={"id":1915883588174806058})`: `memo memo_set{"key":"a","value":{"id":1915883588174806058}}`,
		`await memo_set(value=null, key="a")`:                       `memo memo_set{"key":"a","value":null}`,
		`await memo_search(max_results=3, class_="x")`:              `memo search{"max-results":3,"class":"x"}`,
		`await memo_search(class_=None)`:                            `memo search{}`,
		`await kube_search(namespace="d")`:                          `kube search{"namespace":"d"}`,
		`await get_pods(namespace="d", extra=1)`:                    `kube get-pods{"namespace":"d","extra":1}`,
		`await get_pods("d")`:                                       `kube get-pods{"namespace":"d"}`,
		`await memo_print()`:                                        `memo print{}`,
		`await _2fa(a=1)`:                                           `kube 2fa{"a":1}`,
	} {
		before := map[*agenttest.Server]int{servers[0]: len(servers[0].Calls()), servers[1]: len(servers[1].Calls())}
		if r := run(t, c, program); r.IsError {
			t.Errorf("%s: %s", program, r.Text)
			continue
		}
		server, call, _ := strings.Cut(want, " ")
		for _, s := range servers {
			if calls := s.Calls()[before[s]:]; s.Label == server && (len(calls) != 1 || calls[0] != call) {
				t.Errorf("%s: called %v, want %s", program, calls, call)
			}
		}
	}
}

// Wrong arguments are Python's own errors, with what is right after them, for
// tools and built-ins alike; nothing is called then.
func TestArgumentErrors(t *testing.T) {
	t.Parallel()
	c, _, w, servers := code(nil)
	for program, want := range map[string]string{
		`await memo_set(key="a")`:                            `TypeError: memo_set() missing 1 required positional argument: 'value'; call it as memo_set(key: str, value) (line 1)`,
		`await memo_set()`:                                   `TypeError: memo_set() missing 2 required positional arguments: 'key' and 'value';`,
		`await memo_set("a", 1, 2)`:                          `TypeError: memo_set() takes 2 positional arguments but 3 were given;`,
		`await memo_set("a", 1, key="b")`:                    `TypeError: memo_set() got multiple values for argument 'key';`,
		`await memo_set(key="a", value=1, vlaue=2)`:          `TypeError: memo_set() got an unexpected keyword argument 'vlaue'. Did you mean 'value'?;`,
		`await memo_set(key="a", value=1, zzzzzz=2)`:         `TypeError: memo_set() got an unexpected keyword argument 'zzzzzz';`,
		`await kube_search(namespce="d")`:                    `TypeError: kube_search() got an unexpected keyword argument 'namespce'. Did you mean 'namespace'?;`,
		`await watch_start(name="cm")`:                       `TypeError: watch_start() missing 1 required positional argument: 'uri'; call it as watch_start(name: str, uri: str, on_event: str=None)`,
		`await watch_start("a", "b", "c", "d")`:              `TypeError: watch_start() takes from 2 to 3 positional arguments but 4 were given;`,
		`await watch_list(name="x")`:                         `TypeError: watch_list() got an unexpected keyword argument 'name'; call it as watch_list()`,
		`await watch_list(1)`:                                `TypeError: watch_list() takes 0 positional arguments but 1 was given;`,
		`await read_resource(url="memo://notes")`:            `TypeError: read_resource() got an unexpected keyword argument 'url'. Did you mean 'uri'?;`,
		`await read_resource(uri="memo://none")`:             `RuntimeError: no such resource; did you mean memo://notes? (line 1)`,
		`await fail()`:                                       `RuntimeError: fail: it broke (line 1)`,
		"x = 1\ny = undefined":                               "NameError: name 'undefined' is not defined (line 2)\n  y = undefined",
		"raise KeyError: 'metadata'":                         `KeyError: 'metadata' (line 1)`,
		`await watch_start(name="a", name_="b", uri="c://")`: `TypeError: watch_start() got an unexpected keyword argument 'name_'. Did you mean 'name'?;`,
	} {
		r := run(t, c, program)
		if !r.IsError || !strings.HasPrefix(r.Text, want) {
			t.Errorf("%s:\n got  %s\n want %s", program, r.Text, want)
		}
	}
	if calls := servers[0].Calls(); len(calls) != 1 { // fail itself
		t.Errorf("memo was called: %v", calls)
	}
	if len(w.calls) != 1 { // memo://none itself
		t.Errorf("the watch engine was called: %v", w.calls)
	}
}

// W-061 to W-066, W-069: the built-ins take keyword and positional arguments,
// and hand them on by name.
func TestBuiltinsAreHandedOn(t *testing.T) {
	t.Parallel()
	c, _, w, _ := code(nil)
	for _, program := range []string{
		`await list_resources()`, `await read_resource(uri="memo://notes")`, `await read_resource("memo://notes")`,
		`await watch_start(name="cm", uri="memo://notes", on_event=None)`, `await watch_start("cm", "memo://notes", "event['type']")`,
		`await watch_stop(name="cm")`, `await watch_list()`,
	} {
		if r := run(t, c, program); r.IsError {
			t.Errorf("%s: %s", program, r.Text)
		}
	}
	equal(t, "calls", w.calls, []string{
		`list_resources{}`, `read_resource{"uri":"memo://notes"}`, `read_resource{"uri":"memo://notes"}`,
		`watch_start{"name":"cm","on_event":null,"uri":"memo://notes"}`, `watch_start{"name":"cm","on_event":"event['type']","uri":"memo://notes"}`,
		`watch_stop{"name":"cm"}`, `watch_list{}`,
	})
}

// N-6: the five as plain tools, for agents that write no code.
func TestPlainTools(t *testing.T) {
	t.Parallel()
	c, _, w, _ := code(nil)
	call := func(name, args string) agent.ToolResult {
		t.Helper()
		for _, tool := range c.Tools(t.Context()) {
			if tool.Name == name {
				r, err := tool.Call(t.Context(), json.RawMessage(args))
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
		}
		t.Fatalf("no tool %s", name)
		return agent.ToolResult{}
	}
	if r := call("read_resource", `{"uri":"memo://notes"}`); r.IsError || r.Text != "plain text" {
		t.Errorf("%+v", r)
	}
	if r := call("watch_start", `{"name":"cm","uri":"memo://notes"}`); r.IsError || r.Text != "true" {
		t.Errorf("%+v", r)
	}
	if r := call("watch_list", ``); r.IsError {
		t.Errorf("%+v", r)
	}
	for args, want := range map[string]string{
		`{"Uri":"memo://notes"}`:        "TypeError: read_resource() got an unexpected keyword argument 'Uri'. Did you mean 'uri'?", // names by case
		`{"uri":"a://b","uri":"c://d"}`: "ValueError: the arguments are not JSON",                                                   // duplicates
		`["memo://notes"]`:              "TypeError: the arguments must be a JSON object",
		`{"uri":"memo://none"}`:         "RuntimeError: no such resource",
	} {
		if r := call("read_resource", args); !r.IsError || !strings.HasPrefix(r.Text, want) {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if r := call("run_code", `{"code":"1"}`); r.IsError || r.Text != "1" {
		t.Errorf("%+v", r)
	}
	if r := call("run_code", `{"code":1}`); !r.IsError {
		t.Errorf("%+v", r)
	}
	if len(w.calls) != 4 {
		t.Errorf("calls: %v", w.calls)
	}
}

// N-5: prints, then the last expression; strings as they are, numbers exact; cut
// with a note.
func TestResults(t *testing.T) {
	t.Parallel()
	c, engine, _, _ := code(&agent.CodeOptions{ResultSize: 100})
	for program, want := range map[string]string{
		"print(\"a\")\nprint(\"b\")\n[1, 1915883588174806058]": "a\nb\n[1, 1915883588174806058]",
		`"text"`:                     "text",
		`{"a":1}`:                    `{"a":1}`,
		`x = 1`:                      "(no output)",
		`null`:                       "(no output)",
		"print(\"so far\")\nraise E": "so far\nE (line 2)\n  raise E",
		"def f\nf":                   "<function>",
		"```python\n1\n```":          "1",
		"limit time":                 "LimitError: over the limit; do less in one program. The variables are as they were before this program.",
		`print("` + strings.Repeat("é", 60) + `")`: strings.Repeat("é", 50) + "\n[cut: 100 of 121 bytes are shown; print only what you need]",
	} {
		if r := run(t, c, program); r.Text != want {
			t.Errorf("%s:\n got  %q\n want %q", program, r.Text, want)
		}
	}
	lim := engine.Limits()[0]
	if lim.Time != 30*time.Second || lim.Memory != 256<<20 || lim.Calls != 200 { // N-5
		t.Errorf("limits: %+v", lim)
	}
}

// The default cut is at 32 KiB.
func TestResultSize(t *testing.T) {
	t.Parallel()
	c, _, _, _ := code(nil)
	r := run(t, c, `"`+strings.Repeat("x", 40_000)+`"`)
	if i := strings.IndexByte(r.Text, '\n'); i != 32<<10 {
		t.Errorf("cut at %d", i)
	}
}

// N-7, W-261: the ways in which a model runs NO_REPLY as code.
func TestNoReplyAsCode(t *testing.T) {
	t.Parallel()
	ended := 0
	c, engine, _, _ := code(&agent.CodeOptions{OnNoReply: func() { ended++ }})
	yes := []string{
		"NO_REPLY", "  NO_REPLY\n", `"NO_REPLY"`, "'NO_REPLY'", `"""NO_REPLY"""`, "'''\nNO_REPLY\n'''", `print("NO_REPLY")`, "print('NO_REPLY');",
		"print(NO_REPLY)", "# nothing matters\nNO_REPLY", "```python\nNO_REPLY\n```", "```\nprint(\"NO_REPLY\")\n```", "NO_REPLY.", "NO_REPLY # done", "return NO_REPLY",
	}
	for _, program := range yes {
		if r := run(t, c, program); !r.EndTurn || r.IsError {
			t.Errorf("%q does not end the turn: %+v", program, r)
		}
	}
	if ended != len(yes) {
		t.Errorf("told %d times, want %d", ended, len(yes))
	}
	if len(engine.Limits()) != 0 {
		t.Error("it was run")
	}
	for _, program := range []string{"x = NO_REPLY", "no_reply", "NO_REPLY\n1", "print(\"NO_REPLY\", 1)", "# NO_REPLY", "", "NO_REPLY()"} {
		if r := run(t, c, program); r.EndTurn {
			t.Errorf("%q ends the turn", program)
		}
	}
}

// N-8, W-266: variables persist, and the note names them.
func TestScopeNote(t *testing.T) {
	t.Parallel()
	c, _, _, servers := code(nil)
	if note := c.ScopeNote(); note != "" {
		t.Errorf("at first: %q", note)
	}
	run(t, c, "pods = await get_pods(namespace=\"d\")\nn = 3")
	calls := len(servers[1].Calls())
	want := "[run_code variables that persist: n, pods. Reuse them instead of calling tools again.]"
	if note := c.ScopeNote(); note != want {
		t.Errorf("%q", note)
	}
	if r := run(t, c, "pods"); r.Text != `{"tool":"get-pods","args":{"namespace":"d"}}` || len(servers[1].Calls()) != calls { // W-266: no call
		t.Errorf("%+v after %v", r, servers[1].Calls())
	}
	run(t, c, "json = 1") // stands for an imported module
	if note := c.ScopeNote(); note != want {
		t.Errorf("with a module: %q", note)
	}
	c.Reset()
	if note := c.ScopeNote(); note != "" {
		t.Errorf("after a reset: %q", note)
	}
	if r := run(t, c, "pods"); !r.IsError {
		t.Errorf("%+v", r)
	}
	for i := range 50 {
		run(t, c, fmt.Sprintf("v%02d = 1", i))
	}
	if note := c.ScopeNote(); !strings.Contains(note, "v39 and 10 more.") {
		t.Errorf("%q", note)
	}
}

// Tools that come and go get their functions, and variables move along.
func TestToolsChange(t *testing.T) {
	t.Parallel()
	c, engine, _, servers := code(nil)
	run(t, c, "n = {\"id\": 1915883588174806058}\nf = 1\ndef f")
	run(t, c, "1")
	if servers[0].Asked() != 1 {
		t.Errorf("the server was asked %d times: that is polling", servers[0].Asked()) // W-240
	}
	servers[0].List = append(servers[0].List, agent.RemoteTool{Name: "fresh"})
	if r := run(t, c, "await fresh()"); !r.IsError {
		t.Errorf("%+v", r)
	}
	c.Invalidate()
	r := run(t, c, "await fresh()\nn")
	if r.IsError || r.Text != "{\"id\": 1915883588174806058}\n[the tools have changed; variables that could not be kept: f]" {
		t.Errorf("%+v", r)
	}
	if engine.Scopes() != 2 {
		t.Errorf("%d scopes", engine.Scopes())
	}
	c.Invalidate()
	run(t, c, "n")
	if engine.Scopes() != 2 {
		t.Error("the same tools made another scope")
	}
}

// A server that does not answer takes nothing from the others, and is asked
// again with the next program.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	c, _, _, servers := code(nil)
	servers[1].Err = errors.New("connection refused")
	list := servers[1].List
	servers[1].List = nil
	if r := run(t, c, `await memo_set(key="a", value=1)`); r.IsError {
		t.Errorf("%+v", r)
	}
	if d := c.Tools(t.Context())[0].Description; !strings.Contains(d, `tools of server "kube" could not be listed`) {
		t.Errorf("description: %s", d)
	}
	servers[1].Err, servers[1].List = nil, list
	if r := run(t, c, `await get_pods(namespace="d")`); r.IsError {
		t.Errorf("%+v", r)
	}
}

// The description is a cost of every call: it is bounded whatever servers say,
// and what they say stays on its line.
func TestDescriptionIsBounded(t *testing.T) {
	t.Parallel()
	c, _, _, servers := code(nil)
	d := c.Tools(t.Context())[0].Description
	contains(t, d, "await f(key=value)", "- list_resources()", "- watch_start(name: str, uri: str, on_event: str=None)",
		"- get_pods(namespace: str)", "- memo_search(max_results: int=None, class_: str=None): Search the notes", "- memo_set(key: str, value): Set a note")
	for i := range 2000 {
		servers[0].List = append(servers[0].List, agent.RemoteTool{
			Name: fmt.Sprintf("tool_%d", i), Description: strings.Repeat("long\u2028\x1b words ", 100),
			Schema: schema(`"some_parameter":{"type":["string","null"]}`, ""),
		})
	}
	c.Invalidate()
	d = c.Tools(t.Context())[0].Description
	if len(d) > 20<<10 {
		t.Errorf("%d bytes", len(d))
	}
	contains(t, d, "and, with keyword arguments: tool_")
	if strings.ContainsAny(d, "\x1b\u2028") {
		t.Error("control characters of a server are in it")
	}
}

// Programs run one after the other; a wait for that respects the context.
func TestProgramsQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _, _, _ := code(nil)
		slow, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := c.Run(slow, "wait")
			done <- err
		}()
		synctest.Wait()
		quick, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		if _, err := c.Run(quick, "1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		c.Close()
		c.Close()
		if _, err := c.Run(t.Context(), "1"); !errors.Is(err, agent.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

// Without an interpreter there are the plain tools, and run_code is not offered.
func TestNoInterpreter(t *testing.T) {
	t.Parallel()
	c := agent.NewCodeMode(nil, nil, &watches{connected: true}, nil)
	tools := c.Tools(t.Context())
	if len(tools) != 5 {
		t.Errorf("%d tools", len(tools))
	}
	if r := run(t, c, "1"); !r.IsError {
		t.Errorf("%+v", r)
	}
}

// W-268: recipes come from what servers say about themselves.
func TestRecipes(t *testing.T) {
	t.Parallel()
	got := agent.Recipes(t.Context(), &watches{connected: true})
	equal(t, "recipes", got, []agent.Recipe{{What: "Notes.", Code: `await watch_start(name="n", uri="memo://notes")`}})
}
