package listen

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxID bounds the id of a listen, in bytes: each of its frames repeats it.
const maxID = 512

// request is a listen as the hub takes it.
type request struct {
	id    string // the literal that came
	asked Filter
}

// parseEnvelope reads one JSON-RPC message that carries an id.
func parseEnvelope(data []byte) (*envelope, *fault) {
	if jsontext.Value(data).Kind() == '[' {
		return nil, faultBatch()
	}
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, faultParse(err)
	}
	if e.JSONRPC != "2.0" {
		return &e, faultVersionTag()
	}
	if !validID(e.ID) {
		e.ID = nil
		return &e, faultID()
	}
	return &e, nil
}

// validID reports whether a literal is an id that may be echoed: a string, or a
// number written as an integer, of bounded length.
func validID(id jsontext.Value) bool {
	if len(id) == 0 || len(id) > maxID {
		return false
	}
	if id.Kind() == '"' {
		return true
	}
	for i, c := range id {
		if (c < '0' || c > '9') && (c != '-' || i > 0) {
			return false
		}
	}
	return true
}

// parseListen reads the params of a listen. The version may be missing: what that
// means depends on the transport.
func parseListen(params jsontext.Value) (*listenParams, *fault) {
	var p listenParams
	if len(params) > 0 {
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, faultParams(err)
		}
	}
	if p.Meta == nil {
		p.Meta = &requestMeta{}
	}
	return &p, nil
}

// check validates everything of the params that does not depend on the
// transport.
func (p *listenParams) check(maxURIs int) *fault {
	switch {
	case p.Meta.ProtocolVersion != ProtocolVersion:
		return faultVersion(p.Meta.ProtocolVersion)
	case p.Meta.ClientCapabilities.Kind() != '{':
		return faultMeta(metaClientCapabilities)
	case p.Notifications == nil:
		return faultNoFilter()
	case len(p.Notifications.ResourceSubscriptions) > maxURIs:
		return faultTooManyURIs(maxURIs)
	}
	return nil
}
