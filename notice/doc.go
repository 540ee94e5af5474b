// Package notice is the last metre: one durable inbox per agent, and the rules
// by which what lies in it reaches a model that has no ears.
//
// [Inbox.Post] persists a [Notice] before anything else happens to it. From
// there its [State] only moves forward, each step with a time and the adapter
// that caused it, and never further than what was proved: a successful write is
// [Notified], a turn that began is [Woken], and [Seen] means that the model's
// side showed it. A [Waker] pushes to one kind of host; tool results, hooks and
// user turns fetch by [Inbox.Pull]. Both take hold of notices on disk before
// they act, so that nothing is shown by two of them, and a process that is
// killed between two steps leaves behind what the next one needs to go on.
//
// What the text says comes from outside. [Frame] and [Aside] turn it into
// something that a model can read as data and nothing else.
//
// The room knows no database and no host: [Store] and [Waker] are ports. The
// package is experimental.
package notice
