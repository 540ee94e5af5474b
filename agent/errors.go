package agent

import (
	"errors"
	"fmt"
	"time"
)

// Facts that callers branch on.
var (
	// ErrCancelled: a person ended the run.
	ErrCancelled = errors.New("agent: the run was cancelled")
	// ErrQueueFull: too much waits already; nothing was accepted.
	ErrQueueFull = errors.New("agent: the queue is full")
	// ErrEmpty: there is nothing to say; nothing was accepted.
	ErrEmpty = errors.New("agent: the text is empty")
	// ErrTooLarge: the text is over its bound; nothing was accepted.
	ErrTooLarge = errors.New("agent: the text is too large")
	// ErrNotFound: no such session, run or question.
	ErrNotFound = errors.New("agent: not found")
	// ErrUntaken: the agent could not take a prompt at the time; it has nothing of it,
	// and may take it later.
	ErrUntaken = errors.New("agent: the prompt was not taken")
	// ErrLagged: a subscriber did not read fast enough and was cut.
	ErrLagged = errors.New("agent: the subscriber lagged behind and was cut")
)

// Why a run was stopped; the cause decides what becomes of it.
var (
	errShutdown = fmt.Errorf("stop session: %w", ErrClosed)
	errReset    = errors.New("reset session: the run was cancelled")
	errNoReply  = errors.New("end turn: the model ran NO_REPLY as code")
	errTurnTime = errors.New("run turn: over its time limit")
)

// AbortedError says that the agent ended the turn as cancelled although nobody
// had asked for it.
type AbortedError struct{ Run string }

func (e *AbortedError) Error() string { return "run turn: the agent aborted it" }

// RestartError says that a dead agent is not started again yet (specification
// N-2).
type RestartError struct {
	Restarts int
	Window   time.Duration
	Until    time.Time // when the next start is allowed
}

func (e *RestartError) Error() string {
	return fmt.Sprintf("start agent: it was restarted %d times in %v; the next start is allowed at %s",
		e.Restarts, e.Window, e.Until.UTC().Format(time.RFC3339))
}
