package app

import (
	"time"

	"github.com/ossicle/ossicle/agent"
	evidence "github.com/ossicle/ossicle/attach"
)

// decisions are the reasons of an engine that hands over a server or not. What an
// ACP agent takes it says in initialize, so nothing of it is assumed.
var decisions = map[string]evidence.Reason{
	"http_unsupported":  evidence.ReasonUnsupportedAdvertised,
	"sse_unsupported":   evidence.ReasonUnsupportedAdvertised,
	"duplicate_name":    evidence.ReasonDuplicateName,
	"command_not_found": evidence.ReasonCommandNotFound,
	"no_transport":      evidence.ReasonNoTransport,
}

// Decided is the engine's decision about one server as evidence (specification
// delivered, or filtered with the reason. A reason that is not known is
// passed on.
func Decided(i agent.Injected, at time.Time) evidence.Evidence {
	e := evidence.Evidence{Server: i.Server, Kind: evidence.ServerDelivered, OccurredAt: at}
	e.Transport = evidence.Transport(i.Transport)
	if i.Transport == "" {
		e.Kind = evidence.ServerFiltered
		if e.Reason = decisions[i.Reason]; e.Reason == "" {
			e.Reason = evidence.Reason(i.Reason)
		}
	}
	return e
}
