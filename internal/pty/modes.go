package pty

import (
	"fmt"
	"slices"
)

// followed are the private modes that a fresh viewer must be brought into: cursor
// keys, mouse, focus, the alternate screen, bracketed paste, the cursor.
var followed = []int{1, 9, 25, 47, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1047, 1049, 2004}

// modeCursor is on unless the program has hidden the cursor.
const (
	modeCursor = 25
	modePaste  = 2004
	modeOther  = 1049 // the alternate screen
)

// modes are those that the program has set, or has ended where they are on by
// themselves.
type modes struct{ changed []int }

func (m *modes) set(mode int, on bool) {
	if !slices.Contains(followed, mode) {
		return
	}
	m.changed = slices.DeleteFunc(m.changed, func(n int) bool { return n == mode })
	if on != (mode == modeCursor) {
		m.changed = append(m.changed, mode)
	}
}

func (m *modes) is(mode int) bool {
	return slices.Contains(m.changed, mode) != (mode == modeCursor)
}

// state is how a mode is reported: 1 set, 2 not set, 0 not known.
func (m *modes) state(mode int) int {
	switch {
	case !slices.Contains(followed, mode):
		return 0
	case m.is(mode):
		return 1
	}
	return 2
}

// restore are the bytes that bring a fresh terminal into the modes.
func (m *modes) restore() []byte {
	var b []byte
	for _, mode := range m.changed {
		b = fmt.Appendf(b, "\x1b[?%d%c", mode, map[bool]byte{true: 'h', false: 'l'}[mode != modeCursor])
	}
	return b
}
