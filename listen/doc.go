// Package listen implements subscriptions/listen of the Model Context Protocol
// (revision 2026-07-28) for both ends, beside the official Go SDK: a server says
// that a resource has changed, and a client is told. Everything else of the
// protocol stays the SDK's.
//
// # Serving
//
// A [Source] is anything that can be watched. It lists its resources, reads one,
// and says when one has changed; it knows nothing of MCP, of sessions or of
// subscribers. A [Registry] mounts sources and observes each URI once, however
// many watch it, from the first until a linger after the last. A [Hub] serves the
// listens, in front of an SDK server and on every transport of it:
//
//	registry := listen.NewRegistry(nil)
//	registry.Mount(source)
//	hub := listen.NewHub(registry, nil) // or NewHub(nil, nil), and hub.Updated(uri)
//	hub.Attach(server)                  // resources/subscribe of older clients
//
//	http.Handle("/mcp", hub.Handler(mcpHandler))       // Streamable HTTP, 1.1 and 2
//	server.Run(ctx, hub.Transport(&mcp.StdioTransport{})) // stdio, or any other transport
//
//	hub.Shutdown(ctx) // before the server's own
//
// The server itself declares the capability resources.subscribe, and has no
// SubscribeHandler. What a hub promises:
//   - The acknowledgement is on the wire before any update. It names only URIs
//     that exist and that the caller may read; a refused one does not fail the
//     rest, and the key io.github.ossicle/refused in its _meta says why, as
//     [{"uri":…,"code":…,"message":…}]. A listen that honours nothing is
//     acknowledged so and ended.
//   - At least one notification follows the last of any number of changes. What a
//     peer has not taken yet is a set of URIs, so it is bounded by its listen.
//   - A peer that does not read delays nobody, and is cut off when one write takes
//     longer than the write timeout.
//   - Listens are told apart by their ids, which are echoed byte for byte; two on
//     one pipe are two, for the same URI as well.
//   - Streams carry a comment line every 15 s and outlive the timeouts of
//     [net/http.Server].
//   - An end that the server wants is polite: a result, on pipes followed by
//     notifications/cancelled. After a client's cancellation nothing is sent.
//   - Every refusal is a JSON-RPC error with a code of the specifications, or one
//     of two of our own, -31001 (too many listens) and -31002 (shutting down),
//     and its text says what to do.
//
// A [Ring] is the log of a source of events, and a [URITemplate] matches the URIs
// of a family of resources.
//
// # What a stream costs
//
// On HTTP/1.1 the hub takes the connection over from net/http as soon as the
// request is read. An open listen is then about 4 KiB: the connection, a record,
// and one parked goroutine that waits for the peer to hang up. News are written
// by at most GOMAXPROCS goroutines, which exist while there is something to write
// and never block; a peer whose buffer is full gets a goroutine of its own until
// it has caught up. TLS, HTTP/2, and ResponseWriters without Hijack are served
// alike, through what net/http offers: there a stream keeps the goroutines and
// buffers that net/http gives it. [net/http.Server.Shutdown] does not know the
// connections that were taken over, and waits for ever for the others: call
// [Hub.Shutdown] first.
//
// # Listening
//
// An [Opener] opens a listen at a server and returns its [Stream]: [HTTPOpener]
// over Streamable HTTP, [Mux] on a pipe that an SDK session uses too. A [Client]
// keeps one listen for all URIs that are watched at a server, opens it anew when
// they change or when it ends, with backoff, and tells each [Subscriber] what
// befalls it.
//
// # Stability
//
// The package follows semantic versioning with its module. Until version 1 names
// may still change, each with a note in the changelog; the wire follows the
// specification. Experimental, and outside of that promise: the key
// io.github.ossicle/refused and the error codes -31001 and -31002.
package listen
