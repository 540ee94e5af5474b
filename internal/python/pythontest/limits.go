package pythontest

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/python"
)

// testLimits: each limit ends a run, says so, and leaves the scope as it was
// (W-086, W-161).
func testLimits(t *testing.T, e python.Engine) {
	short := python.Limits{Time: 150 * time.Millisecond}
	roomy := python.Limits{Time: ample}
	for _, c := range []struct {
		name, source string
		lim          python.Limits
		limit        string
	}{
		{"Loop", "while True: pass", short, python.LimitTime},
		{"LoopThatCatches", "while True:\n    try:\n        while True: pass\n    except BaseException:\n        pass", short, python.LimitTime},
		{"Sum", "sum(range(10**12))", short, python.LimitTime},
		{"List", "x = [0] * 10**10", roomy, python.LimitMemory},
		{"Append", "x = []\nwhile True: x.append('a' * 1000)", roomy, python.LimitMemory},
		{"Double", "x = 'a'\nwhile True: x += x", roomy, python.LimitMemory},
		{"Power", "10**10**8", roomy, python.LimitMemory},
		{"Repeat", "'a' * 2**40", roomy, python.LimitMemory},
		{"Join", "''.join(['x'] * 10**9)", roomy, python.LimitMemory},
		{"Small", "x = 'a' * 3_000_000", python.Limits{Time: ample, Memory: 2 << 20}, python.LimitMemory},
		{"Recursion", "def f(): return f()\nf()", roomy, python.LimitRecursion},
		{"Lambda", "(lambda f: f(f))(lambda f: f(f))", roomy, python.LimitRecursion},
		{"Source", strings.Repeat("x = 1\n", python.MaxSource/6+1), roomy, python.LimitSource},
		{"Result", "'x' * 5_000_000", roomy, python.LimitResult},
		{"ResultList", "list(range(300_000))", roomy, python.LimitResult},
		{"State", "x = ['a' * 1000 + str(i) for i in range(16_000)]\n0", roomy, python.LimitMemory},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := scope(t, e, nil)
			s.ok("kept = {'n': [1]}\nx = 'old'")
			s.exceeds("kept['n'].append(2)\nnew = 1\n"+c.source, c.lim, c.limit)
			s.is("[kept, x]", `[{"n":[1]},"old"]`)
			s.raises("new", "NameError")
		})
	}
	testLimitsChange(t, e)
	testBystander(t, e)
}

// testLimitsChange: limits are those of the run, not of the scope.
func testLimitsChange(t *testing.T, e python.Engine) {
	s := scope(t, e, nil)
	small := python.Limits{Time: ample, Memory: 2 << 20}
	large := python.Limits{Time: ample, Memory: 200 << 20}
	s.exceeds("len('a' * 3_000_000)", small, python.LimitMemory)
	s.ok("y = 1")
	for range 2 {
		if _, err := s.Run(t.Context(), "len('a' * 100_000_000)", nil, large); err != nil {
			t.Fatal(err)
		}
		s.exceeds("len('a' * 3_000_000)", small, python.LimitMemory)
	}
	s.is("y", "1")
	// Time is per run and does not add up.
	for range 4 {
		if _, err := s.Run(t.Context(), "sum([i for i in range(100_000)])", nil, python.Limits{Time: ample}); err != nil {
			t.Fatal(err)
		}
	}
}

// testBystander: a scope works on while others are stopped at their limits.
func testBystander(t *testing.T, e python.Engine) {
	var hostile sync.WaitGroup
	for _, source := range []string{"while True: pass", "x = []\nwhile True: x.append('a' * 1000)", "x = [1]\nfor i in range(40): x = [x, x]\nx"} {
		s := scope(t, e, nil)
		hostile.Go(func() {
			for range 3 {
				if _, err := s.Run(t.Context(), source, nil, python.Limits{Time: 200 * time.Millisecond}); err == nil {
					t.Errorf("%q came to an end", source)
				}
			}
		})
	}
	s := scope(t, e, nil)
	s.ok("n = 0")
	for range 20 {
		s.ok("n += 1")
	}
	s.is("n", "20")
	hostile.Wait()
}

// hostile are programs that are out to harm. None may take longer than its
// time, hurt another scope, or change its own by failing at a limit.
//
//go:embed testdata/hostile.txt
var hostile string

func testHostile(t *testing.T, e python.Engine) {
	for i, source := range strings.Split(hostile, "\n====\n") {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			s := scope(t, e, echo, "f")
			s.ok("kept = [1]")
			lim := python.Limits{Time: 500 * time.Millisecond}
			ctx, cancel := context.WithTimeout(t.Context(), ample)
			defer cancel()
			_, err := s.Run(ctx, source, map[string]json.RawMessage{"event": json.RawMessage("{}")}, lim)
			_, raised := errors.AsType[*python.Error](err)
			_, limited := errors.AsType[*python.LimitError](err)
			if err != nil && !raised && !limited {
				t.Errorf("error %v", err)
			}
			t.Logf("%.60q: %v", source, err)
			s.is("kept", "[1]")
		})
	}
	for name, source := range nested() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scope(t, e, nil)
			s.ok("kept = [1]")
			_, err := s.Run(t.Context(), source, nil, python.Limits{Time: 500 * time.Millisecond})
			if name != "Chain" && err == nil {
				t.Error("compiled")
			}
			s.is("kept", "[1]")
		})
	}
}

// nested are programs that are hard on a parser.
func nested() map[string]string {
	var indented strings.Builder
	for i := range 300 {
		indented.WriteString(strings.Repeat(" ", i) + "if 1:\n")
	}
	return map[string]string{
		"Parentheses": strings.Repeat("(", 30000) + "1" + strings.Repeat(")", 30000),
		"Unary":       strings.Repeat("-", 60000) + "1",
		"Not":         strings.Repeat("not ", 15000) + "1",
		"Lambda":      strings.Repeat("lambda:", 9000) + "1",
		"Attribute":   "x" + strings.Repeat(".x", 30000),
		"Index":       "x" + strings.Repeat("[0]", 20000),
		"Call":        "x" + strings.Repeat("()", 30000),
		"Plus":        "1" + strings.Repeat("+1", 30000),
		"Conditional": strings.Repeat("1 if 1 else ", 5000) + "1",
		"Indent":      indented.String() + strings.Repeat(" ", 300) + "x",
		"FString":     "f\"" + strings.Repeat("{f'", 1000),
		"Chain":       strings.Repeat("a = ", 15000) + "1",
	}
}
