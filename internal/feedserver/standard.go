package feedserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/httpserver"
)

// standard is a stream in the goroutine of its handler: over TLS, HTTP/2, and
// wherever connections are not taken over.
type standard struct {
	s     *Server
	rc    *http.ResponseController
	w     http.ResponseWriter
	sub   *feed.Subscription
	bell  chan struct{}
	grant *grant

	retry *time.Timer // to read the store again that failed

	told int64 // the last id that the client knows
	last time.Time
}

func (s *Server) serveStandard(w http.ResponseWriter, r *http.Request, want wanted) {
	if !s.enter() {
		s.refuseForNow(w, endingDetail)
		return
	}
	defer s.handlers.Done()
	st := &standard{s: s, w: w, rc: http.NewResponseController(w), bell: make(chan struct{}, 1)}
	st.sub = s.subscribe(w, want, st.ring)
	if st.sub == nil {
		return
	}
	defer st.sub.Close()
	st.grant = s.grants.enter(want.principal)
	defer s.grants.leave(st.grant)
	defer func() {
		if st.retry != nil {
			st.retry.Stop()
		}
	}()
	s.counts.streams.Add(1)
	defer s.counts.streams.Add(-1)
	if conn := httpserver.ConnOf(r.Context()); conn != nil {
		boundSocket(conn, 2*s.o.WriteTime)
	}
	at := start(want, st.sub)
	st.told = st.sub.Position().ID
	w.WriteHeader(http.StatusOK)
	if st.write(bare(greeting(s.o.Retry, at))) != nil {
		return
	}
	// What has ended is the client's or its token's business, and counted.
	if err := st.follow(r.Context()); errors.Is(err, errEnding) {
		_ = st.write(bare(farewell(comeback())))
	}
}

func (st *standard) ring() {
	select {
	case st.bell <- struct{}{}:
	default:
	}
}

var (
	errEnding = errors.New("the server is ending")
	errLapsed = errors.New("the token has ended")
)

// always is ready.
var always = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// follow hands out batches until the stream is to end.
func (st *standard) follow(ctx context.Context) error {
	timer := time.NewTimer(st.s.o.Heartbeat)
	defer timer.Stop()
	bye := time.NewTimer(time.Hour)
	defer bye.Stop()
	bye.Stop()
	ending := st.s.ending
	for {
		more, err := st.pass(ctx)
		if err != nil {
			return err
		}
		var again <-chan struct{}
		if more {
			again = always
		}
		select {
		case <-again:
		case <-st.bell:
		case <-timer.C:
			if err := st.beat(); err != nil {
				return err
			}
			timer.Reset(st.s.o.Heartbeat - time.Since(st.last))
		case <-ending:
			ending = nil
			bye.Reset(st.s.farewellDelay())
		case <-bye.C:
			return errEnding
		case <-st.grant.ended(): // pass counts it
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// scratches are for the frames of one write.
var scratches = sync.Pool{New: func() any { return new(scratch) }}

type scratch struct {
	items []*feed.Item
	bytes []byte
}

// pass writes what is there at once, and reports whether there may be more.
func (st *standard) pass(ctx context.Context) (bool, error) {
	if st.grant.over() {
		st.s.counts.lapsed.Add(1)
		return false, errLapsed
	}
	buf, _ := scratches.Get().(*scratch)
	defer func() {
		clear(buf.items)
		scratches.Put(buf)
	}()
	b, behind, err := st.sub.Poll(buf.items[:0])
	if behind {
		b, err = st.replay(ctx)
		if storeFailed(err) && ctx.Err() == nil {
			st.retry = time.AfterFunc(pause(), st.ring)
			return false, nil
		}
	} else {
		buf.items = b.Items
	}
	var slow *feed.SlowError
	switch {
	case errors.As(err, &slow):
		st.s.counts.slow.Add(1)
		return false, err
	case errors.Is(err, feed.ErrStopped):
		return false, errEnding
	case err != nil:
		return false, err
	case b.Gap != nil:
		st.told = b.Position.ID
		return true, st.write(bare(gapFrame(*b.Gap, b.Position)))
	case len(b.Items) == 0:
		return behind, nil
	}
	buf.bytes = buf.bytes[:0]
	for _, it := range b.Items {
		buf.bytes = append(buf.bytes, bare(frameOf(it))...)
	}
	newest := b.Items[len(b.Items)-1]
	st.told = newest.ID
	if err := st.write(buf.bytes); err != nil {
		return false, err
	}
	if cap(buf.bytes) > 2*batchBytes {
		buf.bytes = nil // one huge event
	}
	st.s.counts.events.Add(int64(len(b.Items)))
	st.s.timeDelivery(newest)
	return true, nil
}

// replay reads the store, for as long as it takes. The hub bounds how many do.
func (st *standard) replay(ctx context.Context) (feed.Batch, error) {
	st.s.counts.replaying.Add(1)
	defer st.s.counts.replaying.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	b, _, err := st.sub.Take(ctx)
	return b, err
}

// storeFailed reports whether an error of a subscription is that of the store,
// after which it may be asked again.
func storeFailed(err error) bool {
	var slow *feed.SlowError
	return err != nil && !errors.Is(err, feed.ErrClosed) && !errors.Is(err, feed.ErrStopped) && !errors.As(err, &slow)
}

// pause is the time before the store is read again, such that not all come at
// once.
func pause() time.Duration { return storePause + rand.N(storePause) }

// beat writes a heartbeat if it is time.
func (st *standard) beat() error {
	if time.Since(st.last) < st.s.o.Heartbeat {
		return nil
	}
	at := st.sub.Position()
	if at.ID == st.told {
		return st.write(bare(plainHeartbeat))
	}
	st.told = at.ID
	return st.write(bare(heartbeat(&at)))
}

func (st *standard) write(b []byte) error {
	_ = st.rc.SetWriteDeadline(st.s.deadline()) // where it is not supported there is none
	_, err := st.w.Write(b)
	if err == nil {
		err = st.rc.Flush()
	}
	if err != nil {
		if isTimeout(err) {
			st.s.counts.cut.Add(1)
		}
		return err
	}
	_ = st.rc.SetWriteDeadline(time.Time{}) // on HTTP/2 one that passes ends the stream
	st.s.counts.writes.Add(1)
	st.s.counts.bytes.Add(int64(len(b)))
	st.last = time.Now()
	return nil
}
