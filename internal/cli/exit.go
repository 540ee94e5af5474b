package cli

import (
	"context"
	"errors"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/postgres"
	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/mailbox"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/watch"
)

// Exit codes. docs/reference/exit-codes.md shows this table, and a test holds
// the two together.
const (
	exitOK          = 0
	exitFailure     = 1   // something went wrong that no other code names
	exitUsage       = 2   // the command line or the configuration is wrong
	exitUnobserved  = 3   // a probe worked, but what it looked for did not happen
	exitUnreachable = 4   // a server could not be reached
	exitRefused     = 5   // a watch was refused or cannot be had, or every watch failed
	exitAgent       = 6   // an agent could not be started, or its turn failed
	exitTimeout     = 124 // what was waited for did not come in time
	exitSandbox     = 125 // a sandbox could not be had, or was lost before its command ended
	exitInterrupted = 130 // ended by a signal before it was done
)

// exitTable says what each code means, in the order of the codes.
var exitTable = []struct {
	code    int
	meaning string
}{
	{exitOK, "done"},
	{exitFailure, "something went wrong that no other code names"},
	{exitUsage, "the command line or the configuration is wrong"},
	{exitUnobserved, "a probe worked, but what it looked for did not happen"},
	{exitUnreachable, "a server could not be reached"},
	{exitRefused, "a watch was refused or cannot be had, or every watch failed"},
	{exitAgent, "an agent could not be started, or its turn failed"},
	{exitTimeout, "what was waited for did not come in time"},
	{exitSandbox, "a sandbox could not be had, or was lost before its command ended"},
	{exitInterrupted, "ended by a signal before it was done"},
}

// usageError marks what the person can mend on the command line or in the
// configuration.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// agentError marks what an agent did not do. Output is the end of what it wrote to its
// standard error, where that may say why.
type agentError struct {
	err    error
	output []string
	advice string // what to do, where the error does not say it
}

func (e *agentError) Error() string { return e.err.Error() }
func (e *agentError) Unwrap() error { return e.err }

// errUnobserved ends a probe that saw nothing.
var errUnobserved = errors.New("not observed")

// errUnreachable ends a probe that could not connect.
var errUnreachable = errors.New("not reachable")

// errWatchesFailed ends a watch command without a watch that still runs.
var errWatchesFailed = errors.New("every watch has failed")

// errInterrupted ends a command that a signal cut short.
var errInterrupted = errors.New("interrupted")

// exitCode maps the error that ended a command to its exit code, by type.
func exitCode(ctx context.Context, err error) int {
	var (
		usage    *usageError
		argument *watch.ArgumentError
		filter   *watch.FilterError
		limit    *watch.LimitError
		route    *watch.RouteError
		version  *watch.VersionError
		refused  *watch.RefusedError
		agent    *agentError
		nobody   *notice.UnknownAgentError
		invalid  *notice.InvalidError
		code     *codeError
		sandbox  *sandboxError
		inUse    *app.StateInUseError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return code.code
	case errors.Is(err, errInterrupted), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return exitInterrupted
	case errors.As(err, &usage), errors.As(err, &argument), errors.As(err, &filter), errors.As(err, &limit),
		errors.As(err, &nobody), errors.As(err, &invalid), errors.As(err, new(*mailbox.InvalidError)), errors.As(err, &inUse), errors.As(err, new(*httpserver.OptionsError)),
		errors.As(err, new(*app.SettingError)):
		return exitUsage
	case errors.Is(err, errUnobserved):
		return exitUnobserved
	case errors.Is(err, errNoSignal):
		return exitTimeout
	case unreachable(err), errors.Is(err, errUnreachable):
		return exitUnreachable
	case errors.As(err, &version), errors.As(err, &refused), errors.As(err, &route), errors.Is(err, errWatchesFailed):
		return exitRefused
	case errors.As(err, &agent):
		return exitAgent
	case errors.As(err, &sandbox):
		return exitSandbox
	default:
		return exitFailure
	}
}

// unreachable reports whether no connection to a server came about, or none
// that lasted.
func unreachable(err error) bool {
	var (
		connect *mcpclient.ConnectError
		lost    *mcpclient.LostError
		restart *mcpclient.RestartError
		ended   *listen.EndError
	)
	return errors.Is(err, postgres.ErrUnreachable) || errors.As(err, &connect) || errors.As(err, &lost) || errors.As(err, &restart) ||
		errors.As(err, &ended) && ended.Reason == listen.EndLost
}
