//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// subscribers are many event streams, read by one goroutine through epoll, so
// that the load client costs as little as it can on the machine that it shares
// with the server.
type subscribers struct {
	epoll   int
	wake    [2]int // a pipe that ends the reader
	streams map[int]*stream
	done    chan struct{}
	stopped bool

	received atomic.Int64
	closed   atomic.Int64
	last     atomic.Int64 // when the last event came, in Unix nanoseconds

	latencies []time.Duration // the reader's, until it has stopped
}

// stream is one subscriber.
type stream struct {
	fd      int
	local   netip.AddrPort
	body    body
	scan    scanner
	pending []byte // came with the headers
}

// request is what a subscriber sends.
func request(host, path string, headers ...string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n", path, host)
	for _, h := range headers {
		if h != "" {
			b.WriteString(h + "\r\n")
		}
	}
	b.WriteString("\r\n")
	return []byte(b.String())
}

// open opens n streams and returns when each has its headers.
func open(ctx context.Context, to netip.AddrPort, request []byte, n int) (*subscribers, error) {
	s := &subscribers{streams: make(map[int]*stream, n), done: make(chan struct{})}
	var err error
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if err := unix.Pipe2(s.wake[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	if err := s.watch(s.wake[0]); err != nil {
		return nil, err
	}
	for range n {
		if err := errors.Join(ctx.Err(), s.add(to, request)); err != nil {
			close(s.done)
			s.stop()
			return nil, err
		}
	}
	go s.read()
	return s, nil
}

func (s *subscribers) add(to netip.AddrPort, request []byte) error {
	st, err := dial(to, request, 0)
	if err != nil {
		return err
	}
	s.streams[st.fd] = st // stop closes it
	return errors.Join(st.head(), unix.SetNonblock(st.fd, true), s.watch(st.fd))
}

// watch has the reader told of each arrival once, which costs less than to be told
// for as long as there is something.
func (s *subscribers) watch(fd int) error {
	return unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(fd)})
}

// dial connects and sends the request. A receive buffer, if given, is set before,
// as its size bounds the window.
func dial(to netip.AddrPort, request []byte, receive int) (*stream, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	st := &stream{fd: fd}
	if err := st.send(to, request, receive); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return st, nil
}

func (st *stream) send(to netip.AddrPort, request []byte, receive int) error {
	if receive > 0 {
		if err := unix.SetsockoptInt(st.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receive); err != nil {
			return err
		}
	}
	// A server that answers nothing must not hang the comparison.
	_ = unix.SetsockoptTimeval(st.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 15})
	if err := again(func() error {
		return unix.Connect(st.fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}); err != nil && err != unix.EISCONN {
		return fmt.Errorf("connect: %w", err)
	}
	if err := again(func() error { _, err := unix.Write(st.fd, request); return err }); err != nil {
		return err
	}
	name, err := unix.Getsockname(st.fd)
	if err != nil {
		return err
	}
	local := name.(*unix.SockaddrInet4)
	st.local = netip.AddrPortFrom(netip.AddrFrom4(local.Addr), uint16(local.Port))
	return nil
}

// again repeats a system call that a signal interrupted; the runtime sends them
// to preempt.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// read reads once.
func (st *stream) read(buf []byte) (n int, err error) {
	err = again(func() error { n, err = unix.Read(st.fd, buf); return err })
	return n, err
}

// head reads the headers of the answer.
func (st *stream) head() error {
	var got []byte
	buf := make([]byte, 4<<10)
	for {
		k, err := st.read(buf)
		if err != nil || k == 0 {
			return fmt.Errorf("read headers after %q: %w", got, orEOF(err))
		}
		got = append(got, buf[:k]...)
		head, rest, found := bytes.Cut(got, []byte("\r\n\r\n"))
		if !found {
			continue
		}
		if !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
			return fmt.Errorf("the server answers %q", head)
		}
		st.body.chunked = bytes.Contains(bytes.ToLower(head), []byte("transfer-encoding: chunked"))
		st.pending = slices.Clone(rest)
		return nil
	}
}

func orEOF(err error) error {
	if err == nil {
		return net.ErrClosed
	}
	return err
}

func (s *subscribers) read() {
	defer close(s.done)
	events := make([]unix.EpollEvent, 512)
	buf := make([]byte, 256<<10)
	for _, st := range s.streams {
		s.take(st, st.pending)
	}
	for {
		n, err := unix.EpollWait(s.epoll, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			st := s.streams[int(e.Fd)]
			if st == nil {
				return // the pipe
			}
			s.drain(st, buf, e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0)
		}
	}
}

