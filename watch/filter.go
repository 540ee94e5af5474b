package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/ossicle/ossicle/internal/python"
)

// filterFile is the name under which tracebacks show a filter.
const filterFile = "on_event.py"

// Bounds of what a filter says of itself.
const (
	maxFilterErrors = 64  // different error texts that are remembered as told
	maxErrorRunes   = 200 // runes of one
)

// filter is the stage that runs on_event (specification W-080 to W-088): a scope
// that lives as long as the watch, one run for each event.
type filter struct {
	watch     string
	uri       string
	source    string
	scope     python.Scope
	catalogue *catalogue
	limits    *Limits
	fallback  defaultLine
	mayFall   func() bool // claims the one default line of a batch for a failed run
	told      *rows       // error texts that were reported
	toolless  bool        // as of Options

	failures int // in a row
	off      bool
}

func (f *filter) apply(ctx context.Context, t *ticket) bool {
	if f.off || t.event.Type == TypeError {
		// The source of an event log failed: no filter may hide that (WA-31).
		return f.fallback.apply(ctx, t)
	}
	result, err := f.scope.Run(ctx, f.source, map[string]json.RawMessage{"event": t.event.Object(f.watch, f.uri)},
		python.Limits{Time: f.limits.FilterTime, Calls: f.limits.FilterCalls})
	switch {
	case ctx.Err() != nil || errors.Is(err, python.ErrClosed):
		return false // the watch is over
	case err != nil:
		f.failed(ctx, t, err)
	default:
		f.failures = 0
		t.line = bound(resultLine(result), f.limits.LineRunes)
	}
	return t.line != "" || len(t.remarks) > 0
}

// failed turns a failed run into lines: the error once for each text, the
// event's default line once for each batch, and the end of the filter when it
// fails again and again (WA-17).
func (f *filter) failed(ctx context.Context, t *ticket, err error) {
	text := bound(f.catalogue.errorText(err), maxErrorRunes)
	if f.told.set(text, "") {
		t.remarks = append(t.remarks, bound(fmt.Sprintf("filter error in %s: %s", f.watch, text), f.limits.LineRunes))
	}
	if f.failures++; f.failures >= f.limits.FilterFailures {
		f.off = true
		advice := "call watch_start again with a corrected on_event"
		if f.toolless {
			advice = "start the watch again with a corrected filter"
		}
		t.remarks = append(t.remarks, fmt.Sprintf("filter of %s switched off after %d failures in a row; "+
			"events now show their default lines; %s", bound(f.watch, MaxName), f.failures, advice))
	}
	if f.mayFall() {
		f.fallback.apply(ctx, t)
	}
}

// resultLine is what a run says: printed text first, then the value; nothing
// if there is neither (W-083, W-084, WA-16). Values that have no JSON form show as
// Python shows them.
func resultLine(r python.Result) string {
	line := strings.TrimSpace(r.Output)
	if r.None {
		return line
	}
	value := r.Text
	if len(r.Value) > 0 && r.Value[0] != '"' {
		value = compact(r.Value)
	}
	return strings.TrimSpace(line + " " + value)
}

var unknownName = regexp.MustCompile(`name '([^']+)' is not defined`)

// errorText is an interpreter's error in the words that the model needs.
func (c *catalogue) errorText(err error) string {
	if limit, ok := errors.AsType[*python.LimitError](err); ok {
		return limit.Limit + " limit: " + limit.Text
	}
	failure, ok := errors.AsType[*python.Error](err)
	if !ok {
		return err.Error()
	}
	if hint := c.hint(failure); hint != "" {
		return failure.Error() + ": " + hint
	}
	return failure.Error()
}

// hint explains an unknown name: a filter's catalogue is smaller than that of
// the model that wrote it (W-082).
func (c *catalogue) hint(failure *python.Error) string {
	match := unknownName.FindStringSubmatch(failure.Message)
	if failure.Type != "NameError" || match == nil {
		return ""
	}
	if why, ok := c.denied[match[1]]; ok {
		return why
	}
	hint := "a filter sees event, its own variables and the functions " + strings.Join(c.names(), ", ")
	if len(c.silent) > 0 {
		hint += "; the tools of these servers are not known, because they did not answer: " + strings.Join(c.silent, ", ")
	}
	return hint
}
