//go:build !unix

package listen

// canWriteNow says that [writeNow] does not work here: each write gets a
// goroutine that may block.
const canWriteNow = false

func writeNow(uintptr, []byte) (int, error) { return 0, errWouldBlock }
