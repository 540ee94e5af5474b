package scripted

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var (
	callWord  = regexp.MustCompile(`\bCALL ([A-Za-z0-9_.-]+) ?`)
	sleepWord = regexp.MustCompile(`\bSLEEP (\d+(?:ms|s))\b`)
	sayWord   = regexp.MustCompile(`(?m)\bSAY (.*)$`)
	failWord  = regexp.MustCompile(`\bFAIL (\d{3})\b`)
	noticeTag = regexp.MustCompile(`(?s)<watch-event[^>]*>(.*?)</watch-event>`)
)

// quoted is how much of a text a reply quotes, in bytes.
const quoted = 200

// Words decides by words in the last user text:
//
//	CALL tool {json}   call the first offered tool whose name contains "tool";
//	                   several are called one after the other
//	SLEEP 2s           wait before the first byte of the first reply
//	SAY text           when all calls are done, say the rest of the line
//	FAIL 503           answer with this HTTP status
//
// Without SAY it quotes: the last tool result ("tool said …"), the lines of a
// watch event ("heard: …"), or the beginning of the user's text ("you said …").
// Where an agent hides its tools behind a search tool, it is used first.
func Words(t Turn) Reply {
	var r Reply
	if m := sleepWord.FindStringSubmatch(t.User); m != nil && len(t.Calls) == 0 {
		r.Delay, _ = time.ParseDuration(m[1])
	}
	if m := failWord.FindStringSubmatch(t.User); m != nil {
		r.Status, _ = strconv.Atoi(m[1])
		return r
	}
	if c, ok := pending(t); ok {
		if call, ok := resolve(t, c); ok {
			r.Calls = []Call{call}
		} else {
			r.Text = "no tool matches " + c.Tool + " among " + strconv.Itoa(len(t.Tools))
		}
		return r
	}
	r.Text = say(t)
	return r
}

func say(t Turn) string {
	if m := sayWord.FindStringSubmatch(t.User); m != nil {
		return strings.TrimSpace(m[1])
	}
	if n := len(t.Results); n > 0 {
		return "tool said " + cut(t.Results[n-1])
	}
	if all := noticeTag.FindAllStringSubmatch(t.User, -1); all != nil {
		var lines []string
		for _, m := range all {
			lines = append(lines, strings.TrimSpace(innermost(m[1])))
		}
		return "heard: " + cut(strings.Join(lines, "\n"))
	}
	return "you said " + cut(strings.Join(strings.Fields(t.User), " "))
}

func cut(s string) string {
	if len(s) <= quoted {
		return s
	}
	return strings.ToValidUTF8(s[:quoted], "") + "…"
}

// pending returns the first call of the script that was not made yet.
func pending(t Turn) (Call, bool) {
	calls := script(t.User)
	for _, made := range t.Calls {
		if len(calls) > 0 && isCall(made, calls[0].Tool) {
			calls = calls[1:]
		}
	}
	if len(calls) == 0 {
		return Call{}, false
	}
	return calls[0], true
}

func script(text string) []Call {
	var calls []Call
	for _, m := range callWord.FindAllStringSubmatchIndex(text, -1) {
		c := Call{Tool: text[m[2]:m[3]], Args: "{}"}
		d := jsontext.NewDecoder(strings.NewReader(text[m[1]:]))
		if d.PeekKind() == '{' {
			if v, err := d.ReadValue(); err == nil {
				c.Args = string(v)
			}
		}
		calls = append(calls, c)
	}
	return calls
}

// metaTool is Qwen's: it calls a tool that a search found, by name.
const metaTool = "tool_call"

func isCall(m Made, word string) bool {
	if strings.Contains(m.Tool, word) {
		return true
	}
	return m.Tool == metaTool && strings.Contains(metaName(m.Args), word)
}

func metaName(args string) string {
	var a struct {
		Name string `json:"name"`
	}
	if json.Unmarshal([]byte(args), &a) != nil {
		return ""
	}
	return a.Name
}

// resolve finds an offered tool for a call: itself, or the way to it.
func resolve(t Turn, c Call) (Call, bool) {
	if name, ok := find(t.Tools, c.Tool); ok {
		return Call{Tool: name, Args: c.Args}, true
	}
	search, ok := find(t.Tools, "ToolSearch")
	if !ok {
		search, ok = find(t.Tools, "tool_search")
	}
	if !ok {
		return Call{}, false
	}
	searched := false
	for _, m := range t.Calls {
		searched = searched || m.Tool == search
	}
	if !searched {
		return Call{Tool: search, Args: string(encode(object{"query": c.Tool}))}, true
	}
	if meta, ok := find(t.Tools, metaTool); ok {
		if name, ok := foundName(t.Results, c.Tool); ok {
			return Call{Tool: meta, Args: string(encode(object{"name": name, "arguments": jsontext.Value(c.Args)}))}, true
		}
	}
	return Call{}, false
}

func find(tools []string, word string) (string, bool) {
	for _, t := range tools {
		if strings.Contains(t, word) {
			return t, true
		}
	}
	return "", false
}

var toolName = regexp.MustCompile(`[A-Za-z0-9_.-]+`)

// nothingFound is how a search says that it found nothing, and quotes the query.
const nothingFound = "No tools found"

// foundName takes the full name of a tool out of the text of a search result.
func foundName(results []string, word string) (string, bool) {
	for _, r := range results {
		if strings.HasPrefix(strings.TrimSpace(r), nothingFound) {
			continue
		}
		for _, name := range toolName.FindAllString(r, -1) {
			if strings.Contains(name, word) {
				return name, true
			}
		}
	}
	return "", false
}

// innermost is what follows the last opening tag: instructions that precede a
// notice may speak of the tag.
func innermost(s string) string {
	if i := strings.LastIndex(s, "<watch-event"); i >= 0 {
		_, s, _ = strings.Cut(s[i:], ">")
	}
	return s
}
