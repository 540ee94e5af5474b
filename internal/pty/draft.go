package pty

// draft follows whether a person has begun a line and not sent it: a prompt that is
// typed then would become part of it. It counts what can be seen; what keys and
// menus of a program do to its input is not known.
type draft struct {
	n     int  // characters, about
	esc   byte // of a key that is not whole: 0, ESC, '[' or 'O'
	paste bool
	code  []byte
}

const (
	keyInterrupt = 0x03 // Ctrl-C
	keyKill      = 0x15 // Ctrl-U
	keyEscape    = 0x1b
)

func (d *draft) typed(p []byte) {
	for _, c := range p {
		d.key(c)
	}
}

func (d *draft) key(c byte) {
	switch d.esc {
	case keyEscape:
		d.esc, d.code = 0, d.code[:0]
		if c == '[' || c == 'O' {
			d.esc = c
		}
		return
	case 'O':
		d.esc = 0
		return
	case '[':
		if c < 0x40 || c > 0x7e {
			if len(d.code) < 16 {
				d.code = append(d.code, c)
			}
			return
		}
		d.esc = 0
		if c == '~' && string(d.code) == "200" {
			d.paste = true
		} else if c == '~' && string(d.code) == "201" {
			d.paste = false
		}
		return
	}
	switch {
	case c == keyEscape:
		d.esc = keyEscape
	case d.paste:
		d.n++
	case c == '\r', c == '\n', c == keyInterrupt, c == keyKill:
		d.n = 0
	case c == 0x7f, c == '\b':
		d.n = max(0, d.n-1)
	case c >= ' ' && c&0xc0 != 0x80:
		d.n++
	}
}

func (d *draft) begun() bool { return d.n > 0 }
