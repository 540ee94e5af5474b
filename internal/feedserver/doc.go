// Package feedserver is the event feed over HTTP: publishing, the event stream
// (server-sent events), a long poll for proxies that buffer, topics, and tickets
// for browsers. docs/reference/feed-http.md is its contract.
//
// A stream takes one of two ways. On HTTP/1 and Linux the connection is taken
// over from net/http, and costs a descriptor, a place in the hub and a small
// struct: no goroutine, no buffers; over TLS its keys besides. A few shards, each
// one goroutine, write frames that all subscribers share to sockets that never
// block, and an epoll instance for each says who has gone away and who can be
// written to again. On HTTP/2, and on other systems, the handler's own goroutine
// does the same with net/http.
//
// Buffers and what happens when they are full:
//
//	a socket's send buffer (64 KiB)      the subscriber lags behind; its policy applies
//	a write that was cut short           is cut by the write deadline, its stream ended
//	waiting replays                      in the order of their coming; live ones go on
//	bytes of bodies being published      the next one waits, then 503
package feedserver
