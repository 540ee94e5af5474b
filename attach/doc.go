// Package attach answers, for one session of one agent: which MCP servers were
// configured, which reached the agent, which it connected to, whose tools it
// loaded, and why one is missing. It claims nothing that nobody saw.
//
// The package is pure: no input, no output, no clock, nothing but the standard
// library. Whoever sees something says so as [Evidence], and [Reduce] folds it
// into a [Report]:
//
//   - A report holds the current attempt to attach servers and at most two before
//     it. [Report.Begin] starts one before anything is delivered to the agent, and
//     supersedes the old one at once, so that a reset that fails keeps no row green.
//   - Within an attempt the order of the evidence does not matter, and neither do
//     repetitions: each row keeps the latest of each kind, and the status follows
//     from these. Absence of evidence is never a failure.
//   - Evidence of an attempt or an execution that is not the current one is refused
//     with a [RefusedError]; the caller counts it.
//
// What comes in is made safe before it is kept: targets lose everything but
// scheme, host and port, or the base name of a command; texts pass a [Sanitizer]
// and are cut. Everything is bounded: 3 attempts, 64 pieces of evidence and 30
// servers each.
//
// The JSON of a Report is the contract between the agent's side, the store, the
// wire and the page. Readers ignore members, kinds, statuses and reasons that they
// do not know; [Status.Tone] and [Reason.Text] show these conservatively.
//
// Stability: the package is meant for other programs. Members and codes are
// added, never renamed, within SchemaVersion 1.
package attach
