package listen

import (
	"strings"
	"unicode/utf8"
)

// expansion is how the expressions of an operator expand: RFC 6570, appendix A.
type expansion struct {
	first, separator string
	named            bool
	ifEmpty          string
	reserved         bool // reserved characters and percent-encoded triplets stay
}

var expansions = map[byte]expansion{
	0:   {separator: ","},
	'+': {separator: ",", reserved: true},
	'#': {first: "#", separator: ",", reserved: true},
	'.': {first: ".", separator: "."},
	'/': {first: "/", separator: "/"},
	';': {first: ";", separator: ";", named: true},
	'?': {first: "?", separator: "&", named: true, ifEmpty: "="},
	'&': {first: "&", separator: "&", named: true, ifEmpty: "="},
}

// Expand returns the URI of the template with these values; a variable without
// one is absent. The value of an exploded variable is a list, split where
// [URITemplate.Match] joins it.
func (t *URITemplate) Expand(values map[string]string) string {
	var b strings.Builder
	for _, tok := range t.tokens {
		if len(tok.vars) == 0 {
			escape(&b, tok.literal, true)
			continue
		}
		e := expansions[tok.operator]
		lead := e.first
		for _, v := range tok.vars {
			value, ok := values[v.name]
			if !ok {
				continue
			}
			for _, item := range v.items(value) {
				b.WriteString(lead)
				lead = e.separator
				e.expand(&b, v, item)
			}
		}
	}
	return b.String()
}

func (v varSpec) items(value string) []string {
	if v.explode {
		return strings.Split(value, v.separator())
	}
	if v.prefix > 0 {
		value = firstRunes(value, v.prefix)
	}
	return []string{value}
}

func (e expansion) expand(b *strings.Builder, v varSpec, value string) {
	if e.named {
		escape(b, v.name, true)
		if value == "" {
			b.WriteString(e.ifEmpty)
			return
		}
		b.WriteByte('=')
	}
	escape(b, value, e.reserved)
}

// firstRunes returns the first n characters of s.
func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// escape appends s with all that is not unreserved percent-encoded; with reserved
// it lets reserved characters and triplets that are there already stand.
func escape(b *strings.Builder, s string, reserved bool) {
	const digits = "0123456789ABCDEF"
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0,
			reserved && strings.IndexByte(":/?#[]@!$&'()*+,;=", c) >= 0,
			reserved && c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
