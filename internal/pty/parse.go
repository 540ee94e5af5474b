package pty

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of sequences that are looked at; longer ones pass, not understood.
const (
	maxControl = 128      // bytes of a control sequence
	maxString  = 64 << 10 // of a string that a sequence carries
	maxParams  = 16
	maxRepeat  = 1000 // of one cell or line
)

// parser follows the output of a program: it keeps the screen and the modes, and
// takes out the questions to the terminal, which it answers itself. A viewer would
// answer them late, again at each replay, and once for every viewer.
type parser struct {
	screen *screen
	modes  modes
	out    []byte // for viewers, of the current feed
	answer []byte // for the program, likewise
	held   []byte // a sequence, or a rune, that is not whole
	passed bool   // held is too long to be looked at: its rest passes
}

// feed takes output. What it returns is valid until the next call.
func (p *parser) feed(data []byte) (out, answer []byte) {
	p.out, p.answer = p.out[:0], p.answer[:0]
	for _, c := range data {
		p.byte(c)
	}
	return p.out, p.answer
}

func (p *parser) byte(c byte) {
	switch {
	case len(p.held) == 0:
		p.ground(c)
	case p.held[0] != 0x1b:
		p.rune(c)
	default:
		p.sequence(c)
	}
}

func (p *parser) ground(c byte) {
	switch {
	case c == 0x1b || c >= utf8.RuneSelf:
		p.held = append(p.held[:0], c)
		if c >= utf8.RuneSelf && !utf8.RuneStart(c) {
			p.flush() // no rune begins so
		}
		return
	case c >= ' ' && c != 0x7f:
		p.screen.put(rune(c))
	default:
		p.control(c)
	}
	p.out = append(p.out, c)
}

// rune gathers one of several bytes.
func (p *parser) rune(c byte) {
	if utf8.RuneStart(c) {
		p.screen.put(utf8.RuneError)
		p.flush()
		p.ground(c)
		return
	}
	p.held = append(p.held, c)
	if utf8.FullRune(p.held) {
		r, _ := utf8.DecodeRune(p.held)
		p.screen.put(r)
		p.flush()
	}
}

// flush lets what was held pass.
func (p *parser) flush() {
	p.out = append(p.out, p.held...)
	p.drop()
}

func (p *parser) drop() { p.held, p.passed = p.held[:0], false }

func (p *parser) control(c byte) {
	s := p.screen
	switch c {
	case '\r':
		s.move(0, s.y)
	case '\n', '\v', '\f':
		s.wrap = false
		s.feed()
	case '\b':
		s.move(s.x-1, s.y)
	case '\t':
		s.move(s.x/8*8+8, s.y)
	}
}

// sequence gathers what an escape begins.
func (p *parser) sequence(c byte) {
	if c == 0x18 || c == 0x1a { // the program breaks it off
		p.flush()
		return
	}
	h := p.held
	if len(h) == 1 {
		p.held = append(h, c)
		if !strings.ContainsRune("[]P_^X()*+#% ", rune(c)) {
			p.escape(c)
			p.flush()
		}
		return
	}
	switch h[1] {
	case '[':
		p.csi(c)
	case ']', 'P', '_', '^', 'X':
		p.text(c)
	default: // a character set and the like: one more byte
		p.held = append(h, c)
		p.flush()
	}
}

func (p *parser) escape(c byte) {
	s := p.screen
	switch c {
	case '7':
		s.save()
	case '8':
		s.restore()
	case 'D':
		s.feed()
	case 'E':
		s.move(0, s.y)
		s.feed()
	case 'M':
		s.reverse()
	case 'c':
		s.reset()
		p.modes = modes{}
	}
}

// csi gathers a control sequence.
func (p *parser) csi(c byte) {
	switch {
	case c == 0x1b: // the one before ends here
		p.flush()
		p.held = append(p.held, c)
		return
	case c < ' ':
		p.control(c)
		p.out = append(p.out, c)
		return
	}
	p.held = append(p.held, c)
	switch {
	case c >= 0x40 && c <= 0x7e:
		if len(p.held) <= maxControl && p.command(p.held[2:len(p.held)-1], c) {
			p.drop()
			return
		}
		p.flush()
	case len(p.held) > maxControl:
		p.flush()
	}
}

// text gathers a string up to its end: BEL, or ESC \.
func (p *parser) text(c byte) {
	h := p.held
	if p.passed { // only its end matters
		p.out = append(p.out, c)
		last := h[len(h)-1]
		p.held = append(h[:2], c)
		if c == 0x07 || last == 0x1b && c == '\\' {
			p.drop()
		}
		return
	}
	p.held = append(h, c)
	body, whole := p.held[2:], false
	switch {
	case c == 0x07:
		body, whole = body[:len(body)-1], true
	case len(body) >= 2 && body[len(body)-2] == 0x1b:
		if c != '\\' { // it ends, and another sequence has begun
			rest := []byte{0x1b, c}
			p.held = p.held[:len(p.held)-2]
			p.flush()
			for _, r := range rest {
				p.byte(r)
			}
			return
		}
		body, whole = body[:len(body)-2], true
	}
	switch {
	case whole:
		if p.query(h[1], body) {
			p.drop()
			return
		}
		p.flush()
	case len(p.held) > maxString:
		p.out = append(p.out, p.held...)
		p.held, p.passed = append(p.held[:2], c), true
	}
}

