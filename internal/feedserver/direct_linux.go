package feedserver

import (
	"context"
	"crypto/tls"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/logattr"
)

// direct serves the streams whose connections were taken over.
//
// A stream belongs to one shard, whose goroutine alone writes to its socket and
// closes it. Others tell the shard what has happened by marks on the stream,
// which is then queued once: the hub that there is more, the epoll instance that
// the peer is gone or can be written to, the replayer that it has read the store.
type direct struct {
	s        *Server
	shards   []*shard
	turn     atomic.Uint32 // of the shards to get the next stream
	replayer *replayer
	wg       sync.WaitGroup // of the shards
}

func newDirect(s *Server) (*direct, error) {
	d := &direct{s: s}
	for range s.o.Shards {
		sh, err := newShard(d)
		if err != nil {
			for _, sh := range d.shards {
				_ = sh.epoll.Close()
			}
			return nil, err
		}
		d.shards = append(d.shards, sh)
	}
	d.replayer = newReplayer(s.o.Replays)
	for _, sh := range d.shards {
		d.wg.Go(sh.watch)
		d.wg.Go(sh.run)
	}
	return d, nil
}

// serve takes a connection over, or returns false where it cannot be.
func (d *direct) serve(w http.ResponseWriter, r *http.Request, want wanted) bool {
	s := d.s
	if !s.enter() {
		s.refuseForNow(w, endingDetail)
		return true
	}
	defer s.handlers.Done()
	st := &stream{shard: d.shards[int(d.turn.Add(1))%len(d.shards)], bare: !r.ProtoAtLeast(1, 1)}
	st.marks.Store(markQueued | markFresh) // it is queued when it is whole
	if st.sub = s.subscribe(w, want, st.wake); st.sub == nil {
		return true
	}
	adopted := false
	defer func() {
		if !adopted {
			st.sub.Close()
		}
	}()
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return false
	}
	// TLS stays, and writes to the shard.
	if secure, ok := conn.(*tls.Conn); ok {
		st.tls = secure
		conn = httpserver.ConnOf(r.Context()).Divert(st.sealed)
	}
	st.fd, err = takeFD(conn, 2*s.o.WriteTime)
	if err != nil {
		s.log.WarnContext(r.Context(), "a connection cannot be taken over", logattr.Err(err))
		return true
	}
	st.told = st.sub.Position().ID
	st.pending = st.head(w.Header(), greeting(s.o.Retry, start(want, st.sub)))
	st.grant = s.grants.enter(want.principal)
	s.counts.streams.Add(1)
	s.counts.direct.Add(1)
	s.counts.queued.Add(int64(len(st.pending)))
	adopted = true
	st.shard.adopt(st)
	return true
}

// sweep has every shard look for streams whose grant is over.
func (d *direct) sweep() {
	for _, sh := range d.shards {
		sh.order(func() { sh.sweeping = true })
	}
}

// shutdown ends all streams within the spread, and what is left when ctx ends.
func (d *direct) shutdown(ctx context.Context, spread time.Duration) error {
	for _, sh := range d.shards {
		sh.order(func() { sh.drain(spread) })
	}
	done := make(chan struct{})
	go func() { d.wg.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
		for _, sh := range d.shards {
			sh.order(func() { sh.killed = true })
		}
		<-done
	}
	d.replayer.close()
	return err
}
