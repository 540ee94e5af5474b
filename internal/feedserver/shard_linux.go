package feedserver

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/logattr"
)

// spreadTick is how often the streams of a shard that ends are told.
const spreadTick = 10 * time.Millisecond

// shard is one goroutine that writes to some of the streams.
type shard struct {
	d     *direct
	epoll *os.File
	epfd  int           // its number, good until the goroutine ends
	bell  chan struct{} // holds a token when there is something to look at
	base  time.Time     // of its clock

	mu       sync.Mutex
	queue    []*stream         // marked streams
	events   []unix.EpollEvent // of their sockets
	sweeping bool              // some grants are over
	draining bool
	killed   bool // end all at once
	dead     bool // the goroutine has ended
	begun    time.Time
	spread   time.Duration

	// What follows is the goroutine's own.
	now     int64     // ms since base, at the begin of the round
	slots   []*stream // by the number that epoll knows it by
	free    []int32   // numbers without a stream
	serial  uint32
	silent  wheel // of the streams that may be due for a heartbeat
	blocked list  // of the streams with a write under way, by their deadline
	items   []*feed.Item
	joined  joined
}

func newShard(d *direct) (*shard, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch connections: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // for the runtime's poller to take it
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watch connections: %w", err)
	}
	sh := &shard{d: d, epfd: fd, epoll: os.NewFile(uintptr(fd), "epoll"), bell: make(chan struct{}, 1), base: time.Now()}
	sh.silent.init(d.s.o.Heartbeat)
	sh.blocked.init()
	return sh, nil
}

// watch hands what happens to sockets to the shard. An epoll instance can be
// watched as any file, so this parks in the runtime's poller and not in a thread.
func (sh *shard) watch() {
	raw, err := sh.epoll.SyscallConn()
	if err != nil {
		return // it is closed
	}
	events := make([]unix.EpollEvent, 256)
	for {
		n := 0
		if raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		}) != nil {
			return
		}
		sh.order(func() { sh.events = append(sh.events, events[:n]...) })
	}
}

// order changes what the shard looks at next.
func (sh *shard) order(f func()) {
	sh.mu.Lock()
	f()
	sh.mu.Unlock()
	sh.ring()
}

func (sh *shard) ring() {
	select {
	case sh.bell <- struct{}{}:
	default:
	}
}

// drain begins the end. sh.mu is held.
func (sh *shard) drain(spread time.Duration) {
	if !sh.draining {
		sh.draining, sh.begun, sh.spread = true, time.Now(), spread
	}
}

// push queues a stream that has become marked.
func (sh *shard) push(st *stream) {
	sh.mu.Lock()
	sh.queue = append(sh.queue, st)
	first := len(sh.queue) == 1
	sh.mu.Unlock()
	if first {
		sh.ring()
	}
}

// adopt takes a new stream. Where the shard has ended, so does the stream.
func (sh *shard) adopt(st *stream) {
	sh.mu.Lock()
	dead := sh.dead
	if !dead {
		sh.queue = append(sh.queue, st)
	}
	sh.mu.Unlock()
	if dead {
		sh.release(st)
		return
	}
	sh.ring()
}

func (sh *shard) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer func() { _ = sh.epoll.Close() }()
	var queue []*stream
	var events []unix.EpollEvent
	for {
		sh.mu.Lock()
		queue, sh.queue = sh.queue, queue[:0]
		events, sh.events = sh.events, events[:0]
		sweeping, draining, killed := sh.sweeping, sh.draining, sh.killed
		sh.sweeping = false
		if draining && len(queue) == 0 && len(sh.free) == len(sh.slots) {
			sh.dead = true
			sh.mu.Unlock()
			return
		}
		sh.mu.Unlock()

		sh.now = time.Since(sh.base).Milliseconds()
		sh.heed(events)
		for i, st := range queue {
			sh.step(st, st.marks.Swap(0))
			queue[i] = nil
		}
		if cap(queue) > 1024 && len(queue) < cap(queue)/8 {
			queue = nil
		}
		sh.times()
		if sweeping || draining {
			sh.visit(draining, killed)
		}
		timer.Reset(sh.rest(draining))
		select {
		case <-sh.bell:
		case <-timer.C:
		}
	}
}

