package worker

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is a channel version: major, minor, patch.
type Version struct{ Major, Minor, Patch int }

// ParseVersion reads x.y.z. Build metadata after "+" is ignored; anything else
// that is not three numbers is malformed, a pre-release too.
func ParseVersion(s string) (Version, error) {
	core, _, _ := strings.Cut(s, "+")
	parts := strings.Split(core, ".")
	var v Version
	if len(parts) != 3 {
		return v, fmt.Errorf("parse channel version %q: want three numbers, as in %s", s, ChannelVersion)
	}
	for i, to := range []*int{&v.Major, &v.Minor, &v.Patch} {
		n, err := strconv.ParseUint(parts[i], 10, 31)
		if err != nil || (len(parts[i]) > 1 && parts[i][0] == '0') {
			return Version{}, fmt.Errorf("parse channel version %q: %q is not a number", s, parts[i])
		}
		*to = int(n)
	}
	return v, nil
}

// Less reports whether v is older than w.
func (v Version) Less(w Version) bool {
	if v.Major != w.Major {
		return v.Major < w.Major
	}
	if v.Minor != w.Minor {
		return v.Minor < w.Minor
	}
	return v.Patch < w.Patch
}

// String returns x.y.z.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// effective is the version that both sides use: the smaller one. Both compute
// it and nobody announces it. The error is for a version that is malformed or
// of another major than major.
func effective(major int, host, worker string) (Version, error) {
	h, err := ParseVersion(host)
	if err != nil {
		return Version{}, err
	}
	w, err := ParseVersion(worker)
	if err != nil {
		return Version{}, err
	}
	if h.Major != major || w.Major != major {
		return Version{}, fmt.Errorf("channel version of the host is %s, of the worker %s, and the connection is of major %d", host, worker, major)
	}
	if w.Less(h) {
		return w, nil
	}
	return h, nil
}

// majorOf reads the major version from a subprotocol; 0 is none.
func majorOf(subprotocol string) int {
	digits, ok := strings.CutPrefix(subprotocol, "agentfy.worker.v")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || digits[0] == '0' {
		return 0
	}
	return int(n)
}

// subprotocolOf names a major version on the upgrade.
func subprotocolOf(major int) string { return "agentfy.worker.v" + strconv.Itoa(major) }

// channelOf is the version that a host speaks within a major: of its versions the
// one that has it. There is none only for a connection that was not accepted.
func channelOf(versions []string, major int) string {
	for _, text := range versions {
		if v, err := ParseVersion(text); err == nil && v.Major == major {
			return text
		}
	}
	return ChannelVersion
}

// hasCallIDs reports whether calls carry ids under this effective version.
func (v Version) hasCallIDs() bool { return !v.Less(Version{1, 1, 0}) }

// hasReceipts reports whether a host says which results it has, and a worker which
// it no longer keeps.
func (v Version) hasReceipts() bool { return !v.Less(Version{1, 2, 0}) }

// nearest is the version of MCP that a worker answers with: the newest that it
// supports and that is not newer than asked, or else its oldest. supported is
// newest first and not empty.
func nearest(supported []string, asked string) string {
	for _, v := range supported {
		if v <= asked { // dates, so the order of the texts is theirs
			return v
		}
	}
	return supported[len(supported)-1]
}
