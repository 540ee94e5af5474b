package mockagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type promptParams struct {
	SessionID string `json:"sessionId"`
	Prompt    []struct {
		Text string `json:"text"`
	} `json:"prompt"`
	Meta struct {
		Steering struct {
			IdleBehavior string `json:"idleBehavior"`
		} `json:"steering"`
	} `json:"_meta"`
}

func (p promptParams) text() string {
	var parts []string
	for _, b := range p.Prompt {
		parts = append(parts, b.Text)
	}
	return strings.Join(parts, "\n")
}

// prompt takes a prompt in; the turn itself runs beside the reader.
func (a *agent) prompt(ctx context.Context, m message) {
	var q promptParams
	s := (*session)(nil)
	if jsonv2.Unmarshal(m.Params, &q) == nil {
		s = a.find(q.SessionID)
	}
	if s == nil {
		a.refuse(m, -32002, "no such session")
		return
	}
	a.mu.Lock()
	a.prompts++
	n := a.prompts
	a.mu.Unlock()

	life := ctx
	ctx, cancel := context.WithCancel(life)
	f := &flight{cancel: cancel}
	s.mu.Lock()
	before, after := s.tail, make(chan struct{})
	s.tail = after
	if old := s.current; old != nil {
		a.logf("overlap: a prompt came while one was in flight")
		if a.o.Overlap == Abort || a.o.Overlap == AbortError {
			old.reason = map[Overlap]string{Abort: "cancelled"}[a.o.Overlap]
			old.cancel()
		}
	}
	if a.o.Overlap == Abort || a.o.Overlap == AbortError || s.current == nil {
		s.current = f
	}
	s.mu.Unlock()
	a.wg.Go(func() {
		defer close(after)
		defer cancel()
		<-before
		s.mu.Lock()
		s.current = f
		s.mu.Unlock()
		if a.turn(ctx, s, f, m, n, q.text()) {
			a.afterwards(life, s, q.text())
		}
	})
}

