package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// times are durations of one kind.
type times []time.Duration

func (t *times) add(d time.Duration) { *t = append(*t, d) }

// at is a quantile in milliseconds.
func (t times) at(q float64) float64 {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]) / float64(time.Millisecond)
}

// result is what was measured.
type result struct {
	Sessions int

	postOnly, pipeOnly, floor times // baselines
	written, read             times // one notice at a time
	burst                     times // written, all sessions at one instant
}

func (r *result) print(asJSON bool) error {
	rows := []struct {
		name string
		t    times
	}{
		{"post alone", r.postOnly},
		{"bare pipe, read", r.pipeOnly},
		{"post alone + bare write", r.floor},
		{"notice to prompt written", r.written},
		{"notice to prompt read", r.read},
		{"all at once, written", r.burst},
	}
	ratio := r.written.at(0.5) / r.floor.at(0.5)
	if asJSON {
		out := map[string]any{"sessions": r.Sessions, "ratio_p50": ratio}
		for _, row := range rows {
			out[row.name] = map[string]float64{"n": float64(len(row.t)), "p50_ms": row.t.at(0.5), "p99_ms": row.t.at(0.99), "max_ms": row.t.at(1)}
		}
		return json.NewEncoder(os.Stdout).Encode(out)
	}
	fmt.Printf("%d sessions\n%-26s %6s %9s %9s %9s\n", r.Sessions, "ms", "n", "p50", "p99", "max")
	for _, row := range rows {
		fmt.Printf("%-26s %6d %9.3f %9.3f %9.3f\n", row.name, len(row.t), row.t.at(0.5), row.t.at(0.99), row.t.at(1))
	}
	_, err := fmt.Printf("notice to prompt written / (post alone + bare write), p50: %.1f\n", ratio)
	return err
}
