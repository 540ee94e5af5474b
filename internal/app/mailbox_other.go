//go:build !unix

package app

// holdFile holds nothing where there is no such lock: of two processes that take
// one id, the store then knows no difference.
func holdFile(string) (release func(), err error) { return func() {}, nil }

func shareFile(string) (release func(), err error) { return func() {}, nil }

func holdDir(string) (release func(), err error) { return func() {}, nil }