// heed passes on what happened to sockets.
func (sh *shard) heed(events []unix.EpollEvent) {
	for _, e := range events {
		st := sh.slots[e.Fd]
		if st == nil || st.serial != uint32(e.Pad) {
			continue // its number has gone to another one
		}
		if e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			sh.release(st)
		} else if len(st.pending) > 0 {
			st.mark(markWritable)
		}
	}
}

// times does what is due: heartbeats, and the end of those who do not read.
func (sh *shard) times() {
	for !sh.blocked.empty() && sh.blocked.root.next.due <= sh.now {
		sh.d.s.counts.cut.Add(1)
		sh.release(sh.blocked.root.next)
	}
	sh.silent.turn(sh.now, func(st *stream) {
		beat := sh.d.s.o.Heartbeat.Milliseconds()
		if st.resting && st.due <= sh.now {
			st.resting = false
			sh.replay(st)
		}
		if st.wrote+beat > sh.now {
			sh.silent.add(st, st.wrote+beat)
			return
		}
		sh.guard(st, func() { sh.beat(st) })
	})
}

// rest is how long nothing is due.
func (sh *shard) rest(draining bool) time.Duration {
	next := sh.silent.next()
	if !sh.blocked.empty() {
		next = min(next, sh.blocked.root.next.due)
	}
	if draining {
		next = min(next, sh.now+spreadTick.Milliseconds())
	}
	return time.Duration(max(next-sh.now, 0)) * time.Millisecond
}

// visit looks at all streams, for what comes to many of them.
func (sh *shard) visit(draining, killed bool) {
	upTo := 0
	if draining {
		upTo = len(sh.slots)
		if since := time.Since(sh.begun); since < sh.spread {
			upTo = int(int64(len(sh.slots)) * int64(since) / int64(sh.spread))
		}
	}
	for i, st := range sh.slots {
		switch {
		case st == nil:
		case killed:
			sh.release(st)
		case i < upTo && !st.leaving:
			st.leaving = true
			sh.step(st, markWoken)
		case st.grant.over():
			sh.step(st, markWoken)
		}
	}
}

// guard keeps a panic, which nobody foresees, to the stream that it came from.
func (sh *shard) guard(st *stream, f func()) {
	defer func() {
		if v := recover(); v != nil {
			sh.d.s.log.Error("stream panicked", logattr.Reason(fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
			sh.release(st)
		}
	}()
	f()
}

// attach gives a new stream its place.
func (sh *shard) attach(st *stream) error {
	if n := len(sh.free); n > 0 {
		st.slot, sh.free = sh.free[n-1], sh.free[:n-1]
	} else {
		st.slot = int32(len(sh.slots))
		sh.slots = append(sh.slots, nil)
	}
	sh.slots[st.slot] = st
	sh.serial++
	st.serial = sh.serial
	st.wrote = sh.now
	sh.silent.add(st, sh.now+sh.d.s.o.Heartbeat.Milliseconds())
	return unix.EpollCtl(sh.epfd, unix.EPOLL_CTL_ADD, st.fd, &unix.EpollEvent{
		Events: unix.EPOLLRDHUP | unix.EPOLLOUT | unix.EPOLLET, Fd: st.slot, Pad: int32(st.serial),
	})
}

// release frees everything that a stream has. It may be called again.
func (sh *shard) release(st *stream) {
	if st.closed.Swap(true) {
		return
	}
	c := &sh.d.s.counts
	st.unlink()
	if st.serial != 0 {
		sh.slots[st.slot] = nil
		sh.free = append(sh.free, st.slot)
	}
	_ = unix.Close(st.fd) // which takes it out of the epoll instance
	c.queued.Add(-int64(len(st.pending)))
	st.pending = nil
	if st.replaying {
		c.replaying.Add(-1)
	}
	st.sub.Close()
	sh.d.s.grants.leave(st.grant)
	c.streams.Add(-1)
	c.direct.Add(-1)
}
