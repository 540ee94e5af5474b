// Package acp is an engine for agents that speak the Agent Client Protocol,
// version 1, over standard input and output.
//
// It stands on its own thin JSON-RPC core. Every line is kept as it came until
// it is understood: an update or a request that we do not know is handed on
// raw and never decoded as something else, ids and numbers keep their literal,
// and a damaged part fails only what it belongs to (specification N-21).
//
// One goroutine reads, one writes, one attends to the process; requests of the
// agent that may wait run in goroutines of their own, whose number is bounded.
// [Engine.Close] waits for all of them. The agent's standard error is kept in
// a bounded tail.
//
// Deadlines: initialize and the opening of a session have 60 s each, with
// progress reported meanwhile; an agent that does not end a cancelled turn
// within the grace time is killed, so that a prompt is never sent while
// another one is in flight (N-22).
package acp
