package feedserver

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/logattr"
)

// passes are how many batches a stream gets before it is the turn of others.
const passes = 4

// step looks at a stream for what it was marked with.
func (sh *shard) step(st *stream, marks uint32) {
	sh.guard(st, func() {
		if st.closed.Load() {
			return
		}
		if marks&markFresh != 0 {
			if err := sh.attach(st); err != nil {
				sh.d.s.log.Warn("a connection cannot be watched", logattr.Err(err))
				sh.release(st)
				return
			}
			first := st.pending
			st.pending = nil
			sh.d.s.counts.queued.Add(-int64(len(first)))
			if !sh.write(st, first, true) {
				return
			}
		}
		if marks&markReplayed != 0 {
			st.replaying = false
			sh.d.s.counts.replaying.Add(-1)
		}
		if len(st.pending) > 0 && (marks&markWritable == 0 || !sh.flush(st)) {
			return
		}
		sh.advance(st)
	})
}

// advance hands a stream what there is for it. Nothing is pending.
func (sh *shard) advance(st *stream) {
	for range passes {
		switch {
		case st.last:
			sh.release(st)
			return
		case st.grant.over():
			sh.d.s.counts.lapsed.Add(1)
			sh.end(st, nil)
			return
		case st.replaying || st.resting:
			if st.leaving { // it comes back with where it was
				sh.end(st, farewell(comeback()))
			}
			return
		}
		if !sh.batch(st) {
			return
		}
	}
	st.mark(markWoken) // after the others
}

// batch hands out the next batch, and reports whether to go on.
func (sh *shard) batch(st *stream) bool {
	var b feed.Batch
	var behind bool
	var err error
	r := st.replayed
	if r != nil {
		st.replayed, b, err = nil, r.batch, r.err
	} else {
		b, behind, err = st.sub.Poll(sh.items[:0])
	}
	switch {
	case err != nil:
		sh.fail(st, err)
	case b.Gap != nil:
		st.told = b.Position.ID
		return sh.write(st, st.form(gapFrame(*b.Gap, b.Position)), true)
	case len(b.Items) > 0:
		if r == nil {
			sh.items = b.Items
		}
		return sh.deliver(st, b.Items)
	case st.leaving:
		sh.end(st, farewell(comeback()))
	case behind:
		sh.replay(st)
	default:
		return r != nil
	}
	return false
}

// fail ends a stream, or has it wait, as an error of its subscription wants it.
func (sh *shard) fail(st *stream, err error) {
	var slow *feed.SlowError
	switch {
	case errors.As(err, &slow):
		sh.d.s.counts.slow.Add(1)
		sh.end(st, nil)
	case errors.Is(err, feed.ErrStopped):
		sh.end(st, farewell(comeback()))
	case storeFailed(err):
		sh.d.s.log.Debug("the log cannot be read for a stream", logattr.Err(err))
		st.resting = true
		st.unlink()
		sh.silent.add(st, sh.now+pause().Milliseconds())
	default:
		sh.release(st)
	}
}

// replay has the store read for a stream.
func (sh *shard) replay(st *stream) {
	st.replaying = true
	sh.d.s.counts.replaying.Add(1)
	sh.d.replayer.add(st)
}

// deliver writes the frames of events.
func (sh *shard) deliver(st *stream, items []*feed.Item) bool {
	newest := items[len(items)-1]
	st.told = newest.ID
	sh.d.s.counts.events.Add(int64(len(items)))
	var done bool
	if len(items) == 1 {
		done = sh.write(st, st.form(frameOf(newest)), true)
	} else {
		done = sh.write(st, sh.joined.frames(st, items), false)
	}
	sh.d.s.timeDelivery(newest)
	return done
}

// joined are the frames of the last write of many, which the next stream most
// often needs too.
type joined struct {
	first, last *feed.Item
	count       int
	bare        bool
	bytes       []byte
}

