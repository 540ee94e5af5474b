// Package agent turns user input and notices into turns of one agent.
//
// A [Session] owns one agent behind an [Engine], its conversation and its
// place for replies. Whatever arrives waits in one queue; one run at a time
// claims all of it, so that many arrivals during a run cost one follow-up run.
// [CodeMode] gives the agent a Python scope in which every tool of every
// connected MCP server is an async function.
//
// The room knows nothing of watches, inboxes, MCP connections and databases:
// its ports ([Engine], [Store], [Watches], [Toolbox]) are filled in by the
// application. The package is experimental.
package agent
