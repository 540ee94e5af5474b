package pty

// ring keeps the newest bytes of a stream, by their offsets. Its user holds a lock.
type ring struct {
	limit int
	buf   []byte
	start int64 // offset of buf[0]
}

func (r *ring) end() int64 { return r.start + int64(len(r.buf)) }

func (r *ring) write(p []byte) {
	if over := len(p) - r.limit; over > 0 {
		r.start += int64(len(r.buf) + over)
		r.buf, p = r.buf[:0], p[over:]
	}
	r.buf = append(r.buf, p...)
	// Some slack, so that not every write moves all of it.
	if over := len(r.buf) - r.limit; over > r.limit/4 {
		r.drop(over)
	}
}

func (r *ring) drop(n int) {
	r.buf = append(r.buf[:0], r.buf[n:]...)
	r.start += int64(n)
}

// oldest is the offset of the oldest byte that is handed out.
func (r *ring) oldest() int64 { return r.start + int64(max(0, len(r.buf)-r.limit)) }

// read returns a copy of at most n bytes from an offset on, and the offset of the
// first: a later one if that is kept no more.
func (r *ring) read(from int64, n int) (data []byte, at int64) {
	at = max(from, r.oldest())
	i := min(int(at-r.start), len(r.buf))
	return append([]byte(nil), r.buf[i:min(i+n, len(r.buf))]...), at
}
