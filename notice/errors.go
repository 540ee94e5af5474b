package notice

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrNotFound means that there is no such notice, or that it is not the
	// asker's.
	ErrNotFound = errors.New("notice: not found")
	// ErrFenced means that another process has begun to deliver for the agent.
	ErrFenced = errors.New("notice: another process delivers for this agent now")
	// ErrUncertain means that a Waker cannot tell whether its host has the
	// delivery, for instance because the answer to a request was lost. The
	// notices are offered again when the route's patience is over, not at once.
	ErrUncertain = errors.New("notice: the host may have it")
	// ErrOutstanding means that a wake of the agent is under way; a second must
	// wait.
	ErrOutstanding = errors.New("notice: a wake is outstanding")
)

// UnknownAgentError says that an addressee was never registered. A notice for
// it goes to nobody rather than to somebody else (specification D-6).
type UnknownAgentError struct {
	Agent string
	Known []string // agents that do exist, at most ten
}

func (e *UnknownAgentError) Error() string {
	s := fmt.Sprintf("find agent %q: no such agent is registered", e.Agent)
	if len(e.Known) > 0 {
		s += " (known: " + strings.Join(e.Known, ", ") + ")"
	}
	return s
}

// InvalidError says which field of a notice cannot be kept. It is final.
type InvalidError struct {
	Field   string
	Problem string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("check notice %s: %s", e.Field, e.Problem)
}

// IDError names the notices that a call could not act on. The call changed
// nothing. It is ErrNotFound.
type IDError struct {
	IDs []string
}

func (e *IDError) Error() string {
	return "find notices: not in this inbox: " + strings.Join(e.IDs, ", ")
}

func (e *IDError) Unwrap() error { return ErrNotFound }

// BusyError is returned by a Waker whose agent cannot take a notice now and
// will be able to later.
type BusyError struct {
	Reason string
	// Retry is when to ask again if nobody calls [Inbox.Kick] before. Zero means
	// DefaultBusyWait.
	Retry time.Duration
}

func (e *BusyError) Error() string { return "wake agent: it is busy: " + e.Reason }

// HostError is how adapters report what a host answered. Its text never holds
// what the host said, because hosts quote what they were sent; Detail does, for
// a doctor's eyes only.
type HostError struct {
	Op     string // "post prompt"
	Code   int    // HTTP status, exit code or JSON-RPC code; 0 if there is none
	Detail string // bounded by whoever fills it in
}

func (e *HostError) Error() string {
	if e.Code == 0 {
		return e.Op + ": the host refused"
	}
	return fmt.Sprintf("%s: the host answered %d", e.Op, e.Code)
}
