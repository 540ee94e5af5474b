package feed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Defaults of DigestOptions, and bounds of what a digest shows.
const (
	DefaultBuffer = 200
	DefaultTokens = 120

	digestRecent = 5   // events that are shown
	digestLine   = 160 // characters of one of them
	digestTypes  = 8   // types that are named
	digestKnown  = 256 // types that are counted apart
	digestName   = 40  // characters of a type
	digestExtra  = 14  // tokens that each type after the first adds to the limit
)

// DigestOptions adjust a Digest. Zero fields take the defaults.
type DigestOptions struct {
	// Buffer is how many undelivered events count as kept. Those before them are
	// told as dropped.
	Buffer int
	// Tokens bounds the block when all events have one type. The events that are
	// shown are cut shorter until it fits.
	Tokens int
}

// Digest collects the events that a listener has not been told of, and renders
// them as one block of bounded size (specification F-29). It is safe for
// concurrent use.
type Digest struct {
	o DigestOptions

	mu     sync.Mutex
	total  int
	counts map[string]int
	others int         // events of types beyond digestKnown
	recent [][2]string // types, and keys with data, of the last ones, cut
	lost   bool        // some are missing, nobody knows how many
}

// NewDigest returns an empty digest.
func NewDigest(o *DigestOptions) *Digest {
	d := &Digest{counts: map[string]int{}}
	if o != nil {
		d.o = *o
	}
	if d.o.Buffer <= 0 {
		d.o.Buffer = DefaultBuffer
	}
	if d.o.Tokens <= 0 {
		d.o.Tokens = DefaultTokens
	}
	return d
}

// Add counts an event. What it keeps of it is at most a line.
func (d *Digest) Add(e Event) {
	text := string(e.Data)
	if e.Key != "" {
		text = cut(e.Key, digestName) + " " + text
	}
	line := [2]string{cut(e.Type, digestName), cut(text, digestLine)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total++
	if _, known := d.counts[e.Type]; known || len(d.counts) < digestKnown {
		d.counts[e.Type]++
	} else {
		d.others++
	}
	if len(d.recent) == digestRecent {
		d.recent = slices.Delete(d.recent, 0, 1)
	}
	d.recent = append(d.recent, line)
}

// AddGap counts events that were lost on the way here, where their number is
// known, and otherwise has the block say that some are missing.
func (d *Digest) AddGap(g Gap) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total += int(g.Dropped)
	d.others += int(g.Dropped)
	d.lost = d.lost || g.Dropped == 0
}

// lostNote ends the first line of a block before which events are missing.
const lostNote = " (events before these are missing: they are no longer kept, or the log is another one)"

// Render returns the block and begins anew, in one step: every event is in
// exactly one block. No events are the empty string.
func (d *Digest) Render() string {
	d.mu.Lock()
	total, counts, others, recent, lost := d.total, d.counts, d.others, d.recent, d.lost
	d.total, d.counts, d.others, d.recent, d.lost = 0, map[string]int{}, 0, nil, false
	d.mu.Unlock()
	if total == 0 && !lost {
		return ""
	}
	head := "Since your last message: " + renderCounts(counts, others)
	if total == 0 {
		return "Since your last message: events that are missing: they are no longer kept, or the log is another one."
	}
	if lost {
		head += lostNote
	}
	if dropped := total - d.o.Buffer; dropped > 0 {
		head += fmt.Sprintf(" (%d older events dropped)", dropped)
	}
	head += ".\nMost recent:"
	limit := d.o.Tokens + digestExtra*min(len(counts)-1, digestTypes)
	for width := digestLine + digestName + len(": "); ; width -= 4 {
		var b strings.Builder
		b.WriteString(head)
		for _, line := range recent {
			text := line[0] + ": " + line[1]
			if len(counts) == 1 { // they are all of it
				text = line[1]
			}
			b.WriteString("\n- " + cut(text, width))
		}
		block := b.String()
		if tokens(block) <= limit || width <= digestName/2 {
			return block
		}
	}
}

// renderCounts names the most frequent types.
func renderCounts(counts map[string]int, others int) string {
	types := make([]string, 0, len(counts))
	for t := range counts {
		types = append(types, t)
	}
	slices.SortFunc(types, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var parts []string
	for i, t := range types {
		if i < digestTypes {
			parts = append(parts, fmt.Sprintf("%d x %s", counts[t], cut(t, digestName)))
		} else {
			others += counts[t]
		}
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("%d x others", others))
	}
	return strings.Join(parts, ", ")
}

// cut shortens s to so many characters, without breaking one.
func cut(s string, characters int) string {
	if len(s) <= characters {
		return s
	}
	for i := range s {
		if characters == 0 {
			return s[:i]
		}
		characters--
	}
	return s
}

// tokens is how many tokens s is at most for the usual encodings, roughly: a word
// is one for each four letters, a number one for each three digits, and of
// punctuation each two; of other scripts each byte may be one.
func tokens(s string) int {
	count, run, kind := 0, 0, 0
	flush := func() {
		per := [...]int{1, 4, 3, 2}[kind]
		count, run = count+(run+per-1)/per, 0
	}
	for _, r := range s {
		k := 3
		switch {
		case r >= utf8.RuneSelf:
			flush()
			count += utf8.RuneLen(r)
			continue
		case r == ' ':
			continue // goes with the word behind it
		case r >= '0' && r <= '9':
			k = 2
		case r|0x20 >= 'a' && r|0x20 <= 'z':
			k = 1
		}
		if k != kind {
			flush()
			kind = k
		}
		run++
	}
	flush()
	return count
}
