package attach

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	redacted  = "[redacted]"
	maxSource = 64 << 10 // bytes of a text in which known secrets are looked for
	maxRead   = 1 << 10  // bytes of a text that are read beyond that
	minSecret = 4        // bytes; what is shorter hides nothing
)

// Sanitizer makes error texts fit to be kept and shown: no URL but its scheme,
// host and port, no path but its last name, no value of a setting, no credential,
// no structured data. It is safe for concurrent use.
type Sanitizer struct{ secrets []string }

// NewSanitizer returns a sanitizer that also takes out the given secrets, in all
// common encodings: the values of headers and environment variables, and the
// arguments of commands. Give it what the configuration of the server holds: of a
// secret in free text nothing else is a sure sign.
func NewSanitizer(secrets ...string) *Sanitizer {
	s := &Sanitizer{}
	for _, secret := range secrets {
		if len(secret) < minSecret {
			continue
		}
		quoted, _ := json.Marshal(secret)
		s.secrets = append(
			s.secrets, secret, strings.Trim(string(quoted), `"`), url.QueryEscape(secret), url.PathEscape(secret), hex.EncodeToString([]byte(secret)),
			base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret)),
		)
		for word := range strings.FieldsSeq(secret) { // "Bearer x", "--key x"
			if len(word) >= 2*minSecret {
				s.secrets = append(s.secrets, word)
			}
		}
	}
	// The longest first: one may be a part of another.
	slices.SortFunc(s.secrets, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	s.secrets = slices.Compact(s.secrets)
	return s
}

// What is taken out, in this order.
var (
	urls    = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.\-]{1,20}://[^\s"'<>` + "`" + `]+`)
	schemes = regexp.MustCompile(`(?i)\b(bearer|basic|digest|token)\s+[^\s,;]+`)
	// A name that ends in one of these words, and its value.
	settings = regexp.MustCompile(`(?i)([a-z0-9_\-.]{0,48}(?:authorization|cookie|key|token|secret|passw(?:or)?d|passwd|pwd|credentials?|signature|session|auth))(["']?\s*[:=]\s*)((?:(?:bearer|basic|digest|token)\s+)?(?:"[^"]*"|'[^']*'|[^\s,;]+))`)
	assigned = regexp.MustCompile(`\b([A-Za-z_][A-Za-z0-9_]{0,63})=("[^"]*"|'[^']*'|[^\s,;]+)`)
	options  = regexp.MustCompile(`(^|\s)(--?[A-Za-z][A-Za-z0-9\-]*)(=|\s+)("[^"]*"|'[^']*'|[^\s,;]+)`)
	paths    = regexp.MustCompile(`(?:[A-Za-z]:)?(?:~|\.{1,2})?(?:[/\\][^\s/\\:"'` + "`" + `,;]*){2,}`)
	words    = regexp.MustCompile(`[A-Za-z0-9_\-+/=.~]{20,}`)
	prefixed = regexp.MustCompile(`\b(?:sk|pk|rk|ghp|gho|ghu|ghs|github_pat|glpat|xox[a-z]|AKIA|ASIA|AIza|eyJ|npm|hf|ya29)[_\-.A-Za-z0-9]{8,}`)
)

// Summary makes a text one line of at most MaxSummary bytes without secrets. Text
// that is structured data gives the empty string: it is never a fallback. It is
// idempotent.
func (s *Sanitizer) Summary(text string) string {
	if text == "" {
		return ""
	}
	text = cut(s.known(cut(text, maxSource)), maxRead)
	for range 8 {
		next := s.once(text)
		if next == text {
			return text
		}
		text = next
	}
	return "" // cannot happen, and would show something not looked at
}

func (s *Sanitizer) once(text string) string {
	text = strings.Join(strings.Fields(printable(text)), " ")
	if i := strings.IndexAny(text, "{}"); i >= 0 {
		text = strings.TrimRight(text[:i], ` :"'[({`)
	}
	if strings.HasPrefix(text, `["`) || strings.HasPrefix(text, "[[") {
		return ""
	}
	text = s.known(text)
	text = urls.ReplaceAllStringFunc(text, func(u string) string { return cmp.Or(NetworkTarget(u), "[url]") })
	// What is left of a URL stands for no path.
	var b strings.Builder
	end := 0
	for _, at := range urls.FindAllStringIndex(text, -1) {
		b.WriteString(hide(text[end:at[0]]))
		b.WriteString(text[at[0]:at[1]])
		end = at[1]
	}
	b.WriteString(hide(text[end:]))
	return cut(b.String(), MaxSummary)
}

// known takes out the secrets that are known.
func (s *Sanitizer) known(text string) string {
	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	return text
}

func hide(text string) string {
	text = schemes.ReplaceAllString(text, "$1 "+redacted)
	text = settings.ReplaceAllString(text, "$1$2"+redacted)
	text = assigned.ReplaceAllString(text, "$1="+redacted)
	text = options.ReplaceAllString(text, "$1$2$3"+redacted)
	text = paths.ReplaceAllStringFunc(text, lastName)
	text = prefixed.ReplaceAllString(text, redacted)
	return words.ReplaceAllStringFunc(text, func(w string) string {
		if strings.ContainsAny(w, "0123456789") && strings.ContainsFunc(w, letter) {
			return redacted
		}
		return w
	})
}

func letter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }

func lastName(path string) string {
	path = strings.TrimRight(path, `/\`)
	return "…" + path[strings.LastIndexAny(path, `/\`)+1:]
}

var hosts = regexp.MustCompile(`^[A-Za-z0-9.\-:\[\]_]{1,260}$`)

// NetworkTarget reduces a URL to scheme://host[:port]; what is no such URL becomes
// empty.
func NetworkTarget(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || !hosts.MatchString(u.Host) || u.Scheme == "" {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

// CommandTarget reduces a command to the base name of its program. It is given
// the program alone, never its arguments.
func CommandTarget(program string) string {
	program = strings.TrimRight(program, `/\`)
	return name(program[strings.LastIndexAny(program, `/\`)+1:])
}

func target(s string) string {
	if strings.Contains(s, "://") {
		return NetworkTarget(s)
	}
	return CommandTarget(s)
}

// ConnectionID makes an opaque id of what identifies a connection, which may be
// as good as a key to it.
func ConnectionID(raw string) string {
	sum := sha256.Sum256([]byte(raw))
	return "mcp-" + hex.EncodeToString(sum[:8])
}

var connectionIDs = regexp.MustCompile(`^mcp-[0-9a-f]{16}$`)

func isConnectionID(s string) bool { return connectionIDs.MatchString(s) }
