package listen

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ossicle/ossicle/internal/version"
)

// ClientInfo names the client to servers. The zero value is this program.
type ClientInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// listenRequest is listenParams as a client sends them: requestMeta leaves out
// an empty object, which clientCapabilities must not be.
type listenRequest struct {
	Meta struct {
		ProtocolVersion    string     `json:"io.modelcontextprotocol/protocolVersion"`
		ClientCapabilities struct{}   `json:"io.modelcontextprotocol/clientCapabilities"`
		ClientInfo         ClientInfo `json:"io.modelcontextprotocol/clientInfo"`
	} `json:"_meta"`
	Notifications Filter `json:"notifications"`
}

// listenFrame is the params of a subscriptions/listen request.
func listenFrame(info ClientInfo, f Filter) (jsontext.Value, error) {
	if info.Name == "" {
		info = ClientInfo{Name: version.Name, Version: version.Number()}
	}
	r := listenRequest{Notifications: f}
	r.Meta.ProtocolVersion, r.Meta.ClientInfo = ProtocolVersion, info
	params, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode listen: %w", err)
	}
	return params, nil
}

// rpcError makes the SDK's error of one from the wire, so that callers branch
// on one type whatever the transport.
func rpcError(e *wireError) *jsonrpc.Error {
	return &jsonrpc.Error{Code: e.Code, Message: e.Message, Data: []byte(e.Data)}
}

// notification hands a listen's notification to its stream. It reports whether
// the stream ended by it.
func (s *Stream) notification(method string, p *notificationParams) {
	switch method {
	case notificationAcknowledged:
		f := Filter{}
		if p.Notifications != nil {
			f = *p.Notifications
		}
		s.acknowledge(f, refusals(p.Meta.Refused))
	case notificationResourceUpdated:
		s.updated(p.URI)
	case notificationToolsListChanged, notificationPromptsListChanged, notificationResourcesListChanged:
		s.listChanged(method)
	case notificationCancelled:
		s.finish(&EndError{Reason: EndCancelled})
	}
}

// refusals reads why URIs were left out of an acknowledgement. A value of
// another shape says nothing.
func refusals(raw jsontext.Value) map[string]error {
	var list []refusal
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil {
		return nil
	}
	m := make(map[string]error, len(list))
	for _, r := range list {
		m[r.URI] = &jsonrpc.Error{Code: r.Code, Message: r.Message}
	}
	return m
}
