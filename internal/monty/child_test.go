package monty_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/monty"
	"github.com/ossicle/ossicle/internal/python"
)

// runWith runs a program in an engine whose child is some other program.
func runWith(t *testing.T, path string, lim time.Duration) error {
	t.Helper()
	if !filepath.IsAbs(path) {
		abs, err := filepath.Abs(filepath.Join("testdata", path))
		if err != nil {
			t.Fatal(err)
		}
		path = abs
	}
	e, err := monty.New(path, &monty.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := newScope(t, e, python.ScopeOptions{})
	_, err = s.Run(t.Context(), "1", nil, python.Limits{Time: lim})
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if n := e.Processes(); n != 0 {
		t.Errorf("%d processes left", n)
	}
	if _, ok := errors.AsType[*python.Error](err); err == nil || ok {
		t.Errorf("%s: %v", path, err)
	}
	return err
}

func TestOtherProtocol(t *testing.T) {
	t.Parallel()
	err := runWith(t, "other-version.sh", time.Minute)
	if _, ok := errors.AsType[*monty.ProtocolError](err); !ok {
		t.Errorf("%v", err)
	}
	for _, part := range []string{"protocol version 2", monty.Version, "server supports protocol version 3"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
}

func TestNoInterpreter(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/bin/false", "/bin/echo", "/bin/cat", "/nonexistent/monty", "/etc/passwd"} {
		if err := runWith(t, path, time.Minute); !strings.Contains(err.Error(), "start") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestBrokenChildren(t *testing.T) {
	t.Parallel()
	if err := runWith(t, "dies-later.sh", time.Minute); !strings.Contains(err.Error(), "last words") || limitOf(err) != python.LimitCrash {
		t.Errorf("child that dies: %v", err)
	}
	if err := runWith(t, "garbage.sh", time.Minute); limitOf(err) != python.LimitCrash {
		t.Errorf("child that sends garbage: %v", err)
	}
	if err := runWith(t, "floods.sh", time.Minute); limitOf(err) != python.LimitCrash {
		t.Errorf("child that sends too much: %v", err)
	}
	if err := runWith(t, "silent.sh", 100*time.Millisecond); limitOf(err) != python.LimitTime {
		t.Errorf("child that says nothing: %v", err)
	}
}
