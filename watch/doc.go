// Package watch tells of changes in the resources of MCP servers, by push.
//
// A [Manager] subscribes to a resource, reads it once as a baseline, and reads
// it again whenever the server says that it changed. From two reads it makes
// [Event] values, passes them through a filter (a Python program that the agent
// wrote, or none), drops what repeats itself, waits until a burst is over, and
// gives a [Sink] one [Notice] of a few lines. Nothing polls: while nothing
// changes, nothing runs and nothing is asked.
//
//	server says "changed"
//	  → one read, shared by all watches of the URI        subscription.go
//	  → events: diff of a state, new seqs of an event log  diff.go eventlog.go
//	  → stages: unchanged, filter or default line, dedupe  stage.go filter.go dedupe.go
//	  → lines gather under a debounce timer                batch.go running.go
//	  → one notice at a time to the sink                   outbox.go
//
// A resource is an event log if its media type says so
// (application/vnd.ossicle.events+json, or the same contract under
// application/vnd.asyncai.events+json); every other one is a state. A state
// yields the net change from read to read: the items of a JSON list by key, the
// members of a JSON object by name, anything else as one whole. An event log
// yields every event once, in order, and a GAP where some were lost.
//
// What comes from a server is untrusted: it is bounded, numbers keep their
// literal text, and lines are neutralised before anybody sees them.
//
// # What is kept in memory
//
// Per watched URI the last read of a state; per watch one reading that waits
// for a busy filter (a newer one takes its place), at most [Limits.PendingLines]
// different lines, and the last line of [Limits.DedupeRows] objects. A slow sink
// makes notices fewer and longer, never the queue.
//
// # Stability
//
// Before version 1 anything may change, with a line in the change log. Meant to
// last: [Manager] and its methods, [StartRequest], [Notice], [Sink], [Limits],
// the [Server] and [Subscriber] ports, the error types, the JSON names of all
// these, and the text of GAP and ERROR lines only in their first word. [Event],
// [State] and [Diff] are for those who want the diff alone, and less certain. The
// words of errors and of default lines are for readers, not for programs.
// Engines of filters implement a port that is internal to this module; programs
// outside it pass nil, and get default lines.
package watch
