//go:build !unix

package filelock

// Hold holds nothing where there is no such lock: of two processes that take
// one id, the store then knows no difference.
func Hold(string) (release func(), err error) { return func() {}, nil }

// Share holds nothing; see Hold.
func Share(string) (release func(), err error) { return func() {}, nil }

// HoldDir holds nothing; see Hold.
func HoldDir(string) (release func(), err error) { return func() {}, nil }
