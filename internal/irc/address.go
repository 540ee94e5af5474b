package irc

import "strings"

// mapping says which letters of names are the same: the server's CASEMAPPING.
type mapping string

const (
	mapASCII  mapping = "ascii"
	mapStrict mapping = "strict-rfc1459"
	mapRFC    mapping = "rfc1459" // what counts if the server does not say
)

func (m mapping) fold(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case m == mapASCII:
			return r
		case r >= '[' && r <= ']': // [ \ ] are the capitals of { | }
			return r + '{' - '['
		case r == '~' && m != mapStrict:
			return '^'
		}
		return r
	}, s)
}

func (m mapping) equal(a, b string) bool { return m.fold(a) == m.fold(b) }

// addressed reports whether text speaks to nick ("nick: …", "nick, …",
// "@nick …"), and returns what it says. If it only names the nick, that is what
// it says.
func (m mapping) addressed(text, nick string) (string, bool) {
	text = strings.TrimSpace(text)
	s, at := strings.CutPrefix(text, "@")
	if len(s) < len(nick) || !m.equal(s[:len(nick)], nick) {
		return "", false
	}
	rest := s[len(nick):]
	switch {
	case rest == "" && at:
		return text, true
	case rest == "":
		return "", false
	case rest[0] == ':' || rest[0] == ',':
		rest = rest[1:]
	case rest[0] == ' ' && at:
	default:
		return "", false
	}
	if rest = strings.TrimSpace(rest); rest == "" {
		return text, true
	}
	return rest, true
}

// isNick reports whether s can be the nick of somebody: no server or service
// name, no mask, no channel, nothing that a list would be made of.
func isNick(s string) bool {
	if s == "" || len(s) > maxNick || strings.ContainsAny(s, " ,*?!@.:\x00\r\n\x07") || strings.ContainsAny(s[:1], "#&+~%$0123456789-") {
		return false
	}
	return plain(s) == s
}

// isChannel reports whether s can be the name of a channel.
func isChannel(s string) bool {
	return len(s) > 1 && len(s) <= 100 && strings.ContainsAny(s[:1], "#&+!") && !strings.ContainsAny(s, " ,:\x07") && plain(s) == s
}
