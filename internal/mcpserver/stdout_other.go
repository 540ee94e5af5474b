//go:build !unix

package mcpserver

import "os"

// GuardStdout returns standard output, and points the variable os.Stdout to
// standard error: here the descriptor itself cannot be guarded.
func GuardStdout() (*os.File, error) {
	out := os.Stdout
	os.Stdout = os.Stderr
	return out, nil
}
