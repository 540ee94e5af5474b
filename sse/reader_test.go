package sse

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func readEvents(r io.Reader, limit int) (events []string, comments int, err error) {
	e := NewReader(r, limit)
	e.Comment = func() { comments++ }
	for {
		ev, err := e.Next()
		if err != nil {
			return events, comments, err
		}
		events = append(events, ev.Type+"|"+ev.ID+"|"+string(ev.Data))
	}
}

// F-24, B-001, B-002, B-004.
func TestReaderRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in string
		want     []string
		comments int
	}{
		{"line ends of all kinds", "data: A\r\ndata: B\rdata: C\n\r\n", []string{"message||A\nB\nC"}, 0},
		{"only CR", "data: A\r\rdata: B\r\r", []string{"message||A", "message||B"}, 0},
		{"CRLF is one end", "data: A\r\ndata: B\r\n\r\n", []string{"message||A\nB"}, 0},
		{"line without colon is an empty field", "data\n\n", []string{"message||"}, 0},
		{"unknown line without colon", "nonsense\ndata: x\n\n", []string{"message||x"}, 0},
		{"one space is taken off", "data:  two\ndata:none\n\n", []string{"message|| two\nnone"}, 0},
		{"half an event is dropped", "data: whole\n\ndata: half\n", []string{"message||whole"}, 0},
		{"half a line is dropped", "data: whole\n\ndata: ha", []string{"message||whole"}, 0},
		{"byte order mark", "\uFEFFdata: x\n\n", []string{"message||x"}, 0},
		{"only one byte order mark", "\uFEFF\uFEFFdata: x\n\n", nil, 0},
		{"half a byte order mark", "\xEF\xBBdata: x\n\ndata: y\n\n", []string{"message||y"}, 0},
		{"comments", ": ka\n\n:\ndata: x\n:ka\n\n", []string{"message||x"}, 3},
		{"type and id", "event: up\nid: 7\ndata: x\n\ndata: y\n\n", []string{"up|7|x", "message|7|y"}, 0},
		{"id with NUL is ignored", "id: a\x00b\ndata: x\n\n", []string{"message||x"}, 0},
		{"no data, no event", "event: up\nid: 7\n\ndata: x\n\n", []string{"message|7|x"}, 0},
		{"empty id resets", "id: 7\ndata: x\n\nid\ndata: y\n\n", []string{"message|7|x", "message||y"}, 0},
		{"colon in the value", "data: a:b\n\n", []string{"message||a:b"}, 0},
		{"field names match by case", "Data: x\n\ndata: y\n\n", []string{"message||y"}, 0},
		{"empty", "", nil, 0},
	} {
		got, comments, err := readEvents(strings.NewReader(tt.in), 0)
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: error %v, want io.EOF", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || comments != tt.comments {
			t.Errorf("%s: %d comments, events (-want +got):\n%s", tt.name, comments, diff)
		}
	}
}

func TestReaderAll(t *testing.T) {
	t.Parallel()
	e := NewReader(strings.NewReader("id: 7\nretry: 500\n\nretry: 5x\n\n: c\n\nevent: up\n\ndata: x\n\n"), 0)
	e.All = true
	var got []Event
	for {
		ev, err := e.Next()
		if err != nil {
			break
		}
		got = append(got, ev)
	}
	want := []Event{{Type: "message", ID: "7", Retry: "500"}, {Type: "message", ID: "7", Data: []byte("x")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// chunks is a reader that returns what it is told to, piece by piece.
type chunks [][]byte

func (c *chunks) Read(p []byte) (int, error) {
	for len(*c) > 0 && len((*c)[0]) == 0 {
		*c = (*c)[1:]
	}
	if len(*c) == 0 {
		return 0, io.EOF
	}
	n := copy(p, (*c)[0])
	(*c)[0] = (*c)[0][n:]
	return n, nil
}

// F-24, B-001, B-002.
func TestReaderEverySplit(t *testing.T) {
	t.Parallel()
	const in = "\uFEFF: hi\r\nevent: é\r\nid: 1\rdata: {\"a\":\"é\"}\r\ndata:B\r\n\r\n\r\ndata\n\ndata: 日本\r\rdata: cut"
	want, comments, _ := readEvents(strings.NewReader(in), 0)
	if len(want) != 3 || comments != 1 {
		t.Fatalf("events %q, comments %d", want, comments)
	}
	for i := range len(in) {
		for j := i; j <= len(in); j++ {
			got, _, err := readEvents(&chunks{[]byte(in[:i]), []byte(in[i:j]), []byte(in[j:])}, 0)
			if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, io.EOF) {
				t.Fatalf("split at %d and %d: %v (-want +got):\n%s", i, j, err, diff)
			}
		}
	}
}

// B-001: an event that ends with a bare CR is handed out before the next byte.
func TestReaderDoesNotWaitForLF(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	go func() { _, _ = w.Write([]byte("data: x\r\r")) }()
	defer func() { _ = w.Close() }()
	if ev, err := NewReader(r, 0).Next(); err != nil || string(ev.Data) != "x" {
		t.Fatalf("event %q, error %v", ev.Data, err)
	}
}

// F-24, M-16: no peer makes the reader hold more than its limit.
func TestReaderLimit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	for name, in := range map[string]string{
		"one line":       "data: " + long + "\n\n",
		"many lines":     strings.Repeat("data: xxxxxxxx\n", 20) + "\n",
		"endless line":   long,
		"useless fields": strings.Repeat("nope: xxxxxxxx\n", 20) + "\n",
	} {
		if _, _, err := readEvents(strings.NewReader(in), 100); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: error %v, want ErrTooLarge", name, err)
		}
	}
	many := strings.Repeat(": keep-alive\n", 100) + "data: x\n\n" + strings.Repeat("data: y\n\n", 100)
	if got, _, err := readEvents(strings.NewReader(many), 100); !errors.Is(err, io.EOF) || len(got) != 101 {
		t.Errorf("comments or small events count against the limit: %d events, %v", len(got), err)
	}
}

// FuzzReader holds that no split of the bytes changes what is read.
func FuzzReader(f *testing.F) {
	f.Add([]byte("data: A\r\ndata: B\r\rid: 7\nevent: x\ndata\n\n"))
	f.Add([]byte("\xEF\xBB\xBF: c\r\ndata:  é\xff\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		want, _, werr := readEvents(bytes.NewReader(in), 1<<10)
		got, _, gerr := readEvents(iotest.OneByteReader(bytes.NewReader(in)), 1<<10)
		if diff := cmp.Diff(want, got); diff != "" || errors.Is(werr, ErrTooLarge) != errors.Is(gerr, ErrTooLarge) {
			t.Fatalf("byte by byte differs: %v, %v (-whole +bytes):\n%s", werr, gerr, diff)
		}
	})
}

// F-24: the id to resume after is that of the last blank line, whatever stands
// after it.
func TestReaderLastID(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"id: 1\ndata: a\n\nid: 2\ndata: cut":         "1",
		"id: 1\ndata: a\n\nid: 2\n\n":                "2",
		"id: 1\ndata: a\n\nid: 2\n: heartbeat\n\n":   "2",
		"id: 1\ndata: a\n\nid: 2\x003\ndata: b\n\n":  "1",
		"id: 1\ndata: a\n\nid\ndata: b\n\ndata: c\n": "",
		"data: a\n\n": "",
	} {
		r := NewReader(strings.NewReader(in), 0)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
		if r.LastID() != want {
			t.Errorf("%q: got %q, want %q", in, r.LastID(), want)
		}
	}
}
