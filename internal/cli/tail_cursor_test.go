package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/sse"
)

// F-25: what a hostile stream calls an id never makes the file one from which nobody can
// go on: the last id that can be sent stays in it.
func TestTheCursorHoldsWhatCanBeSent(t *testing.T) {
	t.Parallel()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	kept := &tail{env: &env{Streams: Streams{Out: out}}, cursor: filepath.Join(t.TempDir(), "at")}
	for _, id := range []string{"e-1", strings.Repeat("z", sse.MaxID+1), "a\x01b", ""} {
		if err := kept.handle(t.Context(), sse.Event{ID: id, Data: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		if got, err := readCursor(kept.cursor); err != nil || got != "e-1" {
			t.Errorf("after %.10q the file holds %.10q, %v", id, got, err)
		}
	}
}