// turn answers a prompt and reports whether it came to its own end.
func (a *agent) turn(ctx context.Context, s *session, f *flight, m message, n int, prompt string) bool {
	t := &turn{a: a, s: s, prompt: prompt}
	pause(ctx, a.o.Slow)
	if a.o.DieAt == n || word(prompt, "DIE") {
		a.logf("dying")
		a.die(ErrDied)
		return false
	}
	if a.o.Unknown {
		a.strange(ctx, s)
	}
	reply := t.run(ctx)
	s.mu.Lock()
	reason := f.reason
	if s.current == f {
		s.current = nil
	}
	if len(s.steered) > 0 {
		reply += "\nsteered: " + strings.Join(s.steered, "\nsteered: ")
	}
	s.steered = nil
	s.mu.Unlock()
	switch {
	case ctx.Err() != nil && reason == "":
		a.refuse(m, -32603, "Request was aborted.")
		return false
	case ctx.Err() != nil:
		a.reply(m, object{"stopReason": reason})
		return false
	}
	for _, piece := range strings.SplitAfter(reply, " ") {
		a.update(s, object{"sessionUpdate": "agent_message_chunk", "content": text(piece), "messageId": fmt.Sprintf("m%d", n)})
	}
	a.reply(m, object{"stopReason": "end_turn", "usage": object{"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}})
	return true
}

// strange sends what no client knows, and waits for the refusal.
func (a *agent) strange(ctx context.Context, s *session) {
	a.update(s, object{"sessionUpdate": "notice", "severity": "warning", "title": "rename me"})
	a.update(s, object{"sessionUpdate": "future_chunk", "content": text("not a user message"), "n": jsontext.Value("12345678901234567890")})
	a.notify("vendor/notify/thing", object{"sessionId": s.id})
	if _, err := a.call(ctx, "vendor/ask", object{"sessionId": s.id}); err == nil {
		a.logf("the client answered what it cannot know")
	}
}

var laterWord = regexp.MustCompile(`(?m)\bLATER (\d+(?:ms|s)) (.*)$`)

// afterwards talks without having been asked.
func (a *agent) afterwards(ctx context.Context, s *session, prompt string) {
	if a.o.Unprompted {
		a.update(s, object{"sessionUpdate": "agent_message_chunk", "content": text("by the way")})
		a.update(s, object{"sessionUpdate": "usage_update", "used": 15, "size": 1000})
	}
	for _, m := range laterWord.FindAllStringSubmatch(prompt, -1) {
		d, _ := time.ParseDuration(m[1])
		pause(ctx, d)
		a.update(s, object{"sessionUpdate": "agent_message_chunk", "content": text(m[2])})
	}
}

// turn does the words of one prompt.
type turn struct {
	a       *agent
	s       *session
	prompt  string
	results []string
}

var (
	sleepWord  = regexp.MustCompile(`\bSLEEP (\d+(?:ms|s))\b`)
	readWord   = regexp.MustCompile(`\bREAD (\S+)`)
	writeWord  = regexp.MustCompile(`(?m)\bWRITE (\S+) (.*)$`)
	runWord    = regexp.MustCompile(`(?m)\bRUN (.*)$`)
	callWord   = regexp.MustCompile(`\bCALL ([A-Za-z0-9_.-]+) ?`)
	sayWord    = regexp.MustCompile(`(?m)\bSAY (.*)$`)
	noticeText = regexp.MustCompile(`(?s)<watch-event[^>]*>(.*?)</watch-event>`)
)

func word(prompt, w string) bool {
	return slices.Contains(strings.Fields(prompt), w)
}

func (t *turn) run(ctx context.Context) string {
	for _, m := range sleepWord.FindAllStringSubmatch(t.prompt, -1) {
		d, _ := time.ParseDuration(m[1])
		pause(ctx, d)
	}
	t.client(ctx)
	for _, m := range callWord.FindAllStringSubmatchIndex(t.prompt, -1) {
		if ctx.Err() != nil {
			break
		}
		args := "{}"
		if d := jsontext.NewDecoder(strings.NewReader(t.prompt[m[1]:])); d.PeekKind() == '{' {
			if v, err := d.ReadValue(); err == nil {
				args = string(v)
			}
		}
		t.result(t.call(ctx, t.prompt[m[2]:m[3]], args))
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if word(t.prompt, "QUIET") {
		t.s.quiet = true
	}
	if word(t.prompt, "LOUD") {
		t.s.quiet = false
	}
	return t.reply()
}

func (t *turn) result(text string, err error) {
	if err != nil {
		text = "error: " + err.Error()
	}
	t.results = append(t.results, text)
}

func (t *turn) reply() string {
	if m := sayWord.FindStringSubmatch(t.prompt); m != nil {
		return strings.TrimSpace(m[1])
	}
	if len(t.results) > 0 {
		return "tool said " + strings.Join(t.results, "; ")
	}
	if all := noticeText.FindAllStringSubmatch(t.prompt, -1); all != nil {
		if t.s.quiet {
			return "NO_REPLY"
		}
		var lines []string
		for _, m := range all {
			lines = append(lines, strings.TrimSpace(innermost(m[1])))
		}
		return "heard: " + strings.Join(lines, "\n")
	}
	return "you said " + strings.Join(strings.Fields(t.prompt), " ")
}

// client does the words that use the client's files and terminals.
func (t *turn) client(ctx context.Context) {
	for _, m := range writeWord.FindAllStringSubmatch(t.prompt, -1) {
		_, err := t.a.call(ctx, "fs/write_text_file", object{"sessionId": t.s.id, "path": m[1], "content": m[2]})
		t.result("written", err)
	}
	for _, m := range readWord.FindAllStringSubmatch(t.prompt, -1) {
		t.result(t.member(ctx, "fs/read_text_file", object{"sessionId": t.s.id, "path": m[1]}, "content"))
	}
	for _, m := range runWord.FindAllStringSubmatch(t.prompt, -1) {
		t.result(t.terminal(ctx, m[1]))
	}
}

func (t *turn) member(ctx context.Context, method string, params object, name string) (string, error) {
	raw, err := t.a.call(ctx, method, params)
	if err != nil {
		return "", err
	}
	var r map[string]jsontext.Value
	if err := jsonv2.Unmarshal(raw, &r); err != nil {
		return "", err
	}
	var s string
	if err := jsonv2.Unmarshal(r[name], &s); err != nil {
		return "", err
	}
	return s, nil
}

func (t *turn) terminal(ctx context.Context, command string) (string, error) {
	id, err := t.member(ctx, "terminal/create", object{"sessionId": t.s.id, "command": command}, "terminalId")
	if err != nil {
		return "", err
	}
	q := object{"sessionId": t.s.id, "terminalId": id}
	status, err := t.a.call(ctx, "terminal/wait_for_exit", q)
	if err != nil {
		return "", err
	}
	out, err := t.member(ctx, "terminal/output", q, "output")
	if err != nil {
		return "", err
	}
	_, err = t.a.call(ctx, "terminal/release", q)
	return out + string(status), err
}

var errNoTool = errors.New("no tool has that name")

// call calls an MCP tool, with the updates that agents send for it.
func (t *turn) call(ctx context.Context, name, args string) (string, error) {
	if t.a.o.Attach == Lazy {
		t.a.attach(ctx, t.s)
	}
	srv, tool := t.s.find(name)
	if srv == nil && t.a.o.Attach == Async { // its server may be one of the last
		select {
		case <-t.s.attached:
			srv, tool = t.s.find(name)
		case <-ctx.Done():
		}
	}
	if srv == nil {
		return "", fmt.Errorf("call %s: %w", name, errNoTool)
	}
	return t.callOn(ctx, srv, tool, args)
}

// find returns the first tool whose name contains word, and its server; nil if
// there is none.
func (s *session) find(word string) (*server, string) {
	for _, srv := range s.servers {
		if tool, ok := srv.tool(word); ok {
			return srv, tool
		}
	}
	return nil, ""
}

func (t *turn) callOn(ctx context.Context, srv *server, tool, args string) (string, error) {
	id := fmt.Sprintf("call_%s_%d", tool, len(t.results))
	call := object{
		"toolCallId": id, "title": srv.Name + "." + tool, "kind": "other", "status": "pending",
		"rawInput": object{"server": srv.Name, "tool": tool, "arguments": jsontext.Value(args)},
	}
	if t.a.o.Permission {
		if err := t.permit(ctx, call); err != nil {
			return "", err
		}
	}
	call["sessionUpdate"], call["status"] = "tool_call", "in_progress"
	t.a.update(t.s, call)
	r, err := srv.call(ctx, tool, args)
	status, out := "completed", ""
	if err == nil {
		out = contentText(r)
	}
	if err != nil || r.IsError {
		status = "failed"
	}
	t.a.update(t.s, object{"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, "rawOutput": object{"text": out}})
	if err == nil && t.a.o.Drain {
		t.drain(ctx)
	}
	return out, err
}

// permit asks before it tells of the call, and offers "always" first, as some
// agents do.
func (t *turn) permit(ctx context.Context, call object) error {
	raw, err := t.a.call(ctx, "session/request_permission", object{
		"sessionId": t.s.id, "toolCall": call, "options": []object{
			{"optionId": "opt-1", "name": "Always", "kind": "allow_always"},
			{"optionId": "opt-2", "name": "Yes", "kind": "allow_once"},
			{"optionId": "opt-3", "name": "No", "kind": "reject_once"},
		},
	})
	if err != nil {
		return err
	}
	var r struct {
		Outcome struct {
			Outcome  string `json:"outcome"`
			OptionID string `json:"optionId"`
		} `json:"outcome"`
	}
	if err := jsonv2.Unmarshal(raw, &r); err != nil {
		return err
	}
	switch r.Outcome.OptionID {
	case "opt-1", "opt-2":
		return nil
	default:
		return fmt.Errorf("not permitted: %s %s", r.Outcome.Outcome, r.Outcome.OptionID)
	}
}

// drain asks for what the user said meanwhile and makes it part of the reply.
func (t *turn) drain(ctx context.Context) {
	raw, err := t.a.call(ctx, "craft/drainMidTurnQueue", object{"sessionId": t.s.id})
	if err != nil {
		t.a.logf("drain refused: %v", err)
		return
	}
	var r struct {
		Messages []string `json:"messages"`
	}
	if jsonv2.Unmarshal(raw, &r) != nil {
		t.a.logf("bad answer to drain: %s", raw)
		return
	}
	for _, m := range r.Messages {
		t.results = append(t.results, "drained "+m)
	}
}

func contentText(r *mcp.CallToolResult) string {
	var parts []string
	for _, c := range r.Content {
		if tc, ok := c.(*mcp.TextContent); ok {
			parts = append(parts, tc.Text)
			continue
		}
		if b, err := json.Marshal(c); err == nil {
			parts = append(parts, string(b))
		}
	}
	return strings.Join(parts, "\n")
}

// innermost is what follows the last opening tag: instructions that precede a
// notice may speak of the tag.
func innermost(s string) string {
	if i := strings.LastIndex(s, "<watch-event"); i >= 0 {
		_, s, _ = strings.Cut(s[i:], ">")
	}
	return s
}
