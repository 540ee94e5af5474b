//go:build linux

package main

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// The flood of the scenario: 12 MB to each subscriber, which is more than any
// kernel here buffers for one that never reads.
const (
	stuckSize  = 2000 // bytes of an event
	stuckRate  = 200  // events each second
	stuckLook  = 50 * time.Millisecond
	stuckAfter = 15 * time.Second // how long to look on when the flood is over
)

// stuck is what one subscriber that never reads does to a server and to the
// other subscribers.
type stuck struct {
	Others int     `json:"others"`
	Lost   int64   `json:"lost_by_others"`
	Closed int64   `json:"others_closed"`
	P99    float64 `json:"p99_ms_of_others"`
	// Gone is for how long it was kept after the kernel had taken the last byte
	// for it, in seconds; negative if it was never cut.
	Gone float64 `json:"gone_after_s"`
	// HeldKiB is the most that the kernel held for it.
	HeldKiB  float64 `json:"held_kib"`
	GrownKiB float64 `json:"server_grown_kib"` // the whole server, resident
}

func measureStuck(ctx context.Context, s *server, others, events int, z sizes) (m stuck, err error) {
	m.Others = others
	ask := s.subscribe(s.addr, "")
	subs, err := open(ctx, s.addr, ask, others)
	if err != nil {
		return m, err
	}
	defer subs.stop()
	victim, err := dial(s.addr, ask, 4<<10)
	if err != nil {
		return m, err
	}
	defer func() { _ = unix.Close(victim.fd) }()
	time.Sleep(z.settle)
	before, err := s.usage()
	if err != nil {
		return m, err
	}
	flood := make(chan error, 1)
	go func() { flood <- publishAll(ctx, s, 0, events, stuckRate, z.publishers, stuckSize) }()
	look := time.NewTicker(stuckLook)
	defer look.Stop()
	var held int64
	full, gone := time.Now(), time.Time{}
	var end <-chan time.Time
	flooding := flood
	for over := false; !over; {
		select {
		case err := <-flooding:
			if err != nil {
				return m, err
			}
			flooding = nil
			subs.await(ctx, int64(others)*int64(events), quiet)
			if end = time.After(stuckAfter); !gone.IsZero() {
				over = true
			}
		case <-end:
			over = true
		case <-look.C:
			if !gone.IsZero() {
				over = end != nil
				continue
			}
			sock, err := socketOf(s.addr, victim.local)
			if err != nil {
				return m, err
			}
			switch {
			case !sock.open:
				gone = time.Now()
			case sock.held > held:
				held, full = sock.held, time.Now()
			}
		}
	}
	after, err := s.usage()
	if err != nil {
		return m, err
	}
	m.Lost = int64(others)*int64(events) - subs.received.Load()
	m.Gone = -1
	if !gone.IsZero() {
		m.Gone = gone.Sub(full).Seconds()
	}
	m.HeldKiB, m.GrownKiB = kib(held), kib(after.resident-before.resident)
	m.Closed = subs.closed.Load()
	m.P99 = millis(quantile(subs.sorted(), 0.99))
	return m, ctx.Err()
}
