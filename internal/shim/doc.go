// Package shim stands between any host and any MCP server, passes every frame
// unchanged, and lets an observer see what passes (specification M-19): the one
// way to know what an agent does with a server that is not ours.
//
// [Stdio] relays a server that is a child process on standard input and output.
// Bytes are passed on as they come, whole messages or not; standard error and the
// exit code are passed on too. [Proxy] relays a server on HTTP, Streamable HTTP of
// both eras as well as the older transport: every path of the server is there
// under the same path here. Bodies pass unchanged and at once. Of the head only
// what belongs to a connection changes (Host, Connection and their like), and
// Accept-Encoding is taken out, so that what passes can be read.
//
// Nothing here waits for the observer, and nothing of what passes is stored.
package shim
