package sqlite

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/ossicle/ossicle/agent"
)

// typical is an entry of an ordinary size.
func typical() agent.Entry {
	return agent.Entry{
		Time: time.Now(), Kind: agent.EntryTool, Run: "run-1", ID: "call-1", Title: "run_code", Status: "completed",
		Text: "default/web: Pending -> Running", Input: json.RawMessage(`{"code":"await list_resources()"}`), Output: json.RawMessage(`[{"uri":"memo://notes"}]`),
	}
}

// BenchmarkAppend appends to a transcript that has room, and to a full one.
func BenchmarkAppend(b *testing.B) {
	batch := make([]agent.Entry, 16)
	for i := range batch {
		batch[i] = typical()
	}
	for name, c := range map[string]struct {
		o       *Options
		s       *SessionOptions
		entries int
	}{
		"one":          {nil, &SessionOptions{Entries: 1 << 40, Bytes: 1 << 40}, 1},
		"one, full":    {nil, &SessionOptions{Entries: 1000}, 1},
		"one, durable": {&Options{Durable: true}, nil, 1},
		"sixteen":      {nil, &SessionOptions{Entries: 1 << 40, Bytes: 1 << 40}, 16},
	} {
		b.Run(name, func(b *testing.B) {
			s := open(b, filepath.Join(b.TempDir(), "x.db"), c.o).Sessions(c.s)
			for b.Loop() {
				s.mustAppend(b, "s", batch[:c.entries]...)
			}
		})
	}
}

// BenchmarkList reads pages of a transcript of 100,000 entries.
func BenchmarkList(b *testing.B) {
	s := sessions(b, nil)
	batch := make([]agent.Entry, 1000)
	for i := range batch {
		batch[i] = typical()
	}
	for range 100 {
		s.mustAppend(b, "s", batch...)
	}
	for name, q := range map[string]agent.Query{
		"last 50":      {Limit: 50, Last: true},
		"last page":    {Last: true},
		"first page":   {},
		"50 after mid": {After: 50_000, Limit: 50},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if got := s.mustList(b, "s", q); len(got) != q.Page() {
					b.Fatal(len(got))
				}
			}
		})
	}
}
