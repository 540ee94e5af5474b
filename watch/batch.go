package watch

import (
	"fmt"
	"time"
)

// batch gathers the lines of one watch between two notices (specification
// W-101, W-120 to W-124).
type batch struct {
	limits *Limits
	lines  []countedLine
	index  map[string]int
	extra  int // lines beyond Limits.PendingLines: counted, not kept
	first  time.Time
	// fellBack says that an event whose filter failed already has its default
	// line in this batch (WA-17).
	fellBack bool
}

type countedLine struct {
	text  string
	count int
}

// add puts a line in and returns when the batch is to leave.
func (b *batch) add(line string, now time.Time) (due time.Time) {
	if b.empty() {
		b.first = now
	}
	if i, ok := b.index[line]; ok {
		b.lines[i].count++
	} else if len(b.lines) < b.limits.PendingLines {
		if b.index == nil {
			b.index = map[string]int{}
		}
		b.index[line] = len(b.lines)
		b.lines = append(b.lines, countedLine{line, 1})
	} else {
		b.extra++
	}
	due = now.Add(b.limits.Quiet)
	if last := b.first.Add(b.limits.MaxWait); due.After(last) {
		return last
	}
	return due
}

func (b *batch) empty() bool { return len(b.lines) == 0 }

// take empties the batch into the lines of a notice: equal lines are one, at
// the first one's place, and what is over the limit is counted (W-122, WA-20).
func (b *batch) take() []string {
	shown := min(len(b.lines), b.limits.Lines)
	lines := make([]string, 0, shown+1)
	for _, l := range b.lines[:shown] {
		if l.count > 1 {
			l.text = fmt.Sprintf("%s ×%d", l.text, l.count)
		}
		lines = append(lines, l.text)
	}
	if left := len(b.lines) - shown + b.extra; left > 0 {
		lines = append(lines, fmt.Sprintf("+%d more", left))
	}
	*b = batch{limits: b.limits}
	return lines
}
