package listen

// Constants of MCP revision 2026-07-28 that subscriptions/listen needs, for
// both ends. Everything else of the protocol is the SDK's business.

// ProtocolVersion is the first revision of MCP with subscriptions/listen, and
// the newest one this package speaks. Revisions are ISO dates: they sort as
// text.
const ProtocolVersion = "2026-07-28"

// Methods (basic/patterns/subscriptions, basic/patterns/cancellation).
const (
	methodListen      = "subscriptions/listen"
	methodSubscribe   = "resources/subscribe"   // legacy revisions only
	methodUnsubscribe = "resources/unsubscribe" // legacy revisions only

	notificationAcknowledged         = "notifications/subscriptions/acknowledged"
	notificationResourceUpdated      = "notifications/resources/updated"
	notificationToolsListChanged     = "notifications/tools/list_changed"
	notificationPromptsListChanged   = "notifications/prompts/list_changed"
	notificationResourcesListChanged = "notifications/resources/list_changed"
	notificationCancelled            = "notifications/cancelled"
)

// Keys of _meta (basic/index).
const (
	metaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"
	metaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaClientInfo         = "io.modelcontextprotocol/clientInfo"
	metaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"

	// metaRefused is ours: in the _meta of an acknowledgement, the URIs that
	// were asked for and left out, each with the reason: an array of [refusal].
	// The specification shows only the omission; peers that do not know the key
	// lose nothing but the reason.
	metaRefused = "io.github.ossicle/refused"
)

// HTTP header fields of Streamable HTTP (basic/transports/streamable-http), in
// canonical form.
const (
	headerProtocolVersion = "Mcp-Protocol-Version"
	headerMethod          = "Mcp-Method"
)

// Media types of Streamable HTTP.
const (
	mimeJSON        = "application/json"
	mimeEventStream = "text/event-stream"
)

// resultComplete is the resultType of a listen that its server ended politely.
const resultComplete = "complete"

// Error codes that this package sends or understands. The first five are those
// of JSON-RPC 2.0, the next three those of MCP (basic/index, error codes); the
// codes of our own stand outside -32768..-32000, which is reserved.
const (
	codeParseError     = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternalError  = -32603

	codeHeaderMismatch     = -32020 // Mcp-* headers missing or unlike the body
	codeUnsupportedVersion = -32022 // data: {"supported":[…],"requested":"…"}

	codeTooManyListens = -31001 // the hub is full; data: {"limit":n}
	codeShuttingDown   = -31002 // the hub takes no more listens
)
