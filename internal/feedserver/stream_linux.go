package feedserver

import (
	"bytes"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ossicle/ossicle/feed"
)

// The marks of a stream: what its shard is to look at.
const (
	markQueued   uint32 = 1 << iota // it is in the shard's queue
	markFresh                       // it is new
	markWoken                       // the hub may have more
	markWritable                    // the socket takes more
	markGone                        // the peer is gone
	markReplayed                    // the replayer is done with it
)

// stream is one connection that was taken over. There may be very many: what is
// seldom needed does not belong here.
type stream struct {
	shard *shard
	sub   *feed.Subscription
	grant *grant
	marks atomic.Uint32
	// closed may be read by anybody; the shard sets it.
	closed atomic.Bool

	// What follows is the shard's alone, but for replayed, which the replayer has
	// from its turn until it sets the mark.
	bare       bool // HTTP/1.0: no chunks
	replaying  bool // the replayer has it
	resting    bool // the store failed; it goes to the replayer when it is due
	leaving    bool // it gets what is there, and then its farewell
	last       bool // what is pending is its end
	serial     uint32
	slot       int32
	fd         int
	tls        *tls.Conn // nil in the clear
	pending    []byte    // what is left of a write
	prev, next *stream
	told       int64 // the last id that the client knows
	wrote      int64 // time of the last write, in ms
	due        int64 // time of what it waits for in its list, in ms
	replayed   *replayed
}

// replayed is what the replayer got for a stream.
type replayed struct {
	batch feed.Batch
	err   error
}

// wake is for feed.Subscribe.
func (st *stream) wake() { st.mark(markWoken) }

// mark has the shard look at the stream.
func (st *stream) mark(m uint32) {
	if st.marks.Load()&(m|markQueued) == m|markQueued {
		return // as when many events come at once
	}
	if st.marks.Or(m|markQueued)&markQueued == 0 {
		st.shard.push(st)
	}
}

// sealed takes what TLS made of a write of the shard.
func (st *stream) sealed(b []byte) (int, error) {
	st.shard.put(st, b, false)
	if st.closed.Load() {
		return 0, net.ErrClosed
	}
	return len(b), nil
}

// head is the head of the response and the beginning of its body.
func (st *stream) head(h http.Header, first []byte) []byte {
	var b bytes.Buffer
	if st.bare {
		b.WriteString("HTTP/1.0 200 OK\r\n")
	} else {
		b.WriteString("HTTP/1.1 200 OK\r\n")
		h.Set("Transfer-Encoding", "chunked")
	}
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	_ = h.Write(&b) // a buffer takes everything
	b.WriteString("\r\n")
	b.Write(st.form(first))
	return b.Bytes()
}

// form is a chunk as the stream has it.
func (st *stream) form(chunk []byte) []byte {
	if st.bare {
		return bare(chunk)
	}
	return chunk
}

// list is a ring of streams around a stream that is none.
type list struct{ root stream }

func (l *list) init() { l.root.prev, l.root.next = &l.root, &l.root }

func (l *list) empty() bool { return l.root.next == &l.root }

func (l *list) add(st *stream) {
	st.prev, st.next = l.root.prev, &l.root
	st.prev.next, l.root.prev = st, st
}

// unlink takes a stream out of whichever list it is in.
func (st *stream) unlink() {
	if st.next != nil {
		st.prev.next, st.next.prev = st.next, st.prev
		st.prev, st.next = nil, nil
	}
}
