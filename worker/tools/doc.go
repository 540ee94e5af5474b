// Package tools is what a sandbox offers by default: exec runs shell commands in
// a workspace, file works on the files of it. Both are tools of an MCP server;
// [Shell.Pulse] and [Shell.Stop] are what a worker needs to prove that they
// answer and to end them.
//
// A command gets a bounded part of its output back, its exit code as it was, and
// a deadline after which its whole tree is killed. Nothing is invented: what is
// not known, for instance the exit code of a job that still runs, is absent.
//
// The package confines paths, not programs: a command can do what its user can.
// The sandbox around the worker is what keeps it in. It runs on Unix only; what
// it does about processes that leave their group needs Linux.
package tools
