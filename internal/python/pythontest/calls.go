package pythontest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/python"
)

// testCalls: host functions are called with exact values, concurrently, with
// and without await, and never more often than allowed (W-081, W-087).
func testCalls(t *testing.T, e python.Engine, list map[Behaviour]string) {
	t.Run("Values", func(t *testing.T) { testCallValues(t, e) })
	t.Run("Errors", func(t *testing.T) { testCallErrors(t, e) })
	t.Run("Gather", func(t *testing.T) { testGather(t, e, list) })
	t.Run("Slow", func(t *testing.T) { testSlowCalls(t, e) })
	t.Run("Limit", func(t *testing.T) { testCallLimit(t, e) })
	t.Run("NotAwaited", func(t *testing.T) { testNotAwaited(t, e) })
	t.Run("Cancelled", func(t *testing.T) { testCancelledCalls(t, e) })
	t.Run("NoFunctions", func(t *testing.T) {
		s := scope(t, e, nil, "fetch")
		if got := s.raised("fetch(1)", "NameError"); !got.Static() {
			t.Errorf("call without host functions: %v", got)
		}
	})
}

func testCallValues(t *testing.T, e python.Engine) {
	s := scope(t, e, echo, "fetch")
	s.is("await fetch(1915883588174806058, 2.0, None, key='v')",
		`{"args":[1915883588174806058,2.0,null],"kwargs":{"key":"v"},"name":"fetch"}`)
	// Without await anywhere, a call gives its value at once.
	s.is("fetch({'z': 1, 'a': [10**30, -0.0]})['args'][0]", `{"z":1,"a":[1000000000000000000000000000000,-0.0]}`)
	s.is("x = 'awaiting'\nfetch(4)['args']", "[4]")
	s.is("def wrap(x):\n    return fetch(x)['args'][0]\n[wrap(i) for i in range(3)]", "[0,1,2]")
	// Values without a JSON shape are texts (W-110).
	r := s.ok("def handler(): pass\nawait fetch(handler, [b'x'], {(1, 2): float('inf')})")
	if got := string(r.Value); !strings.Contains(got, `"args":["<function`) || !strings.HasSuffix(got, `,["b'x'"],{"(1, 2)":"inf"}],"kwargs":null,"name":"fetch"}`) {
		t.Errorf("values without a shape: %s", got)
	}
	if r := s.ok("f = fetch\nr = await f(5)\nr['args']"); string(r.Value) != "[5]" || r.Calls != 1 {
		t.Errorf("call by another name: %s, %d calls", r.Value, r.Calls)
	}
	s.is("(await f(6))['args']", "[6]") // in a later run as well

	raw := scope(t, e, func(_ context.Context, c python.Call) (json.RawMessage, error) {
		var text string
		err := json.Unmarshal(c.Args[0], &text)
		return json.RawMessage(text), err
	}, "raw")
	for in, out := range map[string]string{
		`{"b":1,"a":18446744073709551617}`: `{"b":1,"a":18446744073709551617}`,
		``:                                 "null",
		`"é"`:                              `"é"`,
		`[1.0,1e5]`:                        `[1.0,100000.0]`,
	} {
		raw.is("await raw("+quote(in)+")", out)
	}
	for _, bad := range []string{`{"a":1,"a":2}`, `[1`, `nope`, strings.Repeat("[", 3000) + strings.Repeat("]", 3000)} {
		raw.raises("await raw("+quote(bad)+")", "RuntimeError")
	}
}

func testCallErrors(t *testing.T, e python.Engine) {
	s := scope(t, e, func(_ context.Context, c python.Call) (json.RawMessage, error) {
		switch string(c.Args[0]) {
		case `"value"`:
			return nil, fmt.Errorf("wrapped: %w", &python.Error{Type: "ValueError", Message: "bad input"})
		case `"unknown"`:
			return nil, &python.Error{Type: "McpError", Message: "code -32601"}
		}
		return nil, errors.New("plain failure")
	}, "boom")
	s.is("try:\n    await boom('value')\nexcept ValueError as e:\n    r = str(e)\nr", `"bad input"`)
	s.is("try:\n    boom('value')\nexcept ValueError as e:\n    r = str(e)\nr", `"bad input"`)
	s.is("try:\n    await boom('plain')\nexcept RuntimeError as e:\n    r = str(e)\nr", `"plain failure"`)
	s.is("try:\n    await boom('unknown')\nexcept Exception as e:\n    r = str(e)\nr", `"McpError: code -32601"`)
	if got := s.raised("x = 1\nawait boom('value')", "ValueError"); got.Line != 2 || got.Message != "bad input" {
		t.Errorf("uncaught error of a host function: %+v", got)
	}
	s.is("x", "1")
	if got := s.raised("unknown_function(1)", "NameError"); !got.Static() {
		t.Errorf("unknown function: %+v", got)
	}
}

