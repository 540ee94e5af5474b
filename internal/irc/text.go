package irc

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// formatting matches codes for bold, colours and the like, with their
// parameters.
var formatting = regexp.MustCompile("\x03(?:[0-9]{1,2}(?:,[0-9]{1,2})?)?|\x04(?:[0-9A-Fa-f]{6}(?:,[0-9A-Fa-f]{6})?)?|[\x02\x0f\x11\x16\x1d\x1e\x1f]")

// shown maps what may stand in a line: no control characters, and nothing that
// turns the direction of text or cannot be seen.
func shown(r rune) rune {
	switch {
	case r == '\u200c' || r == '\u200d': // joiners, which scripts and emoji need
		return r
	case r == '\t' || unicode.Is(unicode.Z, r):
		return ' '
	case unicode.Is(unicode.C, r): // controls, formats, private use, surrogates
		return -1
	}
	return r
}

// plain makes one line of visible text.
func plain(s string) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	return strings.Map(shown, formatting.ReplaceAllString(s, ""))
}

var (
	lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")
	tabs     = strings.NewReplacer("\t", "    ")
)

// split makes lines of a reply: each at most limit bytes, cut between words
// where that is possible and never within a character, at most most of them.
// What is left out is said in one line more.
func split(text string, limit, most int) []string {
	var lines []string
	left := 0
	for s := range strings.SplitSeq(lineEnds.Replace(text), "\n") {
		s = strings.TrimRight(plain(tabs.Replace(s)), " ")
		for s != "" {
			var head string
			head, s = cutLine(s, limit)
			if len(lines) < most {
				lines = append(lines, head)
			} else {
				left++
			}
		}
	}
	switch {
	case left == 1:
		lines = append(lines, "… (1 more line)")
	case left > 1:
		lines = append(lines, fmt.Sprintf("… (%d more lines)", left))
	}
	return lines
}

// cutLine takes at most limit bytes off s: up to the last space that leaves
// more than half of them, else up to a character.
func cutLine(s string, limit int) (head, rest string) {
	if len(s) <= limit {
		return s, ""
	}
	if i := strings.LastIndexByte(s[:limit+1], ' '); i > limit/2 {
		if head = strings.TrimRight(s[:i], " "); head != "" {
			return head, strings.TrimLeft(s[i:], " ")
		}
	}
	for limit > 1 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit], strings.TrimLeft(s[limit:], " ")
}
