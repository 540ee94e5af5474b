package notice

import (
	"regexp"
	"strings"
	"unicode"
)

// What comes from outside must stay data (specification D-17): it may neither
// close its frame, nor look like a frame, a speaker or a system message, nor
// carry what a reader cannot see. Text is changed as little as that takes. The
// order matters: what is invisible goes first, so that nothing becomes a tag by
// its removal.

// escapes matches terminal sequences whole, so that their parameters do not
// stay behind as noise. None reaches over a line's end: an unclosed one must
// not hide what follows.
var escapes = regexp.MustCompile("(?:\x1b\\[|\u009b)[0-?]*[ -/]*[@-~]|(?:\x1b[\\]PX^_]|[\u009d\u0090\u0098\u009e\u009f])[^\x07\x1b\u009c\n]*(?:\x07|\x1b\\\\|\u009c)?|\x1b[^\n]?")

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// visible drops what a reader cannot see: control and format characters (bidi,
// zero-width, tags), private and unassigned ones, blank letters, variation
// selectors. Joined emoji fall apart by it, and some scripts lose a nuance. All
// spaces become plain ones.
func visible(r rune) rune {
	switch {
	case r == '\n' || r == ' ':
		return r
	case r == '\t' || unicode.Is(unicode.Zs, r):
		return ' '
	case !unicode.IsPrint(r):
		return -1
	case r >= 0xFE00 && r <= 0xFE0F, r >= 0xE0100 && r <= 0xE01EF, r >= 0x180B && r <= 0x180F: // variation selectors
		return -1
	case r == 0x034F, r == 0x115F, r == 0x1160, r == 0x17B4, r == 0x17B5, r == 0x2800, r == 0x3164, r == 0xFFA0: // blanks
		return -1
	case r == '＜', r == '﹤': // another way to write <
		return '<'
	}
	return r
}

func plain(s string) string {
	s = lineEnds.Replace(s)
	if strings.ContainsAny(s, "\x1b\u0090\u0098\u009b\u009d\u009e\u009f") {
		s = escapes.ReplaceAllString(s, "")
	}
	return strings.Map(visible, s) // which also replaces what is not UTF-8
}

// entity matches an ampersand that would be read as an escape of ours.
var entity = regexp.MustCompile(`&(#[0-9xX]|[a-zA-Z]+;)`)

// Plain makes one visible line of at most limit runes of a text from outside.
// It is for places that hold data by themselves, such as a header, an
// environment variable or a JSON string; it escapes nothing.
func Plain(s string, limit int) string {
	s = cut(s, 8*limit) // of what is that long only the beginning is shown
	return clip(strings.Join(strings.Fields(plain(s)), " "), limit)
}

// attribute makes s safe between double quotes, on one line.
func attribute(s string, limit int) string { return attributes.Replace(Plain(s, limit)) }

var attributes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

// speaker matches a line that poses as somebody speaking, as the start of an
// instruction block or of a code fence, or as the reply that says nothing.
var speaker = regexp.MustCompile("(?i)^(?:[^\\pL\\pN]*(?:the )?(?:user|human|assistant|system|developer|tool|function|model|ai|claude|gpt|codex|gemini|operator|admin|instruction|prompt)s?(?: (?:message|prompt|instruction|notice|reminder)s?)?[^\\pL\\pN]*[:：]| *(?:```|~~~)|[^\\pL\\pN]*\\[/?INST\\])")

// lines makes the lines of s safe as the content of a frame: at most maxLines,
// each at most maxLine runes, in all at most maxBytes; "+N more" says how many
// were left out. Empty lines go.
func lines(s string, maxLines, maxLine, maxBytes int) string {
	var b strings.Builder
	kept, left := 0, 0
	for line := range strings.SplitSeq(plain(s), "\n") {
		line = strings.TrimRight(line, " ")
		if strings.TrimLeft(line, " ") == "" {
			continue
		}
		if kept < maxLines { // what is only counted is not looked at: there may be very many
			line = safeLine(clip(line, maxLine))
		}
		if kept >= maxLines || b.Len()+len(line)+1 > maxBytes {
			left++
			continue
		}
		if kept > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(line)
		kept++
	}
	if left > 0 {
		if kept > 0 {
			b.WriteByte('\n')
		}
		b.WriteString("+" + itoa(left) + " more")
	}
	return b.String()
}

// safeLine neutralises one line. A line that poses is shown as a quotation.
func safeLine(s string) string {
	s = entity.ReplaceAllString(s, "&amp;$1")
	s = strings.ReplaceAll(s, "<", "&lt;")
	if speaker.MatchString(s) || isNoReply(s) {
		return "> " + s
	}
	return s
}

// NoReply is the reply of an agent that has nothing to say.
const NoReply = "NO_REPLY"

// isNoReply sees a line as those do that suppress replies: without spaces,
// backticks, quotes and a final full stop.
func isNoReply(line string) bool {
	const around = " \t`\"'"
	line = strings.TrimSuffix(strings.Trim(line, around), ".")
	return strings.Trim(line, around) == NoReply
}

// clip shortens s to limit runes; what was cut ends in "…".
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	n := 0
	for i := range s {
		if n == limit-1 {
			// The last rune that fits is the mark, unless nothing follows.
			if rest := s[i:]; len([]rune(rest)) > 1 {
				return s[:i] + "…"
			}
			return s
		}
		n++
	}
	return s
}
