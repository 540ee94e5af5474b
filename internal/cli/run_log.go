package cli

import (
	"fmt"
	"io"
	"sync"
)

// maxHeldLog bounds a log that is held back, in bytes.
const maxHeldLog = 64 << 10

// heldLog holds a log back while a program has the terminal, whose screen it would
// tear. It keeps what came first, which says how all began.
type heldLog struct {
	mu      sync.Mutex
	text    []byte
	omitted int
}

// Write implements io.Writer. It takes whole records or none.
func (h *heldLog) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.omitted > 0 || len(h.text)+len(p) > maxHeldLog {
		h.omitted++
		return len(p), nil
	}
	h.text = append(h.text, p...)
	return len(p), nil
}

// write writes what was held back, once the terminal is free.
func (h *heldLog) write(w io.Writer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := w.Write(h.text); err != nil || h.omitted == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "ossicle: %d later records of the log were not kept; 2>FILE keeps all\n", h.omitted)
	return err
}
