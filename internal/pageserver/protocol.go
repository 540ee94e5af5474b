package pageserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coder/websocket"
)

// The connection. Clients offer the subprotocol, and come with a ticket.
const (
	Subprotocol = "ossicle.live.v1"
	Path        = "/v1/live"
	TicketsPath = "/v1/live/tickets"
)

// Bounds.
const (
	MaxMessage       = 256 << 10 // bytes of one message of a client
	MaxSubscriptions = 64        // of a connection
	MaxTopic         = 256       // bytes of the name of a topic
	MaxServer        = 256       // bytes of the name of an MCP server
	MaxCalls         = 16        // requests of a connection under way
	MaxCells         = 4096      // columns, and rows, of a terminal

	maxGaps = 8 // of a connection in gapTime; then it is to come again
	gapTime = time.Minute
)

// Times.
const (
	openTime  = 10 * time.Second // a subscription
	inputTime = 5 * time.Second  // what is typed, which waits for what was typed before
	callTime  = 10 * time.Second // anything else
	testTime  = 20 * time.Second // an endpoint test, which has 15 s itself
	closeTime = time.Second      // for the client to answer a close
)

// Actions of clients.
const (
	actionSubscribe   = "subscribe"
	actionUnsubscribe = "unsubscribe"

	ActionTestEndpoint = "session.mcp_test_endpoint"
	ActionRecentOutput = "session.mcp_recent_agent_output"
	ActionInput        = "terminal.input"
	ActionResize       = "terminal.resize"

	// refusedPrefix is what the raw actions of MCP begin with. None of them passes
	// (specification A-21).
	refusedPrefix = "mcp."
)

// actionGap ends the subscription of a reader that lags.
const actionGap = "gap"

// Close codes, each with what the client does.
const (
	closeGone   = websocket.StatusGoingAway       // the server ends: come again
	closeBinary = websocket.StatusUnsupportedData // messages are text: mend the client
	closeOver   = websocket.StatusPolicyViolation // the token is good no longer: ask for one
	closeSlow   = websocket.StatusTryAgainLater   // too slow: come again
	closeSilent = websocket.StatusCode(0)         // there is nobody to tell
)

// Code says what kind of error an answer is.
type Code string

// Codes.
const (
	CodeBadRequest  Code = "bad_request"
	CodeForbidden   Code = "forbidden"
	CodeNotFound    Code = "not_found"
	CodeUnavailable Code = "unavailable" // not in this process, or not now
	CodeRefused     Code = "refused"     // for everybody
	CodeTooMany     Code = "too_many"
	CodeFailed      Code = "failed"
	CodeTimeout     Code = "timeout"
)

// Error is an error with its code, as clients see it.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"` // what is wrong and what to do
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// told is an error as the client is told it.
func told(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{CodeTimeout, "it took too long; try again in a moment"}
	}
	return &Error{CodeFailed, err.Error()}
}
