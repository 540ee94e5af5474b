package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ossicle/ossicle/sse"
)

// F-25: the file has the id of an event when its handler has succeeded and not
// before; it is replaced as a whole, and is where the next run begins.
func TestTailKeepsWhatWasHandled(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		var after int
		_, _ = fmt.Sscanf(r.Header.Get("Last-Event-ID"), "e-%d", &after)
		for id := after + 1; id <= 4; id++ {
			_, _ = fmt.Fprintf(w, "id: e-%d\ndata: %d\n\n", id, id)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	dir := t.TempDir()
	cursor := filepath.Join(dir, "at")
	run := func(line string, count int) error {
		from, err := readCursor(cursor)
		if err != nil {
			t.Fatal(err)
		}
		tl := &tail{
			env: &env{log: slog.New(slog.DiscardHandler)}, cursor: cursor, left: count,
			command: &command{line: line, limit: time.Minute, out: io.Discard, err: io.Discard},
		}
		tl.client, err = sse.NewClient(server.URL, tl.handle, &sse.Options{LastID: from, Lost: tl.lost})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return tl.follow(ctx)
	}
	for _, step := range []struct {
		line  string
		count int
		fails bool
		want  string
	}{
		{`test "$(cat)" -le 2`, 2, false, "e-2\n"},
		{`test "$(cat)" -ne 3`, 2, true, "e-2\n"},
		{`test "$OSSICLE_ID" = e-3`, 1, false, "e-3\n"},
		{`test "$(cat)" -eq 4`, 1, false, "e-4\n"},
	} {
		err := run(step.line, step.count)
		got, rerr := os.ReadFile(cursor)
		if (err != nil) != step.fails || rerr != nil || string(got) != step.want {
			t.Fatalf("%s: %v; the file has %q, %v", step.line, err, got, rerr)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("beside the file there is %v, %v", left, err)
	}
	for _, text := range []string{"", "a\nb\n", strings.Repeat("x", sse.MaxID+1), "a\x00b"} {
		if err := os.WriteFile(cursor, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if id, err := readCursor(cursor); err == nil {
			t.Errorf("%q is taken as %q", text, id)
		}
	}
}
