//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// quiet is how long nothing may arrive before the rest counts as lost.
const quiet = 10 * time.Second

// fanout is what a number of subscribers cost and get.
type fanout struct {
	Subscribers   int     `json:"subscribers"`
	Rounds        int     `json:"rounds"`
	Events        int     `json:"events"`                   // of a round
	IdleKiB       float64 `json:"idle_kib_per_subscriber"`  // resident growth before the first event
	AfterKiB      float64 `json:"after_kib_per_subscriber"` // and behind the last
	CPUMicros     float64 `json:"server_cpu_us_per_delivery"`
	ClientMicros  float64 `json:"client_cpu_us_per_delivery"`
	PerSecond     float64 `json:"deliveries_per_second"` // the median of the rounds
	P50           float64 `json:"p50_ms"`
	P99           float64 `json:"p99_ms"`
	Lost          int64   `json:"lost"`
	Closed        int64   `json:"closed"`
	Refused       string  `json:"publish_errors,omitempty"`
	ConnectPerSec float64 `json:"connects_per_second"`
	Load          string  `json:"load_average"`
}

// measureFanout opens n subscribers and sends events in rounds, at a rate each
// second or, if that is zero, as fast as the publishers can. A round begins when the
// one before it has arrived.
func measureFanout(ctx context.Context, s *server, n, rounds, events int, rate float64, z sizes) (f fanout, err error) {
	f = fanout{Subscribers: n, Rounds: rounds, Events: events}
	before, err := s.usage()
	if err != nil {
		return f, err
	}
	begun := time.Now()
	subs, err := open(ctx, s.addr, s.subscribe(s.addr, ""), n)
	if err != nil {
		return f, fmt.Errorf("open subscribers: %w", err)
	}
	defer subs.stop()
	f.ConnectPerSec = float64(n) / time.Since(begun).Seconds()
	time.Sleep(z.settle)
	idle, err := s.usage()
	if err != nil {
		return f, err
	}
	own, err := usageOf(os.Getpid())
	if err != nil {
		return f, err
	}
	f.IdleKiB = kib(idle.resident-before.resident) / float64(n)
	var perSecond []float64
	for round := range rounds {
		before := subs.received.Load()
		begun = time.Now()
		err = errors.Join(err, publishAll(ctx, s, round*events, events, rate, z.publishers, z.payload))
		subs.await(ctx, before+int64(n)*int64(events), quiet)
		perSecond = append(perSecond, float64(subs.received.Load()-before)/time.Unix(0, subs.last.Load()).Sub(begun).Seconds())
	}
	got := subs.received.Load()
	if got == 0 {
		return f, errors.Join(errors.New("nothing was delivered"), err)
	}
	if err != nil { // some of it: what is missing is told as lost
		f.Refused = err.Error()
	}
	after, err := s.usage()
	if err != nil {
		return f, err
	}
	ownAfter, err := usageOf(os.Getpid())
	if err != nil {
		return f, err
	}
	f.Load = loadAverage()
	f.AfterKiB = kib(after.resident-before.resident) / float64(n)
	f.CPUMicros = float64((after.cpu - idle.cpu).Microseconds()) / float64(got)
	f.ClientMicros = float64((ownAfter.cpu - own.cpu).Microseconds()) / float64(got)
	slices.Sort(perSecond)
	f.PerSecond = perSecond[len(perSecond)/2]
	f.Lost, f.Closed = int64(n)*int64(rounds)*int64(events)-got, subs.closed.Load()
	sorted := subs.sorted()
	f.P50, f.P99 = millis(quantile(sorted, 0.5)), millis(quantile(sorted, 0.99))
	return f, ctx.Err()
}

// publishAll publishes events with the numbers from first up. One that a server does
// not take is not repeated.
func publishAll(ctx context.Context, s *server, first, events int, rate float64, publishers, size int) error {
	if rate > 0 {
		publishers = min(publishers, 4*int(rate+1))
	}
	var next atomic.Int64
	errs := make([]error, publishers)
	begun := time.Now()
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= events {
					return
				}
				if rate > 0 {
					time.Sleep(time.Until(begun.Add(time.Duration(float64(i) / rate * float64(time.Second)))))
				}
				if err := s.send(ctx, first+i, size); err != nil {
					errs[p] = err
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// measureTLS is the resident growth for each of n idle subscribers over TLS and
// HTTP/1.1, in KiB.
func measureTLS(ctx context.Context, s *server, cert *certificate, z sizes) (float64, error) {
	n := z.subscribers
	before, err := s.usage()
	if err != nil {
		return 0, err
	}
	config := &tls.Config{RootCAs: cert.pool, ServerName: "127.0.0.1", NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
	ask := s.subscribe(s.addr, "")
	conns := make([]*tls.Conn, n)
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.NetConn().Close()
			}
		}
	}()
	buf := make([]byte, 4<<10)
	for i := range conns {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		conn, err := net.DialTimeout("tcp", s.addr.String(), quiet)
		if err != nil {
			return 0, err
		}
		conns[i] = tls.Client(conn, config)
		if err := errors.Join(conn.SetDeadline(time.Now().Add(quiet)), conns[i].HandshakeContext(ctx)); err != nil {
			return 0, err
		}
		if _, err := conns[i].Write(ask); err != nil {
			return 0, err
		}
		for head := []byte(nil); !bytes.Contains(head, []byte("\r\n\r\n")); {
			k, err := conns[i].Read(buf)
			if err != nil {
				return 0, fmt.Errorf("read headers after %q: %w", head, err)
			}
			head = append(head, buf[:k]...)
		}
	}
	time.Sleep(z.settle)
	after, err := s.usage()
	return kib(after.resident-before.resident) / float64(n), err
}

func kib(bytes int64) float64 { return float64(bytes) / 1024 }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}
