package feedserver_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// child is a server in a process of its own.
type child struct {
	b    *testing.B
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	addr netip.AddrPort
}

func startChild(b *testing.B, kind string) *child {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	c := &child{b: b, cmd: exec.CommandContext(b.Context(), self, "-test.run=^$")}
	c.cmd.Env = append(os.Environ(), childEnv+"="+kind)
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	c.out.Scan()
	if c.addr, err = netip.ParseAddrPort(c.out.Text()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.in.Close(); _ = c.cmd.Wait() })
	return c
}

// publish has the child publish, and returns what it has open.
func (c *child) publish(n int) int {
	_, _ = fmt.Fprintln(c.in, n)
	c.out.Scan()
	open, _ := strconv.Atoi(c.out.Text())
	return open
}

// cpu is what the child has used.
func (c *child) cpu() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		c.b.Fatal(err)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// resident is the memory of the child, in bytes.
func (c *child) resident() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.cmd.Process.Pid))
	if err != nil {
		c.b.Fatal(err)
	}
	pages, _ := strconv.Atoi(strings.Fields(string(b))[1])
	return pages * os.Getpagesize()
}

// crowd is many streams that count what they get.
type crowd struct {
	b     *testing.B
	epoll int
	buf   []byte
	fds   []int
}

func (c *child) crowd(n int) *crowd {
	b := c.b
	b.Helper()
	ep, err := unix.EpollCreate1(0)
	if err != nil {
		b.Fatal(err)
	}
	cr := &crowd{b: b, epoll: ep, buf: make([]byte, 64<<10)}
	b.Cleanup(func() {
		for _, fd := range cr.fds {
			_ = unix.Close(fd)
		}
		_ = unix.Close(ep)
	})
	request := fmt.Appendf(nil, "GET /v1/events?topic=a HTTP/1.1\r\nHost: %s\r\n\r\n", c.addr)
	for len(cr.fds) < n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err == nil {
			cr.fds = append(cr.fds, fd)
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(c.addr.Port()), Addr: c.addr.Addr().As4()})
		}
		if err == nil {
			_, err = unix.Write(fd, request)
		}
		if err == nil {
			_, err = unix.Read(fd, cr.buf) // the head, and most often the greeting
		}
		if err == nil {
			err = unix.SetNonblock(fd, true)
		}
		if err == nil {
			err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
		}
		if err != nil {
			b.Fatalf("stream %d: %v", len(cr.fds), err)
		}
	}
	return cr
}

// read reads until so many events have come.
func (cr *crowd) read(events int) {
	ready := make([]unix.EpollEvent, 512)
	for got := 0; got < events; {
		n, err := unix.EpollWait(cr.epoll, ready, int(limit.Milliseconds()))
		if err == unix.EINTR { //nolint:errorlint // an errno
			continue
		}
		if err != nil || n == 0 {
			cr.b.Fatalf("%d of %d events: %v", got, events, err)
		}
		for _, e := range ready[:n] {
			m, err := unix.Read(int(e.Fd), cr.buf)
			if err != nil || m == 0 {
				cr.b.Fatalf("a stream ended: %v", err)
			}
			got += bytes.Count(cr.buf[:m], []byte("\ndata: "))
		}
	}
}

const crowdSize = 9_000 // of which both ends fit into the descriptors that are usual

// BenchmarkIdle measures the memory of streams on which nothing happens.
func BenchmarkIdle(b *testing.B) {
	c := startChild(b, "plain")
	c.crowd(100) // what there is but once
	c.publish(-1)
	before := c.resident()
	c.crowd(crowdSize)
	eventually(b, "all streams", func() bool { return c.publish(0) == crowdSize+100 })
	for b.Loop() { //nolint:revive // one measurement
	}
	b.ReportMetric(float64(c.resident()-before)/crowdSize, "B/stream-as-it-comes")
	c.publish(-1)
	b.ReportMetric(float64(c.resident()-before)/crowdSize, "B/stream")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdleTLS measures the same over TLS and HTTP/1.1.
func BenchmarkIdleTLS(b *testing.B) {
	const streams = 2_000
	c := startChild(b, "tls")
	open := func(n int) {
		for range n {
			d := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // our own child
			conn, err := d.DialContext(b.Context(), "tcp", c.addr.String())
			if err == nil {
				b.Cleanup(func() { _ = conn.Close() })
				_, err = fmt.Fprintf(conn, "GET /v1/events?topic=a HTTP/1.1\r\nHost: %s\r\n\r\n", c.addr)
			}
			if err == nil {
				_, err = conn.Read(make([]byte, 4096))
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	open(100)
	c.publish(-1)
	before := c.resident()
	open(streams)
	for b.Loop() { //nolint:revive // one measurement
	}
	b.ReportMetric(float64(c.resident()-before)/streams, "B/stream-as-it-comes")
	c.publish(-1)
	b.ReportMetric(float64(c.resident()-before)/streams, "B/stream")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdleHTTP2 measures connections of HTTP/2 with one stream each.
func BenchmarkIdleHTTP2(b *testing.B) {
	const streams = 1_000
	c := startChild(b, "tls")
	open := func(n int) {
		for range n {
			transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // our own child
			transport.Protocols.SetHTTP2(true)
			req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://"+c.addr.String()+"/v1/events?topic=a", nil)
			if err != nil {
				b.Fatal(err)
			}
			res, err := transport.RoundTrip(req)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = res.Body.Close() })
		}
	}
	open(100)
	c.publish(-1)
	before := c.resident()
	open(streams)
	for b.Loop() { //nolint:revive // one measurement
	}
	b.ReportMetric(float64(c.resident()-before)/streams, "B/stream-as-it-comes")
	c.publish(-1)
	b.ReportMetric(float64(c.resident()-before)/streams, "B/stream")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkPaced measures what one event costs that is on its own.
func BenchmarkPaced(b *testing.B) { measure(b, 1) }

// BenchmarkBurst measures what an event costs of 30 that come at once.
func BenchmarkBurst(b *testing.B) { measure(b, 30) }

func measure(b *testing.B, events int) {
	c := startChild(b, "plain")
	cr := c.crowd(crowdSize)
	eventually(b, "all streams", func() bool { return c.publish(0) == crowdSize })
	c.publish(1)
	cr.read(crowdSize)
	cpu, begun := c.cpu(), time.Now()
	n := 0
	for b.Loop() {
		c.publish(events)
		cr.read(events * crowdSize)
		n += events * crowdSize
	}
	b.ReportMetric(float64((c.cpu()-cpu).Nanoseconds())/float64(n), "CPU-ns/delivery")
	b.ReportMetric(float64(n)/time.Since(begun).Seconds(), "deliveries/s")
}
