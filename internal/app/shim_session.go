package app

import (
	"context"
	"io"
	"net/http"
	"time"
)

// lastEvidence is how long a relay waits at its end until a session has taken what
// it saw. One that is gone refuses at once; one on a busy machine takes its time.
const lastEvidence = 5 * time.Second

// sessionLine tells a session what a relay sees: one long request, a line for each
// piece. A session that is gone hears nothing, and the relay goes on.
type sessionLine struct {
	*io.PipeWriter

	stop  context.CancelFunc
	ended chan struct{}
}

// tellSession begins to tell. It connects beside the caller.
func tellSession(url string) *sessionLine {
	r, w := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	s := &sessionLine{PipeWriter: w, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, r)
		if err == nil {
			req.Header.Set("Content-Type", "application/x-ndjson")
			var resp *http.Response
			if resp, err = apiClient.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}
		// Whoever writes from now on is told, and stops.
		_ = r.CloseWithError(io.ErrClosedPipe)
	}()
	return s
}

// finish waits until everything was taken, but not for long.
func (s *sessionLine) finish() {
	_ = s.Close()
	t := time.NewTimer(lastEvidence)
	defer t.Stop()
	select {
	case <-s.ended:
	case <-t.C:
	}
	s.stop()
	<-s.ended
}
