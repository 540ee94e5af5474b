// Package mcpserver serves sources and tools over MCP.
//
// One [Server] speaks both eras of the protocol: 2026-07-28, where every
// request says for itself who sends it, and the revisions before it, which
// begin with initialize. Era is a property of a request, never of a connection:
// one URL ([Server.Handler]) and one pipe ([Server.ServeStdio]) serve both, and
// a peer may probe with server/discover and then initialize.
//
// The official SDK does the protocol. Around it stand, because it does not do
// them or does them in a way that hurts:
//
//   - the listen hub (package listen), in front of the SDK on both transports;
//   - resources, which are listed and read from the registry of sources at the
//     moment of the request, and carry the cache fields of their era;
//   - the era router of HTTP, with the lifetime of legacy sessions, comment
//     lines and a write deadline on every stream;
//   - the two sessions behind one pipe, a line cap that answers and goes on,
//     and an end at once when standard input ends;
//   - errors: always JSON-RPC with a code of the specification or one of our
//     own, and a text that says what to do. A panic in a tool or a source is
//     one of them.
package mcpserver
