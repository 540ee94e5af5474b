package cli_test

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ossicle/ossicle/internal/cli"
)

// TestMain makes the test binary serve as the program in scripts, and in the
// sandboxes that scripts make.
func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv("OSSICLE_SANDBOX"); ok {
		program()
	}
	testscript.Main(m, map[string]func(){"ossicle": program})
}

func program() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.LookupEnv))
}

// The scripts are the command line's contract: what a person types, sees, and
// gets as the exit code.
func TestScripts(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	monty := filepath.Join(root, "node_modules", "@pydantic", "monty-linux-x64-gnu", "monty")
	_, missing := os.Stat(monty)
	if missing != nil && os.Getenv("OSSICLE_REQUIRE_PEERS") != "" {
		t.Fatalf("the Python interpreter is not installed: %v; run make setup", missing)
	}
	sandbox := os.Getenv("OSSICLE_REQUIRE_PEERS") != "" ||
		exec.CommandContext(t.Context(), "bwrap", "--unshare-all", "--ro-bind", "/", "/", "true").Run() == nil
	// Users of sandboxes pass through to the program; a copy for each is slow.
	if self, err := exec.LookPath("ossicle"); err == nil {
		_ = os.Chmod(filepath.Dir(filepath.Dir(self)), 0o711)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("OSSICLE_MONTY", monty)
			e.Setenv("MARK", strconv.Itoa(os.Getpid())) // of processes that are looked for on the whole machine
			return nil
		},
		Condition: func(cond string) (bool, error) {
			return cond == "python" && missing == nil || cond == "sandbox" && sandbox, nil
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}
