package pty

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/ossicle/ossicle/agent"
)

// MaxPaste bounds what a turn types, in bytes. Without bracketed paste it is what a
// terminal takes for one line.
const (
	MaxPaste = 256 << 10
	maxLine  = 4000
)

// ErrTooLong means that a prompt is too long for the terminal; nothing was typed.
var ErrTooLong = errors.New("the prompt is too long for the terminal")

// What a paste is wrapped in.
const (
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// promptText is a prompt as text that can be typed. In what comes from outside a
// mark that would have a CLI read a file is broken up: "@" before a name.
func promptText(p agent.Prompt) string {
	var parts []string
	for _, part := range p.Parts {
		text := Clean(part.Text)
		if part.Kind == agent.PartNotice {
			text = strings.ReplaceAll(text, "@", "@\u2060") // a word joiner: it cannot be seen
		}
		parts = append(parts, text)
	}
	return strings.TrimSpace(strings.Join(parts, "\n\n"))
}

// Clean makes text one that has no key in it: no control character is left, nor
// what could end a bracketed paste, nor a byte that is no text. Lines stay.
func Clean(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\r', r == '\u2028', r == '\u2029', r == '\u0085':
			return '\n'
		case r == '\t':
			return ' '
		case unicode.IsControl(r): // C0 with ESC, DEL, C1
			return -1
		}
		return r
	}, text)
}

// keys are what types a text: one bracketed paste, or one line where the program
// knows none.
func keys(text string, bracketed bool) ([]byte, error) {
	text = Clean(text)
	most := MaxPaste
	if !bracketed {
		text, most = strings.Join(strings.Fields(text), " "), maxLine
	}
	if len(text) > most {
		return nil, fmt.Errorf("type prompt of %d bytes (at most %d): %w", len(text), most, ErrTooLong)
	}
	if !bracketed {
		return []byte(text), nil
	}
	return []byte(pasteBegin + text + pasteEnd), nil
}

// probe is how many letters and digits of a text must stand on the screen.
const probe = 16

// shows reports whether the screen, compared with how it was before, shows a text
// that was typed: some of it on lines that are new, or the mark that CLIs put in
// its place.
func shows(before, after, text string) bool {
	old := map[string]int{}
	for line := range strings.SplitSeq(before, "\n") {
		old[squeeze(line)]++
	}
	var fresh strings.Builder
	for line := range strings.SplitSeq(after, "\n") {
		if s := squeeze(line); old[s] > 0 {
			old[s]--
		} else {
			fresh.WriteString(s)
		}
	}
	seen, typed := fresh.String(), squeeze(text)
	if strings.Contains(seen, "pasted") {
		return true
	}
	if len(typed) <= probe {
		return typed != "" && strings.Contains(seen, typed)
	}
	for i := 0; i+probe <= len(typed) && i < 64*probe; i += probe / 2 {
		if strings.Contains(seen, typed[i:i+probe]) {
			return true
		}
	}
	return strings.Contains(seen, typed[len(typed)-probe:])
}

// unmoved reports whether a screen that rests shows a text where it was pasted, in
// the input line: the screen is the same from there down, but for one line below,
// since programs show hints there for some time. Above it anything may have changed.
func unmoved(before, pasted, now, text string) bool {
	old, rest := seen(pasted), seen(now)
	var same []string
	for other := 0; len(old) > 0 && len(rest) > 0; old, rest = old[:len(old)-1], rest[:len(rest)-1] {
		if line := old[len(old)-1]; line == rest[len(rest)-1] {
			same = append(same, line)
		} else if other++; other > 1 || shows(before, line, text) {
			break
		}
	}
	slices.Reverse(same)
	return shows(before, strings.Join(same, "\n"), text)
}

// seen are the lines of a screen with something in them.
func seen(screen string) (lines []string) {
	for line := range strings.SplitSeq(screen, "\n") {
		if line = strings.TrimSpace(line); strings.Trim(line, " |│┃") != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// squeeze leaves the letters and digits of ASCII, or everything that can be seen
// where there are none: lines are broken and framed on a screen.
func squeeze(s string) string {
	short := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return -1
	}, s)
	if short != "" {
		return short
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsNumber(r) {
			return r
		}
		return -1
	}, s)
}
