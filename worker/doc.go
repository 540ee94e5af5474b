// Package worker is the tool channel: how a gateway uses tools that run inside
// a sandbox which nobody can dial into.
//
// The worker, the process inside the sandbox, dials out over a WebSocket and is
// then the MCP server of that connection; the gateway accepts the connection
// and is the MCP client. Around the tools traffic there are four frames of the
// life cycle: initialize, ready, heartbeat, release. Every wait has a deadline
// on each side that waits, every refusal carries both versions, and the close
// code says whether a worker may come back.
//
// The two sides are two state machines that know nothing of sockets and clocks
// (hostmachine.go, workermachine.go): events go in, actions come out. [Host]
// and [Worker] execute those actions with real connections and timers.
//
//   - A gateway makes a [Host], mounts it in an HTTP server and creates a
//     [Session] per sandbox.
//   - The program in the sandbox makes a [Worker] around an MCP server and runs
//     it; Run returns the exit code of the process.
//
// The package is experimental: its exported names may change. The wire format
// is the contract agentfy.worker.v1 and does not.
package worker
