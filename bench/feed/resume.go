//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// resume is what a subscriber gets that comes back after so many events, in one
// connection.
type resume struct {
	Missed int `json:"missed"`
	Got    int `json:"got"` // the least of the rounds
	// From the request to the first event, in milliseconds: the median of the
	// rounds and the slowest.
	First      float64 `json:"first_ms"`
	FirstWorst float64 `json:"first_worst_ms"`
	All        float64 `json:"all_ms"` // to the last event, median; zero if they never came
}

// errNoResume says that a product has nothing to resume from.
var errNoResume = errors.New("no resume")

// history publishes events and returns the whole stream of somebody who was
// there.
func history(ctx context.Context, s *server, z sizes) (string, error) {
	st, err := dial(s.addr, s.subscribe(s.addr, ""), 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(st.fd) }()
	if err := st.head(); err != nil {
		return "", err
	}
	time.Sleep(z.settle)
	var stream strings.Builder
	done := make(chan error, 1)
	go func() {
		_, err := st.follow(z.history, func(piece []byte) { stream.Write(piece) }, nil)
		done <- err
	}()
	err = publishAll(ctx, s, 0, z.history, 0, z.publishers, z.payload)
	if err != nil {
		_ = unix.Shutdown(st.fd, unix.SHUT_RDWR)
	}
	err = errors.Join(err, <-done)
	return stream.String(), err
}

// follow reads until so many events have come.
func (st *stream) follow(events int, f func([]byte), each func(n int)) (n int, err error) {
	take := func(data []byte) {
		st.body.each(data, func(piece []byte) {
			if f != nil {
				f(piece)
			}
			st.scan.each(piece, func(int64) {
				n++
				if each != nil {
					each(n)
				}
			})
		})
	}
	take(st.pending)
	buf := make([]byte, 64<<10)
	for n < events {
		k, err := st.read(buf)
		if err != nil || k == 0 {
			return n, fmt.Errorf("the stream ended after %d of %d events: %w", n, events, orEOF(err))
		}
		take(buf[:k])
	}
	return n, nil
}

// measureResume comes back a number of times, each time after so many missed
// events.
func measureResume(ctx context.Context, s *server, stream string, missed int, z sizes) (m resume, err error) {
	m = resume{Missed: missed, Got: missed}
	since := s.position(stream, z.history, missed)
	if since == "" {
		return m, errNoResume
	}
	var first, all []time.Duration
	// One round tells enough of a product that does not hand out everything.
	for r := 0; r < z.rounds && m.Got == missed; r++ {
		if ctx.Err() != nil {
			return m, ctx.Err()
		}
		begun := time.Now()
		st, err := dial(s.addr, s.subscribe(s.addr, since), 0)
		if err != nil {
			return m, err
		}
		err = st.head()
		if err == nil {
			var got int
			got, err = st.follow(missed, nil, func(n int) {
				switch n {
				case 1:
					first = append(first, time.Since(begun))
				case missed:
					all = append(all, time.Since(begun))
				}
			})
			m.Got = min(m.Got, got)
			if got > 0 {
				err = nil // what it did not get is a result
			}
		}
		_ = unix.Close(st.fd)
		if err != nil {
			return m, err
		}
	}
	slices.Sort(first)
	slices.Sort(all)
	m.First, m.FirstWorst = millis(quantile(first, 0.5)), millis(quantile(first, 1))
	if len(all) == z.rounds {
		m.All = millis(quantile(all, 0.5))
	}
	return m, nil
}
