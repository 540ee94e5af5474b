package listen

import (
	"github.com/go-json-experiment/json/jsontext"
)

// Filter says which notifications a listen asks for, or, in the
// acknowledgement, which of them the server honours. Its JSON form is the
// "notifications" member of both frames; members that are false or empty are
// left out, and unknown members are ignored on reading.
type Filter struct {
	ToolsListChanged     bool `json:"toolsListChanged,omitzero"`
	PromptsListChanged   bool `json:"promptsListChanged,omitzero"`
	ResourcesListChanged bool `json:"resourcesListChanged,omitzero"`
	// ResourceSubscriptions are the URIs of resources whose updates are wanted.
	ResourceSubscriptions []string `json:"resourceSubscriptions,omitempty"`
}

// Empty reports whether the filter asks for nothing.
func (f Filter) Empty() bool {
	return !f.ToolsListChanged && !f.PromptsListChanged && !f.ResourcesListChanged && len(f.ResourceSubscriptions) == 0
}

// The frames below are decoded and encoded with go-json-experiment/json: member
// names match by case, duplicates are errors, and ids stay the literal that the
// peer sent (an integer over 2^53 is no float here).

// envelope is any JSON-RPC message.
type envelope struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitempty"`
	Method  string         `json:"method,omitempty"`
	Params  jsontext.Value `json:"params,omitempty"`
	Result  jsontext.Value `json:"result,omitempty"`
	Error   *wireError     `json:"error,omitempty"`
}

// wireError is the error member of a response.
type wireError struct {
	Code    int64          `json:"code"`
	Message string         `json:"message"`
	Data    jsontext.Value `json:"data,omitempty"`
}

// requestMeta is _meta of a request of revision 2026-07-28.
type requestMeta struct {
	ProtocolVersion    string         `json:"io.modelcontextprotocol/protocolVersion,omitempty"`
	ClientCapabilities jsontext.Value `json:"io.modelcontextprotocol/clientCapabilities,omitempty"`
	ClientInfo         jsontext.Value `json:"io.modelcontextprotocol/clientInfo,omitempty"`
}

// listenParams are the params of subscriptions/listen.
type listenParams struct {
	Meta          *requestMeta `json:"_meta,omitempty"`
	Notifications *Filter      `json:"notifications,omitzero"`
}

// subscriptionMeta is _meta of everything that belongs to a listen: the literal
// id of its request.
type subscriptionMeta struct {
	SubscriptionID jsontext.Value `json:"io.modelcontextprotocol/subscriptionId,omitempty"`
	// Refused is in an acknowledgement of ours only: see metaRefused. Raw,
	// because a stranger's value of another shape must not spoil the frame.
	Refused jsontext.Value `json:"io.github.ossicle/refused,omitempty"`
}

// refusal is one element of [metaRefused]: why a URI was not acknowledged. Code
// is that of JSON-RPC or MCP which a read of the URI would have answered.
type refusal struct {
	URI     string `json:"uri"`
	Code    int64  `json:"code"`
	Message string `json:"message"`
}

// notificationParams are the params of every notification on a listen:
// Notifications in the acknowledgement, URI in an update.
type notificationParams struct {
	Meta          subscriptionMeta `json:"_meta"`
	Notifications *Filter          `json:"notifications,omitzero"`
	URI           string           `json:"uri,omitempty"`
}

// cancelledParams are the params of notifications/cancelled.
type cancelledParams struct {
	RequestID jsontext.Value `json:"requestId,omitempty"`
	Reason    string         `json:"reason,omitempty"`
}
