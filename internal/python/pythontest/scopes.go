package pythontest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/python"
)

// testScopes: scopes share nothing, run at the same time, and each serialises
// its own runs (W-080, W-085).
func testScopes(t *testing.T, e python.Engine) {
	a, b := scope(t, e, nil), scope(t, e, nil)
	a.ok("x = 1\nlist = 'shadow'\nimport json\njson_saved = json")
	b.raises("x", "NameError")
	b.raises("json", "NameError")
	b.is("list((1,))", "[1]")
	b.ok("x = 2")
	a.is("x", "1")

	var wg sync.WaitGroup
	for i := range 40 {
		s := scope(t, e, nil)
		wg.Go(func() {
			s.ok(fmt.Sprintf("me = %d\nn = 0\nseen = []", i))
			for range 10 {
				if _, err := s.Run(t.Context(), "n += 1\nseen.append(event['i'])", input("event", fmt.Sprintf(`{"i":%d}`, i)), python.Limits{Time: ample}); err != nil {
					t.Error(err)
				}
			}
			s.is("[me, n, len(seen), set(seen) == {me}]", fmt.Sprintf("[%d,10,10,true]", i))
		})
	}
	shared := scope(t, e, nil)
	shared.ok("n = 0")
	for range 40 {
		wg.Go(func() { shared.ok("before = n\nfor i in range(100): pass\nn = before + 1") })
	}
	wg.Wait()
	shared.is("n", "40")
}

// testContext: a run that is given up changes nothing.
func testContext(t *testing.T, e python.Engine) {
	s := scope(t, e, func(ctx context.Context, _ python.Call) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}, "hang")
	s.ok("kept = 1")
	for _, source := range []string{"kept = 2\nwhile True: pass", "kept = 2\nawait hang()", "kept = 2\nhang()"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := s.Run(ctx, source, nil, python.Limits{Time: ample})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("run %q: error %v", source, err)
		}
		s.is("kept", "1")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Run(gone, "kept = 3", nil, python.Limits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("run with a context that has ended: %v", err)
	}
	s.is("kept", "1")
	testQueue(t, e)
}

// testQueue: whoever waits for the turn in a scope can give up.
func testQueue(t *testing.T, e python.Engine) {
	entered, release := make(chan struct{}), make(chan struct{})
	s := scope(t, e, func(context.Context, python.Call) (json.RawMessage, error) {
		close(entered)
		<-release
		return nil, nil
	}, "hold")
	var wg sync.WaitGroup
	wg.Go(func() { s.ok("await hold()") })
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Run(ctx, "1", nil, python.Limits{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("run behind another: %v", err)
	}
	close(release)
	wg.Wait()
	s.is("1", "1")
}

// testClose: what is closed runs nothing, and Close ends what runs.
func testClose(t *testing.T, newEngine func(t *testing.T) python.Engine) {
	e := newEngine(t)
	if e.Name() == "" {
		t.Error("engine has no name")
	}
	s := scope(t, e, nil)
	s.ok("x = 1")
	s.Close()
	s.Close()
	if _, err := s.run("x"); !errors.Is(err, python.ErrClosed) {
		t.Errorf("run in a closed scope: %v", err)
	}
	for name, end := range map[string]func(bench){
		"scope":  func(s bench) { s.Close() },
		"engine": func(bench) { _ = e.Close() },
	} {
		s := scope(t, e, func(ctx context.Context, _ python.Call) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "started")
		errs := make(chan error, 2)
		running := scope(t, e, nil)
		go func() { _, err := s.run("started()"); errs <- err }()
		go func() { _, err := running.run("while True: pass"); errs <- err }()
		time.AfterFunc(50*time.Millisecond, func() { end(s); end(running) })
		for range 2 {
			if err := <-errs; !errors.Is(err, python.ErrClosed) {
				t.Errorf("run whose %s was closed: %v", name, err)
			}
		}
		if name == "engine" {
			break
		}
	}
	if err := e.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := e.NewScope(python.ScopeOptions{}); !errors.Is(err, python.ErrClosed) {
		t.Errorf("scope of a closed engine: %v", err)
	}
}
