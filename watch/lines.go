package watch

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ossicle/ossicle/internal/jsonx"
)

// Bounds of a default line's parts.
const (
	maxLineChanges = 3  // changes that a MODIFIED line shows (W-093)
	maxShownValue  = 40 // runes of a value that is shown; a longer one is not (W-094)
	maxTextExcerpt = 80 // runes of a changed text that are shown
)

// liner writes the default lines of one watch (specification W-090 to W-095).
// It remembers which kinds of objects the watch has seen.
type liner struct {
	kind  string // the first
	kinds bool   // there was another: lines name the kind (WA-18)
}

// line is the line of an event for which no filter speaks.
func (l *liner) line(e *Event) string {
	switch {
	case e.Type == TypeError || e.Type == TypeGap:
		if text := e.message(); text != "" {
			return e.Type + " " + text
		}
	case e.Type == TypeChanged && e.state:
		return e.Type + changedText(e)
	}
	if name := l.objectName(e.subject()); name != "" {
		return e.Type + " " + name + e.changesText()
	}
	if e.state {
		return e.Type + " " + e.Key + e.changesText()
	}
	return compact(e.Fields)
}

// message is what an ERROR or a GAP says.
func (e *Event) message() string {
	text := ""
	_, _ = jsonx.ScanObject(e.Fields, func(name string, at jsonx.Span) {
		if name == "message" {
			if v, err := jsonx.Parse(at.Of(e.Fields)); err == nil && v.Kind() == jsonx.String {
				text = v.Text()
			}
		}
	})
	return text
}

// subject is the object that the event concerns.
func (e *Event) subject() jsonx.Value {
	if e.object != nil {
		return *e.object
	}
	if len(e.Item) == 0 || e.Item[0] != '{' {
		return jsonx.Value{}
	}
	v, _ := jsonx.Parse(e.Item)
	return v
}

// objectName names a Kubernetes-like object, one with a metadata.name.
func (l *liner) objectName(v jsonx.Value) string {
	name, ok := v.Get("metadata", "name")
	if !ok || name.Kind() != jsonx.String || name.Text() == "" {
		return ""
	}
	text := name.Text()
	if ns, ok := v.Get("metadata", "namespace"); ok && ns.Kind() == jsonx.String && ns.Text() != "" {
		text = ns.Text() + "/" + text
	}
	kind, _ := v.Get("kind")
	if kind.Kind() != jsonx.String {
		return text
	}
	if l.kind == "" {
		l.kind = kind.Text()
	}
	if l.kinds = l.kinds || kind.Text() != l.kind; l.kinds {
		return kind.Text() + " " + text
	}
	return text
}

// changesText is " (path: old→new, …)" for MODIFIED, never for DELETED: an
// object that is gone has no transition (W-095).
func (e *Event) changesText() string {
	if e.Type != TypeModified || len(e.Changed) == 0 {
		return ""
	}
	var parts []string
	for _, c := range e.changes[:min(len(e.changes), maxLineChanges)] {
		if text := c.text(); text != rootPath { // the whole, too long to show: the key says it all
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func (c change) text() string {
	old, oldOK := shown(c.old)
	now, nowOK := shown(c.new)
	both := old + "→" + now
	switch {
	case !oldOK || !nowOK || old == now:
		return c.path
	case c.path == rootPath:
		return both
	default:
		return c.path + ": " + both
	}
}

// shown renders a value that is short enough to be shown whole. An array or an
// object is not: cut to a length, both sides would read alike (W-094).
func shown(v *jsonx.Value) (string, bool) {
	if v == nil {
		return "(none)", true
	}
	if v.Kind() == jsonx.Array || v.Kind() == jsonx.Object {
		return "", false
	}
	text := v.Text()
	if v.Kind() == jsonx.String {
		text = neutral(text)
	}
	if text == "" {
		text = `""`
	}
	return text, utf8.RuneCountInString(text) <= maxShownValue
}

// changedText tells of a whole that has changed: both sides if they are short,
// else where the new one begins to differ.
func changedText(e *Event) string {
	old, oldErr := jsonx.Parse(e.Old)
	now, newErr := jsonx.Parse(e.New)
	if oldErr != nil || newErr != nil {
		return ""
	}
	if old.Kind() != now.Kind() {
		return " from " + shapeName(old) + " to " + shapeName(now)
	}
	if text := (change{path: rootPath, old: &old, new: &now}).text(); text != rootPath {
		return " (" + text + ")"
	}
	text := now.Text()
	same := commonPrefix([]byte(old.Text()), []byte(text))
	for same > 0 && same < len(text) && !utf8.RuneStart(text[same]) {
		same--
	}
	at := utf8.RuneCountInString(text[:same]) + 1
	return " at character " + strconv.Itoa(at) + ": " + neutral(cut(text[same:], maxTextExcerpt))
}

func shapeName(v jsonx.Value) string {
	switch v.Kind() {
	case jsonx.Array:
		return "a list"
	case jsonx.Object:
		return "an object"
	default:
		return "text"
	}
}

func compact(raw []byte) string {
	if v, err := jsonx.Parse(raw); err == nil {
		return v.String()
	}
	return string(raw)
}

// frameLike matches what could be taken for the frame that a notice is put
// into: a server's text must not end it (WA-23).
var frameLike = regexp.MustCompile(`(?i)[<＜‹〈](\s*[/／]?\s*watch[-_\s‐‑‒–]*event)`)

// neutral makes text from outside harmless in a line: one line, no control and
// no invisible characters, nothing that looks like a notice's frame.
func neutral(s string) string {
	if plainASCII(s) && !strings.Contains(s, "<") {
		return s
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t' || r == '\u2028' || r == '\u2029' || r == '\u0085':
			return ' '
		case r == unicode.ReplacementChar || unicode.IsControl(r):
			return unicode.ReplacementChar
		case unicode.Is(unicode.Cf, r) && r != '\u200d' || unicode.Is(unicode.Variation_Selector, r) && r >= 0xE0100:
			return unicode.ReplacementChar // bidirectional controls, zero widths, tags
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
	// A joiner holds emoji together; inside a frame's name it would hide it.
	if frameLike.MatchString(strings.ReplaceAll(s, "\u200d", "")) && !frameLike.MatchString(s) {
		s = strings.ReplaceAll(s, "\u200d", "")
	}
	return frameLike.ReplaceAllString(s, "‹$1")
}

func plainASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// bound makes a line of at most limit runes, white space around it removed. It
// cuts first, so that a huge text costs no more than its beginning.
func bound(s string, limit int) string {
	return strings.TrimSpace(neutral(cut(strings.TrimSpace(s), limit)))
}

// cut returns s, or its first limit-1 runes and an ellipsis.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	n, last := 0, 0
	for i := range s {
		if n++; n == limit {
			last = i
		}
		if n > limit {
			return s[:last] + "…"
		}
	}
	return s
}
