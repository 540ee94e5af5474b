package mcpclient

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ErrClosed is returned by a pool or server that was closed.
var ErrClosed = errors.New("mcpclient: pool is closed")

// ConnectError says that no session with a server came about.
type ConnectError struct {
	Server string
	Err    error
	Stderr string // the tail of a child's standard error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("connect server %q: %v%s", e.Server, e.Err, stderrHint(e.Stderr))
}

// Unwrap returns the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// withoutPath is an error whose text has of URLs only scheme and host: the rest may
// be secret, and errors are logged and told to models. The SDK keeps the error of
// net/http as text, so it is the text that is looked at.
func withoutPath(err error) error {
	if err == nil {
		return nil
	}
	return hidden{err}
}

type hidden struct{ err error }

var urlInText = regexp.MustCompile(`https?://[^\s"'<>]+`)

func (h hidden) Error() string {
	return urlInText.ReplaceAllStringFunc(h.err.Error(), func(text string) string {
		u, err := url.Parse(text)
		if err != nil {
			return "http://(hidden)"
		}
		return originOf(u)
	})
}

// Unwrap returns the error as it is.
func (h hidden) Unwrap() error { return h.err }

// LostError says that a connection broke.
type LostError struct {
	Server string
	Err    error
	Stderr string // the tail of a child's standard error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("connection to server %q lost: %v%s", e.Server, e.Err, stderrHint(e.Stderr))
}

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Err }

// RestartError says that a stdio server died so often that it is not started
// again for now (specification M-14).
type RestartError struct {
	Server string
	Starts int           // within
	Window time.Duration // this time
	Stderr string        // of the last one
}

func (e *RestartError) Error() string {
	return fmt.Sprintf("start server %q: failed: %d starts within %v%s", e.Server, e.Starts, e.Window, stderrHint(e.Stderr))
}

// stderrHint shows the last lines of what a child wrote, within bounds.
func stderrHint(stderr string) string {
	const maxLines, maxBytes = 5, 1000
	stderr = strings.TrimSpace(stderr)
	if stderr == "" {
		return ""
	}
	lines := strings.Split(stderr, "\n")
	if len(lines) > maxLines {
		lines = lines[len(lines)-maxLines:]
	}
	text := strings.Join(lines, "\n")
	if len(text) > maxBytes {
		text = strings.ToValidUTF8(text[len(text)-maxBytes:], "")
	}
	return "; its stderr ends with:\n" + text
}

// AuthError says that a server wants credentials that it did not get, or that
// were refused.
type AuthError struct {
	Server string
	Status int    // 401 or 403; 0 when the authorization itself failed
	Detail string // the server's challenge
	Err    error  // why authorization failed, or nil
}

func (e *AuthError) Error() string {
	text := fmt.Sprintf("server %q refuses access", e.Server)
	if e.Status != 0 {
		text += fmt.Sprintf(": HTTP %d %s", e.Status, http.StatusText(e.Status))
	}
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + "; give it credentials in headers or by OAuth"
}

// Unwrap returns why authorization failed.
func (e *AuthError) Unwrap() error { return e.Err }

// FrameError says that a message of a server was too large or malformed and
// was skipped. The connection goes on.
type FrameError struct {
	Problem string
}

func (e *FrameError) Error() string { return "server sent a bad message: " + e.Problem }

// NoiseError ends a stdio connection whose server writes something else than
// frames on its standard output (known fault B-096).
type NoiseError struct {
	Lines []string // the last ones, cut
}

func (e *NoiseError) Error() string {
	return fmt.Sprintf("server writes to standard output what is no MCP message, %d lines in a row; last: %q", maxNoiseRow, e.Lines[len(e.Lines)-1])
}

// EndlessError says that a server's list had more pages or entries than are
// taken.
type EndlessError struct {
	Server, Method string
	Pages, Entries int // read so far
}

func (e *EndlessError) Error() string {
	return fmt.Sprintf("list %s of server %q: no end after %d pages and %d entries (limits: %d and %d)",
		e.Method, e.Server, e.Pages, e.Entries, maxPages, maxEntries)
}

// Answered reports whether an error is what a server itself answered to a request.
func Answered(err error) bool {
	_, ok := serverError(err)
	return ok
}

// serverError finds the error that a server answered with. The SDK uses the
// same type for failures of its own.
func serverError(err error) (*jsonrpc.Error, bool) {
	var rpc *jsonrpc.Error
	if !errors.As(err, &rpc) {
		return nil, false
	}
	switch rpc.Message {
	case "rejected by transport", "client is closing", "server is closing":
		return nil, false
	}
	return rpc, true
}

// broken reports whether an error means that the connection is of no more use.
func broken(err error) bool {
	for _, end := range []error{mcp.ErrConnectionClosed, mcp.ErrSessionMissing, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, os.ErrClosed, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	var noise *NoiseError
	return errors.As(err, &noise)
}

// ToolError says that a tool ran and reported a failure.
type ToolError struct {
	Server, Tool string
	Text         string // what the tool said
}

func (e *ToolError) Error() string {
	return fmt.Sprintf("tool %q of server %q failed: %s", e.Tool, e.Server, e.Text)
}
