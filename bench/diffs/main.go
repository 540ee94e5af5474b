// Command diffs compares the state diff of the watch engine with a general JSON
// diff library on the same pair of documents: a list of 10,000 items of which
// one has changed. Ours reads the new document and compares it with what is
// kept of the old one, as the engine does at each update; the library gets both
// texts, as it must. They take turns, and the figure that counts is the ratio.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wI2L/jsondiff"

	"github.com/ossicle/ossicle/watch"
)

func main() {
	rounds := flag.Int("rounds", 15, "rounds, in turns")
	items := flag.Int("items", 10_000, "items of the list")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	if err := run(*rounds, *items, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "diffs:", err)
		os.Exit(1)
	}
}

type row struct {
	ItemBytes int     `json:"item_bytes"`
	OursMS    float64 `json:"ours_ms"`
	LibraryMS float64 `json:"library_ms"`
}

func run(rounds, items int, asJSON bool) error {
	var rows []row
	for _, padding := range []int{60, 900} {
		before, after := document(items, padding, -1), document(items, padding, items/2)
		prev := watch.ParseState(before, nil)
		var ours, library []float64
		for range rounds {
			start := time.Now()
			if events := watch.Diff(prev, watch.ParseState(after, prev)); len(events) != 1 {
				return fmt.Errorf("ours found %d events", len(events))
			}
			ours = append(ours, since(start))
			start = time.Now()
			patch, err := jsondiff.CompareJSON(before, after)
			if err != nil || len(patch) != 1 {
				return fmt.Errorf("the library found %d changes: %w", len(patch), err)
			}
			library = append(library, since(start))
		}
		rows = append(rows, row{len(before) / items, median(ours), median(library)})
	}
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(rows)
	}
	fmt.Printf("%10s %10s %12s %8s\n", "item bytes", "ours ms", "library ms", "faster")
	for _, r := range rows {
		fmt.Printf("%10d %10.2f %12.2f %7.1fx\n", r.ItemBytes, r.OursMS, r.LibraryMS, r.LibraryMS/r.OursMS)
	}
	return nil
}

func since(t time.Time) float64 { return float64(time.Since(t)) / float64(time.Millisecond) }

func median(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }

// document is a list of items with ids, one of which has another phase.
func document(items, padding, changed int) []byte {
	var b strings.Builder
	b.WriteByte('[')
	for i := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		phase := "Running"
		if i == changed {
			phase = "Failed"
		}
		fmt.Fprintf(&b, `{"metadata":{"uid":"u-%06d","name":"item-%06d"},"status":{"phase":%q,"restarts":%d},"note":%q}`,
			i, i, phase, i%7, strings.Repeat("x", padding))
	}
	b.WriteByte(']')
	return []byte(b.String())
}
