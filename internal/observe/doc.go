// Package observe sees what MCP clients do at a server and says so as evidence
// (package attach), without touching a byte and without making anybody wait.
//
// One [Observer] stands for one attempt to give an agent one server. It watches an
// HTTP handler ([Observer.Handler]; Streamable HTTP of both eras, and the older
// transport with two endpoints) or a pipe ([Observer.Pipe]). What passes is copied
// into a bounded queue after it was passed on; one goroutine reads it there. A
// queue that is full drops, which costs evidence and never time.
//
// A request counts once its response says that it succeeded: a client that only
// probes, or whose list fails, has proved nothing. Of what passes only names,
// versions, counts, codes and times are kept; texts of errors pass a sanitizer, and
// those of tool calls are not kept at all.
package observe
