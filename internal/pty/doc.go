// Package pty is an engine for CLI agents that are no more than a program on a
// terminal: they are shown as they are, and typed to (specification N-1,
// passthrough).
//
// A [Terminal] lasts as long as a session. It keeps the newest output in a bounded
// ring with offsets, so that a viewer goes on where it was, and follows the screen,
// so that the program's questions to the terminal are answered and what it shows
// can be read. Viewers hold nothing but an offset: a slow one delays nobody.
//
// An [Engine] is one life of the program. Its turn pastes the prompt when the
// screen has been still, looks whether the screen shows it, and only then presses
// Enter: a dialog that does not show what was pasted is never answered. That the
// screen is still again ends the turn. Nothing of this proves that a model has read
// anything, and nothing is claimed (Outcome.Unproven).
//
// A [Strategy] writes the MCP servers of the session into the CLI's own
// configuration, for this run only, and never into a file of the user's
// (specification A-13). There is one for Claude Code, Codex, Gemini, OpenCode and
// Qwen.
//
// One goroutine reads the terminal, one types, one attends to the process;
// [Engine.Close] waits for all of them.
package pty