func (j *joined) frames(st *stream, items []*feed.Item) []byte {
	first, last := items[0], items[len(items)-1]
	if j.first == first && j.last == last && j.count == len(items) && j.bare == st.bare {
		return j.bytes
	}
	if cap(j.bytes) > 4*batchBytes {
		j.bytes = nil // one huge event
	}
	j.first, j.last, j.count, j.bare, j.bytes = first, last, len(items), st.bare, j.bytes[:0]
	for _, it := range items {
		j.bytes = append(j.bytes, st.form(frameOf(it))...)
	}
	return j.bytes
}

// beat writes a heartbeat, with the position if the client does not know it.
func (sh *shard) beat(st *stream) {
	chunk := plainHeartbeat
	if !st.replaying && !st.resting && st.replayed == nil {
		if at := st.sub.Position(); at.ID != st.told {
			st.told = at.ID
			chunk = heartbeat(&at)
		}
	}
	if sh.write(st, st.form(chunk), true) {
		sh.silent.add(st, sh.now+sh.d.s.o.Heartbeat.Milliseconds())
	}
}

// end writes the last that a stream gets, which may be nothing but the end of its
// body, and then releases it.
func (sh *shard) end(st *stream, chunk []byte) {
	st.last = true
	var b []byte
	if chunk != nil {
		b = append(b, st.form(chunk)...)
	}
	if !st.bare {
		b = append(b, endChunk...)
	}
	done := len(b) == 0 || sh.write(st, b, true)
	if st.tls != nil && !st.closed.Load() {
		_ = st.tls.CloseWrite() // so that nobody takes it for a cut
		done = len(st.pending) == 0
	}
	if done {
		sh.release(st)
	}
}

// write writes, and reports whether that was all. What is left is kept, and the
// deadline for it begins. A buffer that is not shared is used again by the shard.
func (sh *shard) write(st *stream, b []byte, shared bool) bool {
	if st.tls == nil {
		return sh.put(st, b, shared)
	}
	if _, err := st.tls.Write(b); err != nil {
		sh.release(st)
	}
	return !st.closed.Load() && len(st.pending) == 0
}

// put is write below TLS, which may make several of one.
func (sh *shard) put(st *stream, b []byte, shared bool) bool {
	if st.closed.Load() {
		return false
	}
	if len(st.pending) > 0 {
		st.pending = append(st.pending, b...)
		sh.d.s.counts.queued.Add(int64(len(b)))
		return false
	}
	n, ok := sh.send(st, b)
	if !ok || n == len(b) {
		return ok
	}
	if shared {
		st.pending = b[n:]
	} else {
		st.pending = bytes.Clone(b[n:])
	}
	sh.d.s.counts.queued.Add(int64(len(st.pending)))
	st.unlink()
	st.due = sh.now + sh.d.s.o.WriteTime.Milliseconds()
	sh.blocked.add(st)
	return false
}

// flush writes what is left of a write, and reports whether that was all.
func (sh *shard) flush(st *stream) bool {
	n, ok := sh.send(st, st.pending)
	if !ok {
		return false
	}
	sh.d.s.counts.queued.Add(-int64(n))
	if st.pending = st.pending[n:]; len(st.pending) > 0 {
		return false
	}
	st.pending = nil
	st.unlink()
	sh.silent.add(st, sh.now+sh.d.s.o.Heartbeat.Milliseconds())
	return true
}

// send writes what the kernel takes. A stream whose peer is gone is released.
func (sh *shard) send(st *stream, b []byte) (int, bool) {
	for {
		n, err := unix.Write(st.fd, b)
		switch {
		case err == nil:
			c := &sh.d.s.counts
			c.writes.Add(1)
			c.bytes.Add(int64(n))
			st.wrote = sh.now
			return n, true
		case errors.Is(err, unix.EAGAIN):
			return 0, true
		case !errors.Is(err, unix.EINTR):
			sh.release(st)
			return 0, false
		}
	}
}
