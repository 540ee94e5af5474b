package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/watch"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The pages show the tables of the code.
func TestDocumentedTables(t *testing.T) {
	t.Parallel()
	var codes strings.Builder
	codes.WriteString("| code | meaning |\n|---|---|\n")
	for _, row := range exitTable {
		fmt.Fprintf(&codes, "| %d | %s |\n", row.code, row.meaning)
	}
	if !strings.Contains(page(t, "reference/exit-codes.md"), codes.String()) {
		t.Errorf("docs/reference/exit-codes.md needs this table:\n%s", codes.String())
	}
	var limits strings.Builder
	limits.WriteString("<!-- limits -->\n| limit | default |\n|---|---|\n")
	for _, row := range watch.LimitTable() {
		fmt.Fprintf(&limits, "| %s | %s |\n", row.What, row.Default)
	}
	limits.WriteString("<!-- /limits -->")
	if !strings.Contains(page(t, "watches.md"), limits.String()) {
		t.Errorf("docs/watches.md needs this table:\n%s", limits.String())
	}
}

// Every command and flag is on the page, and nothing else.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	want := commandPage(newRoot(&env{}))
	if got := page(t, "reference/cli.md"); got != want {
		if os.Getenv("OSSICLE_UPDATE_DOCS") != "" {
			if err := os.WriteFile("../../docs/reference/cli.md", []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		t.Error("docs/reference/cli.md is not what the commands say; run: OSSICLE_UPDATE_DOCS=1 go test ./internal/cli -run Documented")
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		ctx  context.Context //nolint:containedctx // a case of a table
		err  error
		want int
	}{
		{t.Context(), nil, exitOK},
		{t.Context(), errors.New("x"), exitFailure},
		{t.Context(), &usageError{errors.New("x")}, exitUsage},
		{t.Context(), fmt.Errorf("start: %w", &watch.FilterError{}), exitUsage},
		{t.Context(), fmt.Errorf("probe: %w", errUnobserved), exitUnobserved},
		{t.Context(), fmt.Errorf("read: %w", &mcpclient.ConnectError{}), exitUnreachable},
		{t.Context(), fmt.Errorf("read: %w", &mcpclient.LostError{}), exitUnreachable},
		{t.Context(), fmt.Errorf("read: %w", &mcpclient.RestartError{}), exitUnreachable},
		{t.Context(), fmt.Errorf("subscribe: %w", &listen.EndError{Reason: listen.EndLost}), exitUnreachable},
		{t.Context(), fmt.Errorf("subscribe: %w", &listen.EndError{Reason: listen.EndFailed}), exitFailure},
		{t.Context(), &watch.VersionError{}, exitRefused},
		{t.Context(), errWatchesFailed, exitRefused},
		{t.Context(), fmt.Errorf("wait: %w", errNoSignal), exitTimeout},
		{t.Context(), &sandboxError{errors.New("x")}, exitSandbox},
		{t.Context(), &codeError{code: 75}, 75},
		{ended, fmt.Errorf("read: %w", context.Canceled), exitInterrupted},
		{ended, nil, exitOK},
	} {
		if got := exitCode(tc.ctx, tc.err); got != tc.want {
			t.Errorf("%v: code %d, want %d", tc.err, got, tc.want)
		}
	}
}
