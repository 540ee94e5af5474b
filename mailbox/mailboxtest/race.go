//go:build race

package mailboxtest

// raced says that the race detector slows everything down: what only counts to a
// bound does so without it.
const raced = true