// query answers a question in a string, and reports whether it was one.
func (p *parser) query(kind byte, body []byte) bool {
	switch kind {
	case ']':
		head, value, _ := bytes.Cut(body, []byte{';'})
		if !bytes.HasSuffix(value, []byte{'?'}) {
			return false
		}
		switch string(head) {
		case "10":
			p.say("\x1b]10;rgb:d0d0/d0d0/d0d0\x1b\\")
		case "11":
			p.say("\x1b]11;rgb:1010/1010/1010\x1b\\")
		case "4", "12", "52": // the last would read somebody's clipboard
		default:
			return false
		}
		return true
	case 'P': // settings and capabilities
		return bytes.HasPrefix(body, []byte("+q")) || bytes.HasPrefix(body, []byte("$q"))
	}
	return false
}

func (p *parser) say(format string, args ...any) { p.answer = fmt.Appendf(p.answer, format, args...) }

// command does what a control sequence says, and reports whether it was a question.
func (p *parser) command(body []byte, final byte) (question bool) {
	private := byte(0)
	if len(body) > 0 && body[0] >= '<' && body[0] <= '?' {
		private, body = body[0], body[1:]
	}
	between := byte(0)
	for len(body) > 0 && body[len(body)-1] < '0' {
		between, body = body[len(body)-1], body[:len(body)-1]
	}
	n := params(body)
	switch {
	case between == '$' && final == 'p':
		p.report(private, n(0, 0))
		return true
	case between != 0:
		return false
	case private == 0:
		return p.plain(n, final)
	}
	return p.private(private, body, n, final)
}

// report says how a mode is, as far as that is followed.
func (p *parser) report(private byte, mode int) {
	if private == '?' {
		p.say("\x1b[?%d;%d$y", mode, p.modes.state(mode))
		return
	}
	p.say("\x1b[%d;0$y", mode)
}

func (p *parser) private(private byte, body []byte, n func(i, def int) int, final byte) bool {
	switch {
	case private == '?' && (final == 'h' || final == 'l'):
		for i := range min(bytes.Count(body, []byte{';'})+1, maxParams) {
			p.mode(n(i, 0), final == 'h')
		}
	case private == '?' && final == 'n': // cursor, colour scheme
		if n(0, 0) == 6 {
			p.say("\x1b[?%d;%d;1R", p.screen.y+1, p.screen.x+1)
		}
		return true
	case private == '?' && final == 'u', private == '>' && final == 'q': // which keyboard, which terminal: no answer is an answer
		return true
	case (private == '>' || private == '=') && final == 'c':
		if private == '>' {
			p.say("\x1b[>0;276;0c")
		}
		return true
	}
	return false
}

func (p *parser) mode(mode int, on bool) {
	s := p.screen
	switch mode {
	case 47, 1047:
		s.show(on)
	case 1048:
		if on {
			s.save()
		} else {
			s.restore()
		}
	case 1049:
		if on {
			s.save()
			s.show(true)
		} else {
			s.show(false)
			s.restore()
		}
	}
	p.modes.set(mode, on)
}

// plain does a command without a private mark.
func (p *parser) plain(n func(i, def int) int, final byte) (question bool) {
	s := p.screen
	one := max(1, min(n(0, 1), maxRepeat))
	switch final {
	case 'c':
		p.say("\x1b[?62;22c")
		return true
	case 'n':
		switch n(0, 0) {
		case 5:
			p.say("\x1b[0n")
		case 6:
			p.say("\x1b[%d;%dR", s.y+1, s.x+1)
		}
		return true
	case 't':
		return p.window(n(0, 0))
	case 'A':
		s.move(s.x, s.y-one)
	case 'B', 'e':
		s.move(s.x, s.y+one)
	case 'C', 'a':
		s.move(s.x+one, s.y)
	case 'D':
		s.move(s.x-one, s.y)
	case 'E':
		s.move(0, s.y+one)
	case 'F':
		s.move(0, s.y-one)
	case 'G', '`':
		s.move(one-1, s.y)
	case 'd':
		s.move(s.x, one-1)
	case 'H', 'f':
		s.move(n(1, 1)-1, one-1)
	default:
		p.edit(n, one, final)
	}
	return false
}

// edit does a command that changes what stands on the screen.
func (p *parser) edit(n func(i, def int) int, one int, final byte) {
	s := p.screen
	switch final {
	case 'J':
		s.erase(n(0, 0))
	case 'K':
		s.eraseLine(n(0, 0))
	case 'L':
		s.scroll(s.y, -one)
	case 'M':
		s.scroll(s.y, one)
	case '@':
		s.shift(one)
	case 'P':
		s.shift(-one)
	case 'X':
		clear(s.cells[s.y][s.x:min(s.x+one, s.cols)])
	case 'S':
		s.scroll(s.top, one)
	case 'T':
		s.scroll(s.top, -one)
	case 'r':
		top, bottom := clamp(n(0, 1)-1, s.rows-1), clamp(n(1, s.rows)-1, s.rows-1)
		if top < bottom {
			s.top, s.bottom = top, bottom
			s.move(0, 0)
		}
	case 's':
		s.save()
	case 'u':
		s.restore()
	}
}

// window answers what a program asks of the window, and passes on what it wants of it.
func (p *parser) window(what int) bool {
	switch what {
	case 18, 19:
		p.say("\x1b[%d;%d;%dt", what-10, p.screen.rows, p.screen.cols)
		return true
	case 11, 13, 14, 15, 16, 20, 21:
		return true
	}
	return false
}

// params reads numbers; one that is not there, or is 0, is the default.
func params(body []byte) func(i, def int) int {
	parts := strings.SplitN(string(body), ";", maxParams+1)
	return func(i, def int) int {
		if i >= len(parts) || i >= maxParams {
			return def
		}
		head, _, _ := strings.Cut(parts[i], ":")
		v, err := strconv.Atoi(head)
		if err != nil || v <= 0 {
			return def
		}
		return min(v, 1<<20)
	}
}
