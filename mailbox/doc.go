// Package mailbox lets agents that work side by side send each other signals:
// typed, addressed messages that are pushed, not polled for.
//
// A [Session] is one collaboration. Its members register, send, read and
// acknowledge; what they write is in a [Store] that several processes may use at
// once, and a [Bus] tells the others that there is something new. Nothing is told
// but that: whoever is told reads.
//
// A signal reaches its recipients in two tiers. The first costs no tokens: the
// watchers of a session are told which of its parts have changed, see
// [Session.Watch]. The second makes the recipient think now: an [Escalator]
// begins a turn, if the gate lets the signal through, see [Gate]. What it does
// not let through stays in the first tier and is lost to nobody: a signal is
// unread until its recipient acknowledges it.
//
// Who sends is never an argument: a [Member] is one agent, by the run token with
// which it registered, and everything that it does is done in its name.
//
// The package is experimental.
package mailbox
