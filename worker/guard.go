package worker

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/internal/jsonx"
)

// The sampling guard. A sandbox that could ask its host to run a model would
// borrow the host's key over the wire. Three places stop that, and none of them
// is a tool:
//
//  1. the host's initialize has no capabilities (lifecycle.go);
//  2. the host answers such a request before anything dispatches it, here and in
//     hostframes.go. This is the guarantee: it depends on nothing that the
//     sandbox does;
//  3. the worker refuses to write one (toolport.go).

// refuseRequest decides about a request of a worker by its decoded method: nil
// if the channel serves it, else the error that answers it. Prefixes are
// compared without case: a guard may be wider than what it guards.
func refuseRequest(method string) *wireError {
	lower := strings.ToLower(method)
	switch {
	case method == methodHeartbeat, method == methodPing:
		return nil
	case strings.HasPrefix(lower, "sampling/"):
		return &wireError{Code: CodeSamplingDisabled, Message: "SAMPLING_DISABLED"}
	case strings.HasPrefix(method, ownPrefix):
		return versionError("a method of "+Subprotocol, method)
	}
	return &wireError{Code: CodeCapabilityNotNegotiated, Message: "CAPABILITY_NOT_NEGOTIATED"}
}

// smuggles reports whether a result asks its reader to do something for the
// worker: MCP 2026-07-28 lets a server put requests into a result, where a
// guard of methods does not see them, and the Go SDK obeys them whatever the
// version. No result on this channel has these members.
func smuggles(result jsontext.Value) bool {
	found := false
	object, err := jsonx.ScanObject(result, func(name string, at jsonx.Span) {
		switch strings.ToLower(name) {
		case "inputrequests":
			found = true
		case "resulttype":
			found = found || string(at.Of(result)) != `"complete"`
		}
	})
	return found || !object || err != nil
}
