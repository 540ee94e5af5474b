package app

import (
	"time"

	"github.com/ossicle/ossicle/agent"
	evidence "github.com/ossicle/ossicle/attach"
)

// decisions are the reasons of an engine that hands over a server or not.
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
	e.Transport, e.Capability = evidence.Transport(i.Transport), evidence.Advertised
	if i.Assumed {
		e.Capability = evidence.Assumed
	}
	if i.Transport == "" {
		e.Kind = evidence.ServerFiltered
		if e.Reason = decisions[i.Reason]; e.Reason == "" {
			e.Reason = evidence.Reason(i.Reason)
		}
		switch {
		case e.Reason != evidence.ReasonUnsupportedAdvertised:
			e.Capability = "" // it has nothing to do with the agent
		case i.Assumed:
			e.Reason = evidence.ReasonUnsupportedAssumed
		}
	}
	return e
}
