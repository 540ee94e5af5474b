package app

import (
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// N-23: an agent that takes a server on its standard streams alone reaches its
// session by a bridge, which ends with the pipe and with the session's way in.
func TestBridge(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(e *Endpoint, s *mcp.ClientSession){
		"pipe":   func(_ *Endpoint, s *mcp.ClientSession) { _ = s.Close() },
		"way in": func(e *Endpoint, _ *mcp.ClientSession) { e.Detach("a") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := testEndpoint(t, nil)
			server := attach(t, e, echo())
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				ended <- Bridge(t.Context(), server.SSE, inR, outW)
			}()
			s := dial(t, &mcp.IOTransport{Reader: outR, Writer: inW}, "2025-06-18")
			tools, err := s.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) != 1 {
				t.Fatalf("%+v, %v", tools, err)
			}
			if err := e.AwaitListed(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			if got := call(t, s, "echo", `{"n":12345678901234567890}`); got != `echo {"n":12345678901234567890}` {
				t.Errorf("got %q", got)
			}
			end(e, s)
			if err := <-ended; err != nil && !strings.Contains(err.Error(), "relay") {
				t.Error(err)
			}
		})
	}
	if err := Bridge(t.Context(), "http://127.0.0.1:1/sse/x", io.NopCloser(strings.NewReader("")), nopWriteCloser{io.Discard}); err == nil {
		t.Error("nowhere was reached")
	}
}

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }
