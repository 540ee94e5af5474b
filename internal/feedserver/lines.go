package feedserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync/atomic"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/httpserver"
)

const (
	linesBuffer = 64 << 10  // bytes read at once
	linesBatch  = 512 << 10 // bytes of the lines of one batch, beyond the last
)

// publishLines takes a stream of events, one on each line. What has come is
// published at once, as batches, and the answer has a line for each.
func (s *Server) publishLines(w http.ResponseWriter, r *http.Request, topic, key string) {
	l := &lines{s: s, w: w, rc: http.NewResponseController(w), topic: topic, key: key}
	// Without it HTTP/1 would have the body come to its end before the answer
	// begins. HTTP/2 needs no asking.
	_ = l.rc.EnableFullDuplex()
	body := s.body(w, r, math.MaxInt64)
	l.in = bufio.NewReaderSize(body, linesBuffer)
	stop := s.atEnding(func() { // a body that is silent does not hold up the end
		l.ending.Store(true)
		body.end()
	})
	err := l.run(r)
	stop()
	switch {
	case err == nil && !l.begun:
		s.answer(w, receipts{s.hub.Stats().Head.Epoch, []feed.Receipt{}})
	case err == nil:
	case l.begun:
		p := s.refusalOf(err)
		s.counts.refused.Add(1)
		_ = l.answer(struct {
			Error httpserver.Problem `json:"error"`
		}{httpserver.NewProblem(p.status, p.detail)})
	default:
		if r.ProtoMajor == 1 { // the rest of the body is not read, so nothing can follow it
			w.Header().Set("Connection", "close")
		}
		s.answerError(w, err)
	}
}

// lines is a stream of events being published.
type lines struct {
	s          *Server
	w          http.ResponseWriter
	rc         *http.ResponseController
	in         *bufio.Reader
	topic, key string
	ending     atomic.Bool
	begun      bool  // the answer has
	number     int64 // lines that were read
	events     int64 // of them

	line  []byte // scratch
	batch []feed.Draft
	size  int // bytes of the lines of the batch
}

// run reads lines until the body ends.
func (l *lines) run(r *http.Request) error {
	for {
		b, err := l.next()
		if err == nil {
			err = l.add(b)
		}
		if err != nil {
			// What came before it is published all the same.
			if perr := l.publish(r); perr != nil {
				return perr
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if len(l.batch) == feed.MaxBatch || l.size >= linesBatch || !l.more() {
			if err := l.publish(r); err != nil {
				return err
			}
		}
		if l.ending.Load() {
			return &refusal{http.StatusServiceUnavailable, endingDetail}
		}
	}
}

// next returns the next line, without its end. Its error is io.EOF behind the
// last.
func (l *lines) next() ([]byte, error) {
	l.line = l.line[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		l.line = append(l.line, part...)
		if len(l.line) > maxLine {
			return nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("line %d has more than %d bytes", l.number+1, maxLine)}
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(l.line) == 0:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			if l.ending.Load() {
				return nil, &refusal{http.StatusServiceUnavailable, endingDetail}
			}
			return nil, l.s.readError(err)
		}
		l.number++
		return bytes.Trim(l.line, " \t\r\n"), nil
	}
}

// more reports whether a whole line is here already.
func (l *lines) more() bool {
	b, _ := l.in.Peek(l.in.Buffered())
	return bytes.IndexByte(b, '\n') >= 0
}

func (l *lines) add(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	d, err := parseEvent(b, l.topic) // cleaning copies what it keeps
	if err == nil {
		var clean []feed.Draft
		clean, err = feed.Clean([]feed.Draft{d}) // so that the line is known by its number
		if err == nil {
			d = clean[0]
		}
	}
	var one *feed.BatchError
	if errors.As(err, &one) {
		err = one.Err
	}
	if err != nil {
		return fmt.Errorf("line %d: %w", l.number, err)
	}
	if d.IdempotencyKey == "" {
		d.IdempotencyKey = numbered(l.key, l.events)
	}
	l.events++
	l.batch, l.size = append(l.batch, d), l.size+len(b)
	return nil
}

// publish publishes the batch and answers with its receipts.
func (l *lines) publish(r *http.Request) error {
	if len(l.batch) == 0 {
		return nil
	}
	// To net/http a body that is silent for too long is a client that has gone. What
	// came of it is published all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), storeTime)
	defer cancel()
	give, err := l.s.room(ctx, int64(l.size))
	if err != nil {
		return err
	}
	got, err := l.s.publish(ctx, l.batch)
	give()
	if err != nil {
		return err
	}
	clear(l.batch)
	l.batch, l.size = l.batch[:0], 0
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.Header().Set("Cache-Control", "no-store")
		l.w.Header().Set("X-Accel-Buffering", "no")
	}
	return l.answer(got)
}

// answer writes a line of the answer.
func (l *lines) answer(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = l.w.Write(append(b, '\n'))
	}
	if err == nil {
		err = l.rc.Flush()
	}
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}
