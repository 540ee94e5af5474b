package mcpserver

import "github.com/modelcontextprotocol/go-sdk/jsonrpc"

// modernVersion is the first revision without initialize. Revisions are ISO
// dates: they sort as text.
const modernVersion = "2026-07-28"

// legacyVersions are the revisions that begin with initialize, newest first.
// The first one is the answer to a client that asks for one we do not know.
var legacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// lastBatchVersion is the newest revision with JSON-RPC batches.
const lastBatchVersion = "2025-03-26"

// Methods that routing must know.
const (
	methodInitialize    = "initialize"
	methodDiscover      = "server/discover"
	methodListen        = "subscriptions/listen"
	methodCallTool      = "tools/call"
	methodGetPrompt     = "prompts/get"
	methodListTools     = "tools/list"
	methodListResources = "resources/list"
	methodListTemplates = "resources/templates/list"
	methodReadResource  = "resources/read"

	notificationCancelled = "notifications/cancelled"
)

// Header fields of Streamable HTTP, in canonical form.
const (
	headerVersion     = "Mcp-Protocol-Version"
	headerMethod      = "Mcp-Method"
	headerSession     = "Mcp-Session-Id"
	headerLastEventID = "Last-Event-Id"
)

// Keys of _meta that are our own.
const (
	// MetaAfter in the params of resources/read asks an event log for the
	// events with a greater seq only (specification M-6). Its value is an
	// integer, or a string of decimal digits, which stays exact over 2^53. A
	// resource of state ignores it.
	MetaAfter = "io.github.ossicle/after"
	// MetaEventLogMIME in the params of resources/read asks for event logs
	// under this media type: listen.EventLogMIME or listen.EventLogMIMECompat.
	MetaEventLogMIME = "io.github.ossicle/eventLogMimeType"
	// MetaWatchable is false in the list entry of a resource, or of a template,
	// that can be read but not watched.
	MetaWatchable = "io.github.ossicle/watchable"
)

// Error codes of our own; they stand outside -32768..-32000, which is reserved.
// Package listen has -31001 and -31002.
const (
	// CodeForbidden: the caller may not do this. data: {"verb","target"}.
	CodeForbidden = -31003
	// CodeTooManyRequests: wait for answers before asking more. data: {"limit"}.
	CodeTooManyRequests = -31004
	// CodeShuttingDown: the server takes no more requests. Package listen uses
	// the same code.
	CodeShuttingDown = -31002
)

// Codes of the specification, by their short names here.
const (
	codeParseError     = jsonrpc.CodeParseError
	codeInvalidRequest = jsonrpc.CodeInvalidRequest
	codeMethodNotFound = jsonrpc.CodeMethodNotFound
	codeInvalidParams  = jsonrpc.CodeInvalidParams
	codeInternal       = jsonrpc.CodeInternalError
	codeVersion        = -32022 // data: {"supported":[…],"requested":"…"}
)
