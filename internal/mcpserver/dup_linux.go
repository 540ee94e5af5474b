package mcpserver

import "golang.org/x/sys/unix"

// dup2 by way of dup3: not every Linux has the older call.
func dup2(from, to int) error { return unix.Dup3(from, to, 0) }
