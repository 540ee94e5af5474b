package mailbox

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// ErrClosed is returned for calls on a session that has ended.
var ErrClosed = errors.New("the session is closed")

// InvalidError says which part of a request cannot be.
type InvalidError struct {
	Field   string
	Problem string
}

func (e *InvalidError) Error() string { return "check " + e.Field + ": " + e.Problem }

// ConflictError says that an id is live under another run: somebody else has it.
type ConflictError struct {
	Agent string
	Since time.Time // when the other one was last seen
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("register agent %q: the id is live under another run, last seen %s; choose another id, or wait until it is stale (%s without a call)",
		e.Agent, e.Since.UTC().Format(time.RFC3339), StaleAfter)
}

// LostError says that the caller no longer holds its id: another run has taken it
// over after it was stale, or it has never registered.
type LostError struct{ Agent string }

func (e *LostError) Error() string {
	return fmt.Sprintf("call as agent %q: this run does not hold the id (any more); register again", e.Agent)
}

// RateError says that a sender has sent too much.
type RateError struct {
	Limit int // signals a minute
	Wait  time.Duration
}

func (e *RateError) Error() string {
	return fmt.Sprintf("send signal: the limit of %d signals a minute is reached; wait %d seconds", e.Limit, e.Seconds())
}

// Seconds is the time to wait, in whole seconds.
func (e *RateError) Seconds() int { return int(math.Ceil(e.Wait.Seconds())) }

// EscalatedError says that a signal is refused because its sender is in a turn
// that a signal began.
type EscalatedError struct {
	Agent string
	Type  Type
}

func (e *EscalatedError) Error() string {
	return fmt.Sprintf("send signal: agent %q is in a turn that an urgent signal began, and from there %q is refused so that agents do not wake each other without end; "+
		"use inform or ack, or send it in a later turn", e.Agent, e.Type)
}

// IDsError names the signals of a call that are not the caller's, or do not
// exist. Nothing was changed.
type IDsError struct {
	IDs []string
}

func (e *IDsError) Error() string {
	return fmt.Sprintf("acknowledge signals: nothing was changed, because there is no signal to you with id %s; read_signals shows what there is",
		strings.Join(e.IDs, ", "))
}

// FullError says that a bound of the session is reached.
type FullError struct {
	Action string // what failed
	What   string // of what there is too much
	Limit  int64  // how many; zero: no matter how many
	Bytes  int64  // of how many bytes together; zero: no matter how many
	Remedy string
}

func (e *FullError) Error() string {
	most := ""
	if e.Limit > 0 {
		most = fmt.Sprintf(", %d", e.Limit)
	}
	if e.Bytes > 0 {
		most += fmt.Sprintf(", %d bytes together", e.Bytes)
	}
	return fmt.Sprintf("%s: there are as many %s as are kept%s; %s", e.Action, e.What, most, e.Remedy)
}
