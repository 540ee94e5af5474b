package pageserver

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// The shapes of frames are a contract with the page: they change only together
// with this file.
func TestGoldenFrames(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	write := func(f *Frame, err error) {
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(f.text, '\n'))
	}
	write(resultFrame(1, map[string]any{"sessions": []int{}}))
	write(resultFrame(9007199254740993, struct{}{}))
	for _, err := range []error{
		errForbidden(), Errorf(CodeNotFound, "there is none"), errors.New("<it> broke & \u2028"), errTooManyCalls(), errRefusedOf(t, `{"id":2,"action":"mcp.tools/call"}`),
	} {
		write(errorFrame(2, told(err)), nil)
	}
	write(errorFrame(0, told(errRefusedOf(t, `{`))), nil)
	write(NewFrame(Topic{Sessions, ""}, "sessions.removed", map[string]string{"id": "a"}))
	write(NewFrame(Topic{Session, "a"}, "session.update", map[string]string{"text": "<script>é\U0001F600\xff"}))
	write(gapFrame(Topic{Terminal, "a:b"}), nil)
	path := filepath.Join("testdata", "frames.ndjson")
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil { //nolint:gosec // a golden file
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Error(d)
	}
}

func errRefusedOf(t *testing.T, text string) error {
	t.Helper()
	_, err := parseRequest([]byte(text))
	if err == nil {
		t.Fatalf("%s is a request", text)
	}
	return err
}
