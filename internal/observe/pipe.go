package observe

import (
	"bytes"
	"time"

	"github.com/ossicle/ossicle/attach"
)

// Pipe sees one connection over standard input and output.
type Pipe struct {
	o              *Observer
	c              *conn
	client, server side
}

// side is one direction. Whoever feeds it knows whether bytes were dropped since
// the last that were not.
type side struct {
	gap   bool
	lines lines
}

// Pipe begins to observe a connection. The id tells it apart; it is kept as a
// hash.
func (o *Observer) Pipe(id string) *Pipe {
	p := &Pipe{o: o, c: newConn(o)}
	p.c.id = attach.ConnectionID(id)
	return p
}

// Client takes the next bytes of the client, before they are passed on: a request
// is then known before its response. It keeps a copy. Only one goroutine calls it. It is
// called from one goroutine.
func (p *Pipe) Client(b []byte) {
	p.feed(b, &p.client, func(line []byte, _ time.Time) { p.c.client(line) })
}

// Server takes the next bytes of the server, after they were passed on. Only one
// goroutine calls it.
func (p *Pipe) Server(b []byte) {
	p.feed(b, &p.server, p.c.server)
}

func (p *Pipe) feed(b []byte, to *side, take func(line []byte, at time.Time)) {
	b = bytes.Clone(b)
	gap := to.gap
	to.gap = !p.o.later(len(b), func(at time.Time) {
		if gap {
			to.lines.lose()
		}
		to.lines.add(b, func(line []byte) { take(line, at) })
	})
}

// Close tells of the end of the connection.
func (p *Pipe) Close() { p.o.later(0, p.c.closed) }

// lines takes bytes apart into lines, of which it keeps the beginning.
type lines struct {
	buf  []byte
	skip bool // until the next line: some of this one was lost
}

func (l *lines) add(b []byte, line func([]byte)) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		part := b
		if i >= 0 {
			part = b[:i]
		}
		if room := maxFrame - len(l.buf); !l.skip && room > 0 {
			l.buf = append(l.buf, part[:min(len(part), room)]...)
		}
		if i < 0 {
			return
		}
		if !l.skip && len(l.buf) > 0 {
			line(l.buf)
		}
		l.buf, l.skip = l.buf[:0], false
		if cap(l.buf) > 256<<10 {
			l.buf = nil // one large message is not kept in memory for good
		}
		b = b[i+1:]
	}
}

// lose says that bytes are missing.
func (l *lines) lose() { l.buf, l.skip = l.buf[:0], true }
