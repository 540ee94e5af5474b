package sse

import (
	"fmt"
	"net/http"
	"time"
)

// StatusError is an answer that opens no stream.
type StatusError struct {
	Code int
	// Message is the beginning of what the server said, without control
	// characters.
	Message string
	// RetryAfter is how long the server asks to be left alone, at most
	// MaxRetryAfter; zero if it does not say.
	RetryAfter time.Duration
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("open stream: status %d", e.Code)
	if name := http.StatusText(e.Code); name != "" {
		text += " " + name
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Temporary reports whether the same request may succeed later.
func (e *StatusError) Temporary() bool {
	switch e.Code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return e.Code >= 500 && e.Code != http.StatusNotImplemented
}

// ContentTypeError is a 200 that is no event stream. There is no use in asking
// again: the address is wrong.
type ContentTypeError struct{ ContentType string }

func (e *ContentTypeError) Error() string {
	return fmt.Sprintf("open stream: the content type is %q and not text/event-stream", e.ContentType)
}

// HandlerError is the error of the handler of a [Client], with the id of the
// event that it refused.
type HandlerError struct {
	ID  string
	Err error
}

func (e *HandlerError) Error() string { return fmt.Sprintf("handle event %q: %v", e.ID, e.Err) }

// Unwrap returns the handler's error.
func (e *HandlerError) Unwrap() error { return e.Err }

// SilenceError is the cause of a connection that was given up because not one
// byte came.
type SilenceError struct{ For time.Duration }

func (e *SilenceError) Error() string { return fmt.Sprintf("no sign of life for %v", e.For) }
