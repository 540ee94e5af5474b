package mcpserver

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// all reads all lines; a long one is its size in brackets.
func allLines(t testing.TB, r io.Reader, limit int) []string {
	t.Helper()
	lines := newLineReader(r, limit)
	var got []string
	for {
		line, err := lines.next()
		var long *tooLongError
		switch {
		case errors.As(err, &long):
			got = append(got, "long")
			if len(long.head) > keptHead || len(long.tail) > keptTail {
				t.Errorf("%d and %d bytes are kept", len(long.head), len(long.tail))
			}
		case errors.Is(err, io.EOF):
			return got
		case err != nil:
			t.Fatal(err)
		default:
			got = append(got, string(line))
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	x := strings.Repeat
	for in, want := range map[string][]string{
		"":                         nil,
		"a\nb\r\n\n \nc":           {"a", "b", "c"},
		x("x", 10) + "\n":          {x("x", 10)},
		x("x", 10) + "\r\nb":       {x("x", 10), "b"},
		x("x", 11) + "\nb\n":       {"long", "b"},
		x("x", 200_000) + "\nb":    {"long", "b"},
		"a\n" + x("x", 200_000):    {"a", "long"},
		x("x", 11):                 {"long"},
		x(x("x", 200_000)+"\n", 3): {"long", "long", "long"},
	} {
		if diff := cmp.Diff(want, allLines(t, strings.NewReader(in), 10)); diff != "" {
			t.Errorf("%.20q (-want +got):\n%s", in, diff)
		}
		if diff := cmp.Diff(want, allLines(t, iotest.OneByteReader(strings.NewReader(in)), 10)); diff != "" {
			t.Errorf("%.20q byte by byte (-want +got):\n%s", in, diff)
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\nccccccccccccc\nd"), 5)
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		if limit < 1 || limit > 1000 {
			return
		}
		var want []string
		for line := range bytes.SplitSeq(data, []byte{'\n'}) {
			whole := len(bytes.TrimRight(line, "\r"))
			switch line = bytes.TrimSpace(line); {
			case whole > limit:
				want = append(want, "long")
			case len(line) > 0:
				want = append(want, string(line))
			}
		}
		if diff := cmp.Diff(want, allLines(t, bytes.NewReader(data), limit)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
