// Package pythontest is the conformance suite of the python port. Every engine
// runs it in its own tests.
package pythontest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/python"
)

// Options say what an engine is known to do otherwise.
type Options struct {
	// CorpusFails names the cases of the corpus, by index, that the engine gets
	// wrong, each with the reason. A case that is listed and passes fails the
	// test as well, so that the list stays true.
	CorpusFails map[int]string
	// Deviates names behaviour of the suite that the engine does not have, each
	// with the reason. Here as well, the list must be true.
	Deviates map[Behaviour]string
}

// Behaviour is something that an engine may be known not to do.
type Behaviour string

// CatchInGather is that a task under asyncio.gather can catch the error of a
// host call that it awaits.
const CatchInGather Behaviour = "catch a host error in a gathered task"

// ample is a time limit that no harmless program reaches on a busy machine.
const ample = 30 * time.Second

// Run runs the suite. newEngine makes an engine that is closed with the test
// that it is made for; it is called a few times.
func Run(t *testing.T, newEngine func(t *testing.T) python.Engine, o *Options) {
	if o == nil {
		o = &Options{}
	}
	for _, part := range []struct {
		name string
		test func(*testing.T, python.Engine)
	}{
		{"Persistence", testPersistence},
		{"Names", testNames},
		{"Inputs", testInputs},
		{"Results", testResults},
		{"Output", testOutput},
		{"Errors", testErrors},
		{"Calls", func(t *testing.T, e python.Engine) { testCalls(t, e, o.Deviates) }},
		{"Limits", testLimits},
		{"Scopes", testScopes},
		{"Context", testContext},
		{"Hostile", testHostile},
		{"Checker", testChecker},
		{"Corpus", func(t *testing.T, e python.Engine) { testCorpus(t, e, o.CorpusFails) }},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			part.test(t, newEngine(t))
		})
	}
	t.Run("Close", func(t *testing.T) {
		t.Parallel()
		testClose(t, newEngine)
	})
}

// bench is a scope under test.
type bench struct {
	t *testing.T
	python.Scope
}

// scope makes a scope that has the given host functions.
func scope(t *testing.T, e python.Engine, call func(context.Context, python.Call) (json.RawMessage, error), functions ...string) bench {
	t.Helper()
	s, err := e.NewScope(python.ScopeOptions{Name: "test.py", Functions: functions, Call: call})
	if err != nil {
		t.Fatalf("new scope: %v", err)
	}
	t.Cleanup(s.Close)
	return bench{t, s}
}

// run runs a program with ample time and no inputs.
func (b bench) run(source string) (python.Result, error) {
	b.t.Helper()
	return b.Run(b.t.Context(), source, nil, python.Limits{Time: ample})
}

// ok runs a program that must not fail.
func (b bench) ok(source string) python.Result {
	b.t.Helper()
	r, err := b.run(source)
	if err != nil {
		b.t.Fatalf("run %q: %v", source, err)
	}
	return r
}

// is runs a program and compares its value.
func (b bench) is(source, value string) {
	b.t.Helper()
	if got := string(b.ok(source).Value); got != value {
		b.t.Errorf("value of %q = %s, want %s", source, got, value)
	}
}

// raises runs a program that must raise.
func (b bench) raises(source, typ string) {
	b.t.Helper()
	_ = b.raised(source, typ)
}

// raised runs a program that must raise, and returns what.
func (b bench) raised(source, typ string) *python.Error {
	b.t.Helper()
	_, err := b.run(source)
	e, ok := errors.AsType[*python.Error](err)
	if !ok {
		b.t.Fatalf("run %q: error %v, want %s", source, err, typ)
	}
	if e.Type != typ {
		b.t.Errorf("run %q: raised %v, want %s", source, e, typ)
	}
	return e
}

// exceeds runs a program that must end at a limit.
func (b bench) exceeds(source string, lim python.Limits, limit string, inputs ...map[string]json.RawMessage) {
	b.t.Helper()
	var in map[string]json.RawMessage
	if len(inputs) > 0 {
		in = inputs[0]
	}
	_, err := b.Run(b.t.Context(), source, in, lim)
	e, ok := errors.AsType[*python.LimitError](err)
	if !ok || e.Limit != limit {
		b.t.Errorf("run %.60q: error %v, want %s limit", source, err, limit)
	}
}

// deviates checks one behaviour against the list of deviations.
func deviates(t *testing.T, list map[Behaviour]string, what Behaviour, works bool) {
	t.Helper()
	reason, listed := list[what]
	switch {
	case works && listed:
		t.Errorf("the engine is said not to %s (%s), and it does", what, reason)
	case !works && !listed:
		t.Errorf("the engine does not %s", what)
	}
}

// echo answers a call with its own name and arguments.
func echo(_ context.Context, c python.Call) (json.RawMessage, error) {
	return json.Marshal(map[string]any{"name": c.Name, "args": c.Args, "kwargs": c.Kwargs})
}

// input makes the inputs of a run from one name and value.
func input(name, value string) map[string]json.RawMessage {
	return map[string]json.RawMessage{name: json.RawMessage(value)}
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprint("quote: ", err)) // a string always has a JSON form
	}
	return string(b)
}
