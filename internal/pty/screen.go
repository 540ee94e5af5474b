package pty

import (
	"hash/maphash"
	"strings"
)

// screen is what the terminal shows, as text: enough of one to know where the
// cursor is and what stands where. Colours and the like are not followed.
type screen struct {
	cols, rows  int
	cells       [][]rune // 0: nothing was written there
	other       [][]rune // of the screen that is not shown
	alternate   bool
	x, y        int
	top, bottom int // scroll region, rows
	wrap        bool
	saved       [2]struct{ x, y int }
	seed        maphash.Seed
}

func newScreen(cols, rows int) *screen {
	s := &screen{cols: cols, rows: rows, seed: maphash.MakeSeed()}
	s.cells, s.other = grid(cols, rows, nil), grid(cols, rows, nil)
	s.bottom = rows - 1
	return s
}

// grid makes cells of a size, with what fits of the old ones.
func grid(cols, rows int, old [][]rune) [][]rune {
	g := make([][]rune, rows)
	for y := range g {
		g[y] = make([]rune, cols)
		if y < len(old) {
			copy(g[y], old[y])
		}
	}
	return g
}

func (s *screen) resize(cols, rows int) {
	s.cells, s.other = grid(cols, rows, s.cells), grid(cols, rows, s.other)
	s.cols, s.rows = cols, rows
	s.top, s.bottom = 0, rows-1
	s.move(s.x, s.y)
}

// reset is what a new program finds.
func (s *screen) reset() { *s = *newScreen(s.cols, s.rows) }

func (s *screen) move(x, y int) {
	s.x, s.y, s.wrap = clamp(x, s.cols-1), clamp(y, s.rows-1), false
}

func clamp(n, most int) int { return max(0, min(n, most)) }

// put prints a rune at the cursor.
func (s *screen) put(r rune) {
	w := width(r)
	if w == 0 {
		return // joins the one before
	}
	if s.wrap || s.x+w > s.cols {
		s.x, s.wrap = 0, false
		s.feed()
	}
	s.cells[s.y][s.x] = r
	if w == 2 && s.x+1 < s.cols {
		s.cells[s.y][s.x+1] = 0
	}
	if s.x += w; s.x >= s.cols {
		s.x, s.wrap = s.cols-1, true
	}
}

// feed goes down a line, and scrolls at the end of the region.
func (s *screen) feed() {
	switch {
	case s.y == s.bottom:
		s.scroll(s.top, 1)
	case s.y < s.rows-1:
		s.y++
	}
}

func (s *screen) reverse() {
	switch {
	case s.y == s.top:
		s.scroll(s.top, -1)
	case s.y > 0:
		s.y--
	}
}

// scroll moves the lines from one to the end of the region up by n, or down.
func (s *screen) scroll(from, n int) {
	if from > s.bottom {
		return
	}
	lines := s.cells[from : s.bottom+1]
	n = max(-len(lines), min(n, len(lines)))
	for range max(n, -n) {
		if n > 0 {
			first := lines[0]
			copy(lines, lines[1:])
			lines[len(lines)-1] = first
			clear(first)
		} else {
			last := lines[len(lines)-1]
			copy(lines[1:], lines)
			lines[0] = last
			clear(last)
		}
	}
}

// eraseLine clears a part of a line: 0 from the cursor on, 1 up to it, 2 all.
func (s *screen) eraseLine(how int) {
	line := s.cells[s.y]
	switch how {
	case 0:
		clear(line[s.x:])
	case 1:
		clear(line[:s.x+1])
	case 2:
		clear(line)
	}
}

func (s *screen) erase(how int) {
	s.eraseLine(how)
	from, to := 0, s.rows
	switch how {
	case 0:
		from = s.y + 1
	case 1:
		to = s.y
	case 2:
	default:
		return // what was scrolled away
	}
	for _, line := range s.cells[min(from, to):to] {
		clear(line)
	}
}

// shift makes room for n cells at the cursor, or takes away -n.
func (s *screen) shift(n int) {
	line := s.cells[s.y][s.x:]
	n = max(-len(line), min(n, len(line)))
	if n >= 0 {
		copy(line[n:], line)
		clear(line[:n])
		return
	}
	copy(line, line[-n:])
	clear(line[len(line)+n:])
}

// show changes between the two screens.
func (s *screen) show(alternate bool) {
	if s.alternate != alternate {
		s.alternate = alternate
		s.cells, s.other = s.other, s.cells
		if alternate {
			for _, line := range s.cells {
				clear(line)
			}
		}
	}
}

func (s *screen) save() { s.saved[slot(s.alternate)] = struct{ x, y int }{s.x, s.y} }

func (s *screen) restore() { p := s.saved[slot(s.alternate)]; s.move(p.x, p.y) }

func slot(alternate bool) int {
	if alternate {
		return 1
	}
	return 0
}

// text is what the screen shows, line by line, without blanks at the ends.
func (s *screen) text() string {
	lines := make([]string, 0, s.rows)
	for _, line := range s.cells {
		var b strings.Builder
		for x, r := range line {
			switch {
			case r != 0:
				b.WriteRune(r)
			case x > 0 && width(line[x-1]) == 2:
			default:
				b.WriteByte(' ')
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// sum tells screens apart that show different text.
func (s *screen) sum() uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, line := range s.cells {
		for _, r := range line {
			if r == 0 {
				r = ' '
			}
			_, _ = h.Write([]byte{byte(r), byte(r >> 8), byte(r >> 16)})
		}
	}
	return h.Sum64()
}

// width is how many cells a rune takes: 0 for what combines, 2 for what is wide in
// East Asia and for most emoji.
func width(r rune) int {
	switch {
	case r >= 0x300 && r <= 0x36f, r >= 0x200b && r <= 0x200f, r >= 0xfe00 && r <= 0xfe0f, r == 0xfeff, r >= 0xe0100 && r <= 0xe01ef:
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf && r != 0x303f, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1f64f, r >= 0x1f900 && r <= 0x1f9ff,
		r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}
