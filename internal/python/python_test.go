package python_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ossicle/ossicle/internal/python"
)

func TestErrorText(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]*python.Error{
		"KeyError":                           {Type: "KeyError"},
		"NameError: name 'x' is not defined": {Type: "NameError", Message: "name 'x' is not defined"},
		"ValueError: bad (line 3)":           {Type: "ValueError", Message: "bad", Line: 3, Col: 5, Func: "f"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("error %q, want %q", got, want)
		}
	}
}

// W-111, W-112: which errors fail a dry run.
func TestStatic(t *testing.T) {
	t.Parallel()
	for typ, want := range map[string]bool{
		"SyntaxError": true, "IndentationError": true, "NameError": true, "UnboundLocalError": true,
		"ImportError": true, "ModuleNotFoundError": true, "NotImplementedError": true,
		"KeyError": false, "TypeError": false, "AttributeError": false, "IndexError": false, "RuntimeError": false,
	} {
		if got := (&python.Error{Type: typ}).Static(); got != want {
			t.Errorf("%s: static %v, want %v", typ, got, want)
		}
	}
}

func TestLimitError(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("filter: %w", &python.LimitError{Limit: python.LimitTime, Text: "more than 2s"})
	le, ok := errors.AsType[*python.LimitError](err)
	if !ok || le.Limit != "time" || err.Error() != "filter: python: time limit: more than 2s" {
		t.Errorf("limit error: %v", err)
	}
}
