package attach

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// defaultSanitizer knows no secrets, only what they look like.
var defaultSanitizer = NewSanitizer()

// Safe returns the evidence as reports keep it, for who writes it down elsewhere.
// It reports false for what no report takes.
func (e Evidence) Safe() (Evidence, bool) { return e.safe() }

// safe returns the evidence as it is kept: whatever it was made from, it holds
// names, codes, times, counts, and texts without what looks like a secret. It is
// idempotent. It reports false for what cannot be kept.
func (e Evidence) safe() (Evidence, bool) {
	at, ok := moment(e.OccurredAt)
	if !ok || code(string(e.Kind)) == "" {
		return e, false
	}
	e.OccurredAt, e.Server = at, name(e.Server)
	switch e.Kind {
	case SessionBlocked, AgentEnded:
		e.Server = ""
	case SessionError:
		if e.Server != "" {
			e.Kind = ServerError
		}
	case ServerError:
		if e.Server == "" { // it colours no row
			e.Kind = SessionError
		}
	case LateTraffic:
		e.ConnectionID = ""
	case ServerResolved, ServerFiltered, ServerDelivered, DiscoverObserved, InitializeObserved, ToolsListObserved, ToolCallObserved, RequestError,
		AgentConnected, AgentFailed, ConnectionClosed, EndpointTested:
		if e.Server == "" {
			return e, false
		}
	default:
	}
	e.Detail = e.Detail.safe()
	return e, true
}

func (d Detail) safe() Detail {
	d.Source, d.Transport = Source(code(string(d.Source))), Transport(code(string(d.Transport)))
	d.Era, d.Capability = Era(code(string(d.Era))), Capability(code(string(d.Capability)))
	if d.Reason != "" {
		if d.Reason = Reason(code(string(d.Reason))); d.Reason == "" {
			d.Reason = "unknown"
		}
	}
	d.Target = target(d.Target)
	d.Summary = defaultSanitizer.Summary(d.Summary)
	if d.ConnectionID != "" && !isConnectionID(d.ConnectionID) {
		d.ConnectionID = ConnectionID(d.ConnectionID)
	}
	d.ACPSessionID = name(d.ACPSessionID)
	d.Tool, d.Method = name(d.Tool), name(d.Method)
	d.ClientName, d.ClientVersion, d.ProtocolVersion = name(d.ClientName), name(d.ClientVersion), name(d.ProtocolVersion)
	if d.ToolCount != nil {
		n := max(0, *d.ToolCount)
		d.ToolCount = &n
	}
	if d.Catalogue != nil {
		c := d.Catalogue.safe()
		d.Catalogue = &c
	}
	return d
}

// code lets stable codes through, and nothing else.
func code(s string) string {
	if len(s) > 64 {
		return ""
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' {
			return ""
		}
	}
	return s
}

// name makes a name one line of printable text, and cuts it.
func name(s string) string { return cut(strings.TrimSpace(printable(s)), maxName) }

// printable takes out what a terminal or a page would act on.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError, unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return -1
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// cut shortens s to at most n bytes, between two runes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.TrimRight(s[:n], " ")
}
