package monty

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/internal/python"
)

const (
	// formatJSONLines asks the type checker for one JSON object a line.
	formatJSONLines = 5
	// unresolved is the checker's code for a name that nothing defines.
	unresolved = "unresolved-reference"
	// checkScript is the name of a checked program.
	checkScript = "check.py"
)

// diagnostic is a finding of the type checker.
type diagnostic struct {
	Code     string   `json:"code"`
	Message  string   `json:"message"`
	Location position `json:"location"`
}

type position struct {
	Row    int `json:"row"`
	Column int `json:"column"` // in runes, from 1
}

// Check implements python.Checker with the interpreter's type checker, of which
// it takes one finding only: names that nothing defines. The first check in a
// child takes some 20 ms, later ones 1 ms.
func (e *Engine) Check(ctx context.Context, source string, names []string) (err error) {
	if len(source) > python.MaxSource {
		return &python.LimitError{
			Limit: python.LimitSource, Text: fmt.Sprintf("%d bytes, at most %d", len(source), python.MaxSource),
		}
	}
	if err := checkNames("name", names); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, python.DefaultTime, errTime)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	act, err := e.enter(stop)
	if err != nil {
		return err
	}
	defer e.leave(act)
	w, err := e.pool.get(ctx, false, 0, python.DefaultMemory)
	if err != nil {
		return fmt.Errorf("check program: %w", err)
	}
	unwatch := context.AfterFunc(ctx, w.kill)
	fault, err := w.check(source, names)
	w.holds = 0
	e.pool.put(w, false, unwatch() && err == nil)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("check program: %w", reason(ctx))
	case err != nil:
		return fmt.Errorf("check program: %w", err)
	case fault != nil:
		return fault
	}
	return nil
}

// check returns the first unknown name as an error of the program.
func (w *worker) check(source string, names []string) (*python.Error, error) {
	var stubs strings.Builder
	stubs.WriteString("from typing import Any\n")
	for _, n := range names {
		stubs.WriteString(n + ": Any\n")
	}
	guarded := checkGuard + "\n" + source
	err := w.reset(nil, 0, session{name: checkScript, memory: python.DefaultMemory, check: true, stubs: stubs.String()}, func(b []byte) []byte {
		return appendFeed(b, guarded, nil)
	})
	if err == nil {
		err = w.ok()
	}
	if err != nil {
		return nil, err
	}
	ev, err := w.frames.next(maxSmallFrame, nil)
	if err != nil {
		return nil, err
	}
	if ev.kind != evTypingError {
		return nil, w.expect(ev, evTypingError)
	}
	found, err := decodeDiagnostics(text(ev.body, 1))
	if err != nil {
		return nil, err
	}
	return w.firstUnknown(source, found)
}

// checkGuard is a first line with a finding of its own. The checker works before
// the program runs, and with this line it always objects, so that the program
// does not run.
const checkGuard = hiddenName + "_guard"

func decodeDiagnostics(lines string) ([]diagnostic, error) {
	var found []diagnostic
	for line := range strings.Lines(lines) {
		if len(bytes.TrimSpace([]byte(line))) == 0 {
			continue
		}
		var d diagnostic
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			return nil, fmt.Errorf("read diagnostic: %w", err)
		}
		found = append(found, d)
	}
	return found, nil
}

var quoted = regexp.MustCompile("`([^`]+)`")

// firstUnknown drops the findings that are no fault: names that the program
// mentions elsewhere without a finding, which is where it may assign them, and
// names that the interpreter knows and the checker does not.
func (w *worker) firstUnknown(source string, found []diagnostic) (*python.Error, error) {
	at := map[string][]position{}
	for _, d := range found {
		m := quoted.FindStringSubmatch(d.Message)
		if d.Code == unresolved && m != nil && identifier(m[1]) && m[1] != checkGuard {
			d.Location.Row-- // of the guard
			at[m[1]] = append(at[m[1]], d.Location)
		}
	}
	var names []string
	for name, flagged := range at {
		if !slices.ContainsFunc(mentions(source, name), func(p position) bool { return !slices.Contains(flagged, p) }) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	known, err := w.known(names)
	if err != nil {
		return nil, err
	}
	var first *python.Error
	for _, name := range names {
		if slices.Contains(known, name) {
			continue
		}
		for _, p := range at[name] {
			if first == nil || p.Row < first.Line || p.Row == first.Line && p.Column < first.Col {
				first = &python.Error{
					Type: "NameError", Message: fmt.Sprintf("name '%s' is not defined", name),
					SourceLine: clip(lineOf(source, p.Row), maxSourceLine), Line: p.Row, Col: p.Column,
				}
			}
		}
	}
	return first, nil
}

// known returns those of the names that a fresh session knows.
func (w *worker) known(names []string) ([]string, error) {
	if err := w.reset(nil, 0, session{name: checkScript, memory: python.DefaultMemory}, nil); err != nil {
		return nil, err
	}
	if err := w.ok(); err != nil {
		return nil, err
	}
	return w.defined(names)
}

// mentions are the places of a word, other than as an attribute.
func mentions(source, name string) []position {
	var places []position
	row := 0
	for line := range strings.Lines(source) {
		row++
		for _, at := range word.FindAllStringIndex(line, -1) {
			if line[at[0]:at[1]] != name || at[0] > 0 && line[at[0]-1] == '.' {
				continue
			}
			places = append(places, position{Row: row, Column: utf8.RuneCountInString(line[:at[0]]) + 1})
		}
	}
	return places
}

func lineOf(source string, row int) string {
	n := 0
	for line := range strings.Lines(source) {
		if n++; n == row {
			return strings.TrimRight(line, "\r\n")
		}
	}
	return ""
}
