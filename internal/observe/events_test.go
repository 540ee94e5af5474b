package observe

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/sse"
)

type event struct{ Name, Data string }

func push(chunks ...[]byte) []event {
	var (
		s   events
		all []event
	)
	for _, c := range chunks {
		s.add(c, func(name string, data []byte) { all = append(all, event{name, string(data)}) })
	}
	return all
}

const aStream = ": hi\n\nevent: endpoint\ndata: /x?a=b\n\ndata:1\r\ndata: 2\r\n\r\nid: 3\rdata\rdata:  two\r\rdata: {\"a\":1}\n\nevent: none\n\ndata: lost"

// However the bytes are cut, the events are those.
func TestEventsEverySplit(t *testing.T) {
	t.Parallel()
	want := []event{{"endpoint", "/x?a=b"}, {"", "1\n2"}, {"", "\n two"}, {"", `{"a":1}`}}
	for i := range len(aStream) {
		if d := cmp.Diff(want, push([]byte(aStream[:i]), []byte(aStream[i:]))); d != "" {
			t.Fatalf("split at %d: %s", i, d)
		}
	}
}

func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	got := push([]byte("data: "+strings.Repeat("x", 2*maxFrame)), []byte(strings.Repeat("y", 100)+"\n\ndata: z\n\n"))
	if len(got) != 2 || len(got[0].Data) > maxFrame || got[1].Data != "z" {
		t.Errorf("%d events", len(got))
	}
}

// What we push is what our own reader pulls.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(aStream), 5)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		if bytes.HasPrefix(b, []byte("\xEF\xBB\xBF")) {
			return // a byte order mark is of no use in MCP
		}
		var want []event
		r := sse.NewReader(bytes.NewReader(b), 0)
		for {
			e, err := r.Next()
			if errors.Is(err, io.EOF) || err != nil {
				break
			}
			if len(e.Data) > 0 {
				want = append(want, event{e.Type, string(e.Data)})
			}
		}
		at = min(max(at, 0), len(b))
		var got []event
		for _, e := range push(b[:at], b[at:]) {
			got = append(got, event{strings.ToValidUTF8(e.Name, "\uFFFD"), e.Data})
		}
		if len(got) != len(want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
