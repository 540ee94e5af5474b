package mailbox

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// MaxID bounds the id of an agent, in bytes.
const MaxID = 128

// Everybody is the recipient that stands for all members of a session.
const Everybody = "*"

// sessionLayout is the time in the id of a session.
const sessionLayout = "20060102_150405"

// NewSessionID makes the id of a session: YYYYMMDD_HHMMSS_ and 8 hex digits, the
// time in UTC (specification S-1).
func NewSessionID(now time.Time) string {
	return now.UTC().Format(sessionLayout) + "_" + randomHex(4)
}

// CheckSession returns an *InvalidError for what is no id of a session.
func CheckSession(id string) error {
	bad := &InvalidError{Field: "session", Problem: fmt.Sprintf("%q is not of the form YYYYMMDD_HHMMSS_8hex, for instance 20260821_011758_54e1cab9", clip(id, 64))}
	if len(id) != len(sessionLayout)+9 || id[len(sessionLayout)] != '_' {
		return bad
	}
	if _, err := time.Parse(sessionLayout, id[:len(sessionLayout)]); err != nil {
		return bad
	}
	for _, c := range []byte(id[len(sessionLayout)+1:]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return bad
		}
	}
	return nil
}

// CheckAgent returns an *InvalidError for what is no id of an agent: 1 to 128
// letters, digits, "_", "-" and ".", where a dot stands between two names. So no
// path can be formed from an id (specification S-2).
func CheckAgent(id string) error { return checkID("agent", id) }

func checkID(field, id string) error {
	bad := func(problem string) error { return &InvalidError{Field: field, Problem: problem} }
	if id == "" || len(id) > MaxID {
		return bad(fmt.Sprintf("an id has 1 to %d characters, and this one has %d", MaxID, len(id)))
	}
	for _, c := range []byte(id) {
		ok := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
		if !ok {
			return bad(fmt.Sprintf("%q has other characters than letters, digits, \"_\", \"-\" and \".\"", clip(id, MaxID)))
		}
	}
	if strings.HasPrefix(id, ".") || strings.HasSuffix(id, ".") || strings.Contains(id, "..") {
		return bad(fmt.Sprintf("%q has a dot that does not stand between two names", id))
	}
	return nil
}

// NewAgentID makes an id from a word about the agent and the id of its
// conversation: slug, 8 hex digits of the conversation's SHA-256, and 4 random
// ones (specification S-2).
func NewAgentID(about, conversation string) string {
	sum := sha256.Sum256([]byte(conversation))
	return slug(about) + "_" + hex.EncodeToString(sum[:4]) + "_" + randomHex(2)
}

// maxSlug bounds the word in an id that we make.
const maxSlug = 64

// slug keeps of a word what an id may have.
func slug(about string) string {
	var b strings.Builder
	gap := false
	for _, c := range []byte(strings.ToLower(about)) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			if gap && b.Len() > 0 {
				b.WriteByte('_')
			}
			gap = false
			b.WriteByte(c)
		} else {
			gap = true
		}
		if b.Len() == maxSlug {
			break
		}
	}
	if b.Len() == 0 {
		return "agent"
	}
	return b.String()
}

// Addresses returns the recipients under which an agent is reached: everybody,
// itself, and the ids that it stands below.
func Addresses(agent string) []string {
	all := []string{Everybody, agent}
	for i := len(agent) - 1; i > 0; i-- {
		if agent[i] == '.' {
			all = append(all, agent[:i])
		}
	}
	return all
}

// Reaches reports whether a signal to a recipient is for an agent: the recipient
// is everybody, the agent, or an id that it stands below. Nobody receives what it
// has sent itself (specification S-4, S-5).
func Reaches(recipient, sender, agent string) bool {
	if sender == agent {
		return false
	}
	return recipient == Everybody || recipient == agent || strings.HasPrefix(agent, recipient+".")
}

// NewRunToken makes the secret by which the run of an agent is known again.
func NewRunToken() string { return "run_" + strings.ToLower(rand.Text()) }

// newSignalID returns an unguessable id with 80 bits of chance.
func newSignalID() string { return "sig_" + strings.ToLower(rand.Text()[:16]) }

func newEscalationID() string { return "esc_" + strings.ToLower(rand.Text()[:16]) }

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// clip shortens what an error quotes.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
