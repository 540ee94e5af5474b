//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// floor is no product: it writes what is published to each subscriber with one
// system call, and does nothing else. No order across publishers, no slow
// subscribers, no store, no HTTP to speak of. It shows what the kernel and the
// load client take on this machine, below which no server comes.
type floor struct{}

func (floor) name() string { return "floor" }

func (floor) build(context.Context, string) error { return nil }

func (floor) command(_, _ string, addr netip.AddrPort, _ *certificate) (*exec.Cmd, error) {
	self, err := os.Executable()
	return exec.Command(self, "-floor", addr.String()), err
}

func (floor) ready(context.Context, string) error { return nil }

func (floor) subscribe(addr netip.AddrPort, _ string) []byte { return request(addr.String(), "/") }

func (floor) publish(ctx context.Context, addr netip.AddrPort, payload string) (*http.Request, error) {
	return newPost(ctx, addr, "/", "application/json", payload)
}

func (floor) position(string, int, int) string { return "" }

// floorServer is the process of floor.
type floorServer struct {
	mu    sync.Mutex
	more  *sync.Cond
	log   []byte // what was published
	halve [2]chan int
}

func runFloor(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s := &floorServer{}
	s.more = sync.NewCond(&s.mu)
	for i := range s.halve {
		s.halve[i] = make(chan int, 1<<16)
		go s.write(s.halve[i])
	}
	for n := 0; ; n++ {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		go s.serve(conn.(*net.TCPConn), n)
	}
}

// serve takes a subscriber's socket from the runtime, or the events of a
// publisher.
func (s *floorServer) serve(conn *net.TCPConn, n int) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if req.Method == http.MethodGet {
			f, err := conn.File()
			if err != nil {
				return
			}
			defer func() { _ = f.Close() }()
			fd, err := unix.Dup(int(f.Fd()))
			if err != nil {
				return
			}
			_, _ = unix.Write(fd, []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: ok\n\n"))
			s.halve[n%len(s.halve)] <- fd
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.log = fmt.Appendf(s.log, "data: %s\n\n", body)
		s.more.Broadcast()
		s.mu.Unlock()
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
			return
		}
	}
}

// write hands out what there is to half of the subscribers.
func (s *floorServer) write(fds <-chan int) {
	var subs, at []int
	for done := 0; ; {
		s.mu.Lock()
		for done == len(s.log) {
			s.more.Wait()
		}
		s.mu.Unlock()
		for len(fds) > 0 {
			subs, at = append(subs, <-fds), append(at, done)
		}
		for i, fd := range subs {
			s.mu.Lock()
			log := s.log
			s.mu.Unlock()
			if at[i] < len(log) {
				_, _ = unix.Write(fd, log[at[i]:])
				at[i] = len(log)
			}
		}
		done = at[0]
		for _, a := range at {
			done = min(done, a)
		}
	}
}

// newPost is a POST to a server.
func newPost(ctx context.Context, addr netip.AddrPort, path, kind, body string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr.String()+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", kind)
	return req, nil
}
