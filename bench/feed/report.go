//go:build linux

package main

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
)

// report is the outcome of a run.
type report struct {
	Begun      time.Time  `json:"begun"`
	CPUs       int        `json:"cpus"`
	Go         string     `json:"go"`
	Sizes      string     `json:"sizes"`
	LoadBefore string     `json:"load_before"`
	LoadAfter  string     `json:"load_after"`
	Skipped    []skipped  `json:"skipped,omitempty"`
	Products   []*figures `json:"products"`
}

type skipped struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// figures are those of one product. Nil is what was not measured, or what it does
// not have.
type figures struct {
	Name   string   `json:"name"`
	Own    bool     `json:"own"`  // is ours
	Peer   bool     `json:"peer"` // is one to compare with
	Paced  *fanout  `json:"paced,omitempty"`
	Burst  *fanout  `json:"burst,omitempty"`
	TLSKiB *float64 `json:"tls_idle_kib_per_subscriber,omitempty"`
	Stuck  *stuck   `json:"stuck,omitempty"`
	Recent *resume  `json:"resume_recent,omitempty"`
	Missed *resume  `json:"resume_missed,omitempty"`
	Failed []string `json:"failed,omitempty"`
}

// line is a line of the table.
type line struct {
	title string
	value func(*figures) (float64, bool)
	more  bool // is better
	ratio bool // to the better of the peers is worth telling
}

func of[T any](part func(*figures) *T, value func(*T) float64) func(*figures) (float64, bool) {
	return func(f *figures) (float64, bool) {
		p := part(f)
		if p == nil {
			return 0, false
		}
		return value(p), true
	}
}

func lines() []line {
	paced := func(f *figures) *fanout { return f.Paced }
	burst := func(f *figures) *fanout { return f.Burst }
	hung := func(f *figures) *stuck { return f.Stuck }
	recent := func(f *figures) *resume { return f.Recent }
	missed := func(f *figures) *resume { return f.Missed }
	return []line{
		{"idle KiB/subscriber", of(paced, func(f *fanout) float64 { return f.IdleKiB }), false, true},
		{"  behind the paced events", of(paced, func(f *fanout) float64 { return f.AfterKiB }), false, true},
		{"  idle over TLS", func(f *figures) (float64, bool) {
			if f.TLSKiB == nil {
				return 0, false
			}
			return *f.TLSKiB, true
		}, false, true},
		{"connects/s", of(paced, func(f *fanout) float64 { return f.ConnectPerSec }), true, true},
		{"paced: server CPU us/delivery", of(paced, func(f *fanout) float64 { return f.CPUMicros }), false, true},
		{"  p50 ms", of(paced, func(f *fanout) float64 { return f.P50 }), false, true},
		{"  p99 ms", of(paced, func(f *fanout) float64 { return f.P99 }), false, true},
		{"  lost", of(paced, func(f *fanout) float64 { return float64(f.Lost) }), false, false},
		{"burst: deliveries/s", of(burst, func(f *fanout) float64 { return f.PerSecond }), true, true},
		{"  server CPU us/delivery", of(burst, func(f *fanout) float64 { return f.CPUMicros }), false, true},
		{"  load client CPU us/delivery", of(burst, func(f *fanout) float64 { return f.ClientMicros }), false, false},
		{"  p50 ms", of(burst, func(f *fanout) float64 { return f.P50 }), false, true},
		{"  p99 ms", of(burst, func(f *fanout) float64 { return f.P99 }), false, true},
		{"  lost", of(burst, func(f *fanout) float64 { return float64(f.Lost) }), false, false},
		{"stuck: lost by the others", of(hung, func(s *stuck) float64 { return float64(s.Lost) }), false, false},
		{"  p99 ms of the others", of(hung, func(s *stuck) float64 { return s.P99 }), false, true},
		{"  cut after s (-1: never)", of(hung, func(s *stuck) float64 { return s.Gone }), false, false},
		{"  KiB held by the kernel", of(hung, func(s *stuck) float64 { return s.HeldKiB }), false, true},
		{"  KiB the server grew", of(hung, func(s *stuck) float64 { return s.GrownKiB }), false, false},
		{"resume, few: first event ms", of(recent, func(r *resume) float64 { return r.First }), false, true},
		{"  worst ms", of(recent, func(r *resume) float64 { return r.FirstWorst }), false, true},
		{"  got in one connection", of(recent, func(r *resume) float64 { return float64(r.Got) }), true, false},
		{"resume, many: first event ms", of(missed, func(r *resume) float64 { return r.First }), false, true},
		{"  worst ms", of(missed, func(r *resume) float64 { return r.FirstWorst }), false, true},
		{"  got in one connection", of(missed, func(r *resume) float64 { return float64(r.Got) }), true, false},
		{"  last event ms (0: never)", of(missed, func(r *resume) float64 { return r.All }), false, false},
	}
}

// print writes the table. Its last columns are our figures to that of the better
// peer.
func (r *report) print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "%s, %d CPUs, %s, load %s before and %s after\n%s\n", r.Begun.Format(time.RFC3339), r.CPUs, r.Go, r.LoadBefore, r.LoadAfter, r.Sizes)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	cell := func(text string) { _, _ = fmt.Fprintf(t, "%s\t", text) }
	cell("")
	for _, f := range r.Products {
		cell(f.Name)
	}
	for _, f := range r.Products {
		if f.Own {
			cell(f.Name + " : better peer")
		}
	}
	_, _ = fmt.Fprintln(t)
	for _, l := range lines() {
		cell(l.title)
		better := math.NaN()
		for _, f := range r.Products {
			v, ok := l.value(f)
			if !ok {
				cell("-")
				continue
			}
			cell(number(v))
			if f.Peer && (math.IsNaN(better) || l.more && v > better || !l.more && v < better) {
				better = v
			}
		}
		for _, f := range r.Products {
			v, ok := l.value(f)
			switch {
			case !f.Own:
			case l.ratio && ok && better > 0:
				cell(number(v / better))
			default:
				cell("")
			}
		}
		_, _ = fmt.Fprintln(t)
	}
	_ = t.Flush()
	for _, s := range r.Skipped {
		_, _ = fmt.Fprintf(w, "skipped %s: %s\n", s.Name, s.Why)
	}
	for _, f := range r.Products {
		for _, why := range f.Failed {
			_, _ = fmt.Fprintf(w, "failed %s: %s\n", f.Name, why)
		}
		for scene, m := range map[string]*fanout{"paced": f.Paced, "burst": f.Burst} {
			if m != nil && m.Refused != "" {
				_, _ = fmt.Fprintf(w, "%s, %s: it did not acknowledge every event: %.300s\n", f.Name, scene, m.Refused)
			}
		}
	}
}

func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