// testGather: calls under gather run at the same time, and so do their errors.
func testGather(t *testing.T, e python.Engine, list map[Behaviour]string) {
	var meet sync.WaitGroup
	meet.Add(3)
	s := scope(t, e, func(ctx context.Context, c python.Call) (json.RawMessage, error) {
		switch string(c.Args[0]) {
		case `"fail"`:
			return nil, &python.Error{Type: "ValueError", Message: "one"}
		case `"hang"`:
			<-ctx.Done()
			return nil, ctx.Err()
		}
		meet.Done()
		met := make(chan struct{})
		go func() { meet.Wait(); close(met) }()
		select {
		case <-met:
			return c.Args[0], nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}, "meet")
	r := s.ok("import asyncio\nasync def go(i):\n    return [await meet(i)]\nawait asyncio.gather(go(0), meet(1), go(2))")
	if diff := cmp.Diff(`[[0],1,[2]]`, string(r.Value)); diff != "" || r.Calls != 3 {
		t.Errorf("gather: %s, %d calls", r.Value, r.Calls)
	}
	s.is("try:\n    await asyncio.gather(meet('fail'), meet('fail'))\nexcept ValueError as e:\n    r = str(e)\nr", `"one"`)
	s.raises("await asyncio.gather(meet('fail'))", "ValueError")
	// The error of one ends the gather, and the program need not wait for the rest.
	s.is("try:\n    await asyncio.gather(meet('fail'), meet('hang'))\nexcept ValueError as e:\n    r = str(e)\nr", `"one"`)
	r, err := s.run(`
async def guarded():
    try:
        return await meet("fail")
    except ValueError as e:
        return "caught " + str(e)
await asyncio.gather(guarded(), guarded())
`)
	deviates(t, list, CatchInGather, err == nil && string(r.Value) == `["caught one","caught one"]`)
}

// testSlowCalls: many scopes can wait at once, however few interpreters there
// are, and others run meanwhile (W-085).
func testSlowCalls(t *testing.T, e python.Engine) {
	const waiting = 50
	release := make(chan struct{})
	var arrived sync.WaitGroup
	arrived.Add(waiting)
	slow := func(ctx context.Context, c python.Call) (json.RawMessage, error) {
		arrived.Done()
		select {
		case <-release:
			return c.Args[0], nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	var runs sync.WaitGroup
	for i := range waiting {
		s := scope(t, e, slow, "slow")
		source := fmt.Sprintf("x = [%d]\ny = await slow(x[0])\nx.append(y)\nx", i)
		if i%2 == 0 {
			source = strings.ReplaceAll(source, "await ", "")
		}
		runs.Go(func() {
			r, err := s.run(source)
			if want := fmt.Sprintf("[%d,%d]", i, i); err != nil || string(r.Value) != want {
				t.Errorf("slow call: %s, %v; want %s", r.Value, err, want)
			}
		})
	}
	all := make(chan struct{})
	go func() { arrived.Wait(); close(all) }()
	select {
	case <-all:
		scope(t, e, nil).is("1 + 1", "2")
	case <-time.After(ample):
		t.Error("a scope that waits keeps others from running")
	}
	close(release)
	runs.Wait()
}

// testCallLimit: the call after the last raises, also when nobody awaits.
func testCallLimit(t *testing.T, e python.Engine) {
	var made atomic.Int32
	s := scope(t, e, func(context.Context, python.Call) (json.RawMessage, error) {
		made.Add(1)
		return json.RawMessage("1"), nil
	}, "f")
	for _, source := range []string{
		"n = 0\nwhile True:\n    n += await f()\n",
		"n = 0\nwhile True:\n    n += f()\n",
		"n = 0\nawaitless = []\nwhile True:\n    awaitless.append(f())\n    n += 1\n",
	} {
		made.Store(0)
		r, err := s.Run(t.Context(), source, nil, python.Limits{Time: ample, Calls: 4})
		got, ok := errors.AsType[*python.Error](err)
		if !ok || got.Type != "RuntimeError" || !strings.Contains(got.Message, "4") || got.Static() {
			t.Errorf("%q: error %v, want a RuntimeError about 4 calls", source, err)
		}
		if r.Calls != 4 || made.Load() != 4 {
			t.Errorf("%q: %d calls counted, %d made", source, r.Calls, made.Load())
		}
		s.is("n", "4")
	}
	r, err := s.Run(t.Context(), "try:\n    for i in range(9): await f()\nexcept RuntimeError:\n    i", nil, python.Limits{Time: ample, Calls: 4})
	if err != nil || r.Calls != 4 {
		t.Errorf("caught limit: %v, %d calls", err, r.Calls)
	}
}

// testNotAwaited: a call that nobody awaits is made, counted, waited for, and
// its failure is seen (W-082).
func testNotAwaited(t *testing.T, e python.Engine) {
	release := make(chan struct{})
	var ended atomic.Bool
	s := scope(t, e, func(ctx context.Context, c python.Call) (json.RawMessage, error) {
		if string(c.Args[0]) == `"fail"` {
			return nil, &python.Error{Type: "PermissionError", Message: "tool is not read-only"}
		}
		close(release)
		<-time.After(20 * time.Millisecond) // longer than the program
		ended.Store(ctx.Err() == nil)
		return nil, nil
	}, "f")
	r := s.ok("import asyncio\nx = 1\nf('slow')\n'end'")
	<-release
	if r.Text != "end" || r.Calls != 1 || !ended.Load() {
		t.Errorf("not awaited: %q, %d calls, ended %v", r.Text, r.Calls, ended.Load())
	}
	got := s.raised("import asyncio\nx = 2\nf('fail')\n'end'", "PermissionError")
	if !strings.Contains(got.Message, "f") || !strings.Contains(got.Message, "tool is not read-only") {
		t.Errorf("failure of a call that was not awaited: %+v", got)
	}
	s.is("x", "2")
	// A call of an earlier run is answered by nobody; that is an error, no hang.
	s.ok("import asyncio\npending = f('fail') if False else None")
	held := scope(t, e, echo, "g")
	held.ok("import asyncio\npending = g(1)\n0")
	if _, err := held.Run(t.Context(), "await pending", nil, python.Limits{Time: ample}); err == nil {
		t.Log("the engine keeps answers of earlier runs")
	} else if _, ok := errors.AsType[*python.Error](err); !ok {
		t.Errorf("await of an earlier run's call: %v", err)
	}
	held.is("(await g(2))['args']", "[2]")
}

// testCancelledCalls: the context of a call ends with the run, and Run waits
// for the call.
func testCancelledCalls(t *testing.T, e python.Engine) {
	var made, cancelled atomic.Int32
	s := scope(t, e, func(ctx context.Context, _ python.Call) (json.RawMessage, error) {
		made.Add(1)
		<-ctx.Done()
		cancelled.Add(1)
		return nil, ctx.Err()
	}, "hang")
	s.ok("kept = 1")
	for i, source := range []string{
		"kept = 2\nawait hang()",
		"kept = 2\nhang()",
		"kept = 2\nimport asyncio\nhang()\nhang()",
		"kept = 2\nimport asyncio\nhang()\nwhile True: pass",
	} {
		made.Store(0)
		cancelled.Store(0)
		// On a busy machine the time may be over before the program has come to its call.
		for limit := 150 * time.Millisecond; made.Load() == 0; limit *= 2 {
			if limit > ample {
				t.Fatalf("case %d: no call in %v", i, limit/2)
			}
			s.exceeds(source, python.Limits{Time: limit}, python.LimitTime)
		}
		if c, m := cancelled.Load(), made.Load(); c != m {
			t.Errorf("case %d: Run returned when %d of %d calls had", i, c, m)
		}
		s.is("kept", "1")
	}
	made.Store(0)
	cancelled.Store(0)
	s.raises("import asyncio\nhang()\n1/0", "ZeroDivisionError")
	if made.Load() != 1 || cancelled.Load() != 1 {
		t.Error("call was not cancelled by an exception")
	}
}
