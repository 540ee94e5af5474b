//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// subscribers are many listens, read by one goroutine through epoll, so that
// the load generator costs as little as it can on the machine it shares with
// the server.
type subscribers struct {
	epoll int
	seen  map[int]int // updates by descriptor
	rest  map[int][]byte
	total int
}

var (
	acknowledged = []byte("subscriptions/acknowledged")
	updated      = []byte("resources/updated")
)

// open opens n listens and returns when all are acknowledged.
func open(ctx context.Context, addr, uri string, n int) (*subscribers, error) {
	s := &subscribers{seen: map[int]int{}, rest: map[int][]byte{}}
	var err error
	if s.epoll, err = unix.EpollCreate1(0); err != nil {
		return nil, err
	}
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"0"}},"notifications":{"resourceSubscriptions":[%q]}}}`, uri)
	request := fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\nContent-Length: %d\r\n\r\n%s", addr, len(body), body)
	buf := make([]byte, 16<<10)
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return s, err
		}
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
			return s, fmt.Errorf("connect: %w", err)
		}
		if _, err := unix.Write(fd, []byte(request)); err != nil {
			return s, err
		}
		var head []byte
		for !bytes.Contains(head, acknowledged) {
			k, err := unix.Read(fd, buf)
			if err != nil || k == 0 {
				return s, fmt.Errorf("read acknowledgement after %q: %w", head, orEOF(err))
			}
			head = append(head, buf[:k]...)
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return s, err
		}
		if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return s, err
		}
		s.seen[fd] = 0
		if ctx.Err() != nil {
			return s, ctx.Err()
		}
	}
	return s, nil
}

func orEOF(err error) error {
	if err == nil {
		return net.ErrClosed
	}
	return err
}

// await returns once each listen has seen k updates.
func (s *subscribers) await(ctx context.Context, k int) error {
	want := k * len(s.seen)
	events := make([]unix.EpollEvent, 512)
	buf := make([]byte, 16<<10)
	for s.total < want {
		n, err := unix.EpollWait(s.epoll, events, int(time.Second.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range events[:n] {
			fd := int(e.Fd)
			got, err := unix.Read(fd, buf)
			if err == unix.EAGAIN {
				continue
			}
			if err != nil || got == 0 {
				return fmt.Errorf("a listen ended: %w", orEOF(err))
			}
			data := append(s.rest[fd], buf[:got]...)
			c := bytes.Count(data, updated)
			s.seen[fd] += c
			s.total += c
			s.rest[fd] = tailOf(data)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d updates arrived: %w", s.total, want, ctx.Err())
		}
	}
	return nil
}

// tailOf keeps what may be the beginning of a word that the next read ends.
func tailOf(data []byte) []byte {
	for k := min(len(updated)-1, len(data)); k > 0; k-- {
		if bytes.HasPrefix(updated, data[len(data)-k:]) {
			return bytes.Clone(data[len(data)-k:])
		}
	}
	return nil
}

func (s *subscribers) close() {
	for fd := range s.seen {
		_ = unix.Close(fd)
	}
	_ = unix.Close(s.epoll)
}
