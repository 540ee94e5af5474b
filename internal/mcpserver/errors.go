package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ossicle/ossicle/listen"
)

// ForbiddenError is what an [Options.Authorize] returns for a caller that may
// not do what it asks.
type ForbiddenError struct {
	Verb   Verb
	Target string
	Hint   string // what to do, for instance "ask the operator for the right"
}

func (e *ForbiddenError) Error() string {
	s := fmt.Sprintf("not permitted to %s %q", e.Verb, e.Target)
	if e.Hint != "" {
		s += ": " + e.Hint
	}
	return s
}

// toWire is the one place where errors get their JSON-RPC code.
func toWire(err error) *jsonrpc.Error {
	var (
		missing   *listen.NotFoundError
		forbidden *ForbiddenError
		wire      *jsonrpc.Error
	)
	switch {
	case errors.As(err, &missing):
		return newError(codeInvalidParams, err.Error(), map[string]any{"uri": missing.URI})
	case errors.As(err, &forbidden):
		return newError(CodeForbidden, err.Error(), map[string]any{"verb": forbidden.Verb, "target": forbidden.Target})
	case errors.Is(err, listen.ErrNotWatchable):
		return newError(codeInvalidParams, err.Error(), nil)
	case errors.As(err, &wire):
		return repair(wire, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return newError(codeInternal, err.Error()+": it took too long; try again, or ask for less", nil)
	case errors.Is(err, context.Canceled):
		return newError(codeInternal, "the request was cancelled", nil)
	}
	return newError(codeInternal, err.Error(), nil)
}

// repair gives an error of the SDK the code that the specification wants, and
// the words that it lacks.
func repair(e *jsonrpc.Error, text string) *jsonrpc.Error {
	out := &jsonrpc.Error{Code: e.Code, Message: text, Data: e.Data}
	switch {
	case strings.Contains(text, "is invalid during session initialization"):
		out.Code, out.Message = codeInvalidRequest, text+": send initialize first, or the _meta of revision "+modernVersion+" with each request"
	case strings.HasPrefix(text, `duplicate "initialize"`):
		out.Code, out.Message = codeInvalidRequest, "this session is initialized already: open a new one, or go on with it"
	case e.Code == 0 && strings.HasPrefix(text, "handling '"):
		out.Code = codeInvalidParams // params that cannot be decoded
	case e.Code == 0, isLegacyRange(e.Code):
		// Zero is the SDK's lack of a code; the other range is no longer to be used.
		out.Code = codeInternal
	}
	return out
}

// isLegacyRange reports whether a code is one of -32019..-32000, which
// revision 2026-07-28 forbids to new servers.
func isLegacyRange(code int64) bool { return code >= -32019 && code <= -32000 }

// wireOf repairs the error of a response that passed no middleware.
func wireOf(err error) *jsonrpc.Error {
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) {
		wire = &jsonrpc.Error{}
	}
	return repair(wire, err.Error())
}

func newError(code int64, text string, data any) *jsonrpc.Error {
	e := &jsonrpc.Error{Code: code, Message: text}
	if data != nil {
		if b, err := json.Marshal(data); err == nil {
			e.Data = b
		}
	}
	return e
}
