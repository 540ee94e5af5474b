package watch

import (
	"fmt"
	"strings"
)

// RequiredVersion is the first MCP version that has subscriptions/listen, and
// so the one that a server needs to be watched (specification W-013, W-049).
const RequiredVersion = "2026-07-28"

// VersionError says that a server is connected but speaks a protocol version
// that has no subscriptions/listen: its tools and reads work, watches do not.
type VersionError struct {
	Server   string // configured name
	Version  string // what was negotiated
	Required string // what a watch needs; empty means RequiredVersion
}

func (e *VersionError) Error() string {
	required := e.Required
	if required == "" {
		required = RequiredVersion
	}
	return fmt.Sprintf("watch server %q: it speaks MCP %s and a watch needs %s or later; its tools and reads still work",
		e.Server, e.Version, required)
}

// RefusedError says that a server acknowledged the listen without the URI.
type RefusedError struct {
	Server string // configured name
	URI    string
	Reason string // what the server said, if anything
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("subscribe to %q: server %q does not accept it", e.URI, e.Server)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// ArgumentError says which argument of a call is wrong and what to pass
// instead (specification W-068). It is final: no repeat can cure it.
type ArgumentError struct {
	Arg     string // "name", "uri" or "on_event"
	Problem string
	Fix     string
}

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("check argument %s: %s; %s", e.Arg, e.Problem, e.Fix)
}

// FilterError says that an on_event program cannot run (specification W-111).
// It is final until the source text changes, unless it is Temporary.
type FilterError struct {
	Problem string // the interpreter's message
	Hint    string // what may be done about it, if known
	Err     error  // the interpreter's error
	// Temporary says that the cause may lie elsewhere: a name that is unknown may
	// be a tool of a server that did not answer, a run that did not end may have
	// lacked a processor.
	Temporary bool
}

func (e *FilterError) Error() string {
	s := "check on_event: " + e.Problem
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s + "; no watch was made"
}

func (e *FilterError) Unwrap() error { return e.Err }

// LimitError says that a limit of the engine is reached (specification W-160).
type LimitError struct {
	Limit int
	Names []string // the watches that are running
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("start watch: the limit of %d watches is reached (running: %s); stop one with watch_stop(name=...) first",
		e.Limit, strings.Join(e.Names, ", "))
}

// RouteError says that no server can be found for a URI (specification W-045).
type RouteError struct {
	URI        string
	Reason     string   // why none fits
	Known      []string // URIs and templates that are known, bounded
	DidYouMean []string // the nearest of them, if any is near
	Err        error    // what servers answered that could not be asked, or nil

	silent []string // servers that did not say what they have
}

func (e *RouteError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "find server for %q: %s", e.URI, e.Reason)
	if len(e.DidYouMean) > 0 {
		fmt.Fprintf(&b, "; did you mean: %s", strings.Join(e.DidYouMean, ", "))
	}
	if len(e.Known) > 0 {
		fmt.Fprintf(&b, "; known: %s", strings.Join(e.Known, ", "))
	}
	if e.Err != nil {
		fmt.Fprintf(&b, "; not asked: %v", e.Err)
	}
	return b.String()
}

func (e *RouteError) Unwrap() error { return e.Err }