// drain reads what there is: up to its end, where the server has closed.
func (s *subscribers) drain(st *stream, buf []byte, ending bool) {
	for {
		k, err := st.read(buf)
		switch {
		case err == unix.EAGAIN:
			return
		case err != nil || k == 0:
			s.closed.Add(1)
			_ = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_DEL, st.fd, nil)
			return
		}
		s.take(st, buf[:k])
		if k < len(buf) && !ending {
			return
		}
	}
}

func (s *subscribers) take(st *stream, data []byte) {
	now := time.Now().UnixNano()
	before := len(s.latencies)
	st.body.each(data, func(piece []byte) {
		st.scan.each(piece, func(sent int64) { s.latencies = append(s.latencies, time.Duration(now-sent)) })
	})
	if n := len(s.latencies) - before; n > 0 {
		s.received.Add(int64(n))
		s.last.Store(now)
	}
}

// await returns once want events have come, or none for a while.
func (s *subscribers) await(ctx context.Context, want int64, patience time.Duration) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	seen, since := int64(-1), time.Now()
	for {
		n := s.received.Load()
		if n != seen {
			seen, since = n, time.Now()
		}
		if n >= want || time.Since(since) > patience || ctx.Err() != nil {
			return
		}
		<-tick.C
	}
}

// sorted stops and returns the latencies.
func (s *subscribers) sorted() []time.Duration {
	s.stop()
	slices.Sort(s.latencies)
	return s.latencies
}

// stop ends the reader and closes the streams.
func (s *subscribers) stop() {
	if s.stopped {
		return
	}
	s.stopped = true
	_, _ = unix.Write(s.wake[1], []byte{0})
	<-s.done
	for fd := range s.streams {
		_ = unix.Close(fd)
	}
	for _, fd := range []int{s.epoll, s.wake[0], s.wake[1]} {
		_ = unix.Close(fd)
	}
}

// body takes the chunks of HTTP/1.1 apart, where there are any.
type body struct {
	chunked bool
	left    int    // of the chunk
	line    []byte // of the size of the next one, as far as it came
}

func (b *body) each(data []byte, f func([]byte)) {
	if !b.chunked {
		f(data)
		return
	}
	for len(data) > 0 {
		if b.left > 0 {
			n := min(b.left, len(data))
			f(data[:n])
			b.left -= n
			data = data[n:]
			continue
		}
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			b.line = append(b.line, data...)
			return
		}
		line := data[:end]
		if len(b.line) > 0 {
			line = append(b.line, line...)
			b.line = b.line[:0]
		}
		data = data[end+1:]
		for _, c := range bytes.TrimSpace(line) { // the line behind a chunk is empty
			b.left = b.left<<4 | hexDigit(c)
		}
	}
}

func hexDigit(c byte) int {
	if c >= 'a' {
		return int(c-'a') + 10
	}
	if c >= 'A' {
		return int(c-'A') + 10
	}
	return int(c - '0')
}

// begun is how many bytes at the end of data may be the beginning of a mark.
func begun(data []byte) int {
	tail := data[max(0, len(data)-len(mark)+1):]
	at := bytes.LastIndexByte(tail, mark[0]) // which is in the mark once
	if at < 0 || !bytes.HasPrefix(mark, tail[at:]) {
		return 0
	}
	return len(tail) - at
}

// scanner finds the times in what arrives: {"t": and 19 digits. The mark begins with
// a byte that is rare in all that the servers send, so that to find it costs little.
type scanner struct{ rest []byte }

var mark = []byte(`{"t":`)

const digits = 19

func (s *scanner) each(data []byte, f func(sent int64)) {
	if len(s.rest) > 0 {
		data = append(s.rest, data...)
	}
	for {
		at := bytes.Index(data, mark)
		if at < 0 {
			data = data[len(data)-begun(data):]
			break
		}
		if len(data) < at+len(mark)+digits {
			data = data[at:]
			break
		}
		sent := int64(0)
		for _, c := range data[at+len(mark) : at+len(mark)+digits] {
			sent = sent*10 + int64(c-'0')
		}
		f(sent)
		data = data[at+len(mark)+digits:]
	}
	s.rest = append(s.rest[:0], data...)
}
