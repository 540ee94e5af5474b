package scripted

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// part is a piece of content in any of the protocols.
type part struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// textOf returns the text of a content that is a string or a list of parts.
func textOf(raw jsontext.Value) string {
	switch raw.Kind() {
	case '"':
		var s string
		_ = json.Unmarshal(raw, &s)
		return s
	case '[':
		var parts []part
		_ = json.Unmarshal(raw, &parts)
		var b strings.Builder
		for _, p := range parts {
			b.WriteString(p.Text)
		}
		return b.String()
	default:
		return ""
	}
}

// said returns what the user said in a content: its last text. What agents add
// to a user's message, and what they merge into it from a turn that was cut
// off, comes in parts of its own, before.
func said(raw jsontext.Value) string {
	if raw.Kind() != '[' {
		return textOf(raw)
	}
	var parts []part
	_ = json.Unmarshal(raw, &parts)
	text := ""
	for _, p := range parts {
		if !isReminder(p.Text) && strings.TrimSpace(p.Text) != "" {
			text = p.Text
		}
	}
	return text
}

func isReminder(text string) bool { return strings.HasPrefix(text, "<system-reminder>") }

// user notes a user text; what came before it belongs to an earlier turn.
func (t *Turn) user(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	t.User, t.Calls, t.Results = text, nil, nil
	t.Users++
}

func (t *Turn) made(tool, args string) { t.Calls = append(t.Calls, Made{Tool: tool, Args: args}) }

func (t *Turn) result(text string) { t.Results = append(t.Results, text) }
