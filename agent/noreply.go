package agent

import (
	"regexp"
	"strings"
)

// NoReply is what a model answers when there is nothing to say.
const NoReply = "NO_REPLY"

// ornaments are what models put around the token (specification WA-24).
const ornaments = " \t\r`'\"“”‘’"

// Suppressed reports whether a reply is published nowhere: it is empty, or one
// of its lines is only NO_REPLY (W-150). Text beside that line does not count.
func Suppressed(reply string) bool {
	if strings.TrimSpace(reply) == "" {
		return true
	}
	for line := range strings.Lines(reply) {
		line = strings.Trim(line, ornaments+"\n")
		line = strings.Trim(strings.TrimSuffix(line, "."), ornaments)
		if line == NoReply {
			return true
		}
	}
	return false
}

var noReplyCode = regexp.MustCompile("^(?:print\\s*\\(\\s*|return\\s+)?(?:'''|\"\"\"|['\"`])?\\s*NO_REPLY\\.?\\s*(?:'''|\"\"\"|['\"`])?\\s*\\)?\\s*;?$")

// noReplyProgram reports whether a program is only the text NO_REPLY: the bare
// name, a string, or a print of it, also between comments (W-261).
func noReplyProgram(code string) bool {
	var rest strings.Builder
	for line := range strings.Lines(code) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			rest.WriteString(line + "\n")
		}
	}
	return noReplyCode.MatchString(strings.TrimSpace(rest.String()))
}

// unfence removes the code fence that models put around a program.
func unfence(code string) string {
	body := strings.TrimSpace(code)
	if !strings.HasPrefix(body, "```") || !strings.HasSuffix(body, "```") || len(body) < 6 {
		return code
	}
	body = strings.TrimSuffix(strings.TrimPrefix(body, "```"), "```")
	if lang, rest, ok := strings.Cut(body, "\n"); ok && !strings.ContainsAny(strings.TrimSpace(lang), " ()=") {
		body = rest
	}
	return body
}
