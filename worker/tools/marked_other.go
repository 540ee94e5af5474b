//go:build !linux

package tools

// killMarked can find nobody here: what left its process group is the sandbox's
// to end.
func killMarked(string) {}
