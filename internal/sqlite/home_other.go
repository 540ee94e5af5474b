//go:build !linux

package sqlite

// fileHome is known on Linux alone.
func fileHome(string) (string, error) { return "", nil }
