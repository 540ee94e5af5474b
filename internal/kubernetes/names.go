package kubernetes

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

const (
	// namePrefix begins the name of everything that belongs to a session.
	namePrefix = "agt-"
	// hashPrefix begins what is made from an id that is no name itself. An id that
	// begins so is hashed, too: two ids never share a name.
	hashPrefix = "x-"
	// maxName leaves room for what the cluster adds to the name of a Job's pod.
	maxName = 52
	// maxLabel is the length of the longest label and label value.
	maxLabel = 63
)

// objectName is the name of the Job and the Secret of a session: a DNS label,
// whatever the id is.
func objectName(session string) string {
	if isName(session) && len(namePrefix)+len(session) <= maxName && !strings.HasPrefix(session, hashPrefix) {
		return namePrefix + session
	}
	return namePrefix + hashPrefix + digest(session)
}

// labelValue is how a text stands in a label: as it is where it can.
func labelValue(s string) string {
	if isLabelValue(s) && !strings.HasPrefix(s, hashPrefix) {
		return s
	}
	return hashPrefix + digest(s)
}

// digest is 26 characters of a hash, all of which may stand anywhere in a name.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

func isAlphanumeric(c byte) bool { return isLower(c) || c >= 'A' && c <= 'Z' }

// isName reports whether s is a DNS label (RFC 1123).
func isName(s string) bool {
	if s == "" || len(s) > maxLabel || !isLower(s[0]) || !isLower(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !isLower(s[i]) && s[i] != '-' {
			return false
		}
	}
	return true
}

// isSubdomain reports whether s is DNS labels with dots between: the name of most
// objects.
func isSubdomain(s string) bool {
	if len(s) > 253 {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if !isName(part) {
			return false
		}
	}
	return true
}

// isLabelValue reports whether s can be the value of a label. The empty value can,
// and means nothing here.
func isLabelValue(s string) bool {
	if s == "" || len(s) > maxLabel || !isAlphanumeric(s[0]) || !isAlphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// isLabelKey reports whether s is the key of a label: a name, with a domain before
// a slash or without.
func isLabelKey(s string) bool {
	domain, name, ok := strings.Cut(s, "/")
	if !ok {
		return isLabelValue(s)
	}
	return isSubdomain(domain) && isLabelValue(name)
}
