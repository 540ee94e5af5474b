// Package sse speaks text/event-stream, the format of server-sent events, to
// the letter of the WHATWG standard: an encoder whose frames no value can break,
// a [Reader] that no split of the bytes and no hostile peer confuses, and a
// [Client] that stays connected.
//
// A client resumes with Last-Event-ID, waits between connections and gives up
// only where waiting cannot help. What a server can make it hold is bounded: one
// event of [Options.MaxEvent] bytes, one id of [MaxID] bytes.
//
// The package imports nothing but the standard library.
package sse
