package mcpclient

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// memory is an http.RoundTripper to a handler in this process, so that HTTP can
// run on a virtual clock. It counts requests.
type memory struct {
	h http.Handler
	n atomic.Int32
}

type memoryWriter struct {
	header http.Header
	status int
	wrote  chan struct{} // closed by the first write
	begun  bool
	w      *io.PipeWriter
}

func (m *memoryWriter) Header() http.Header { return m.header }
func (m *memoryWriter) FlushError() error   { return nil }
func (m *memoryWriter) WriteHeader(status int) {
	if !m.begun {
		m.begun, m.status = true, status
		close(m.wrote)
	}
}

func (m *memoryWriter) Write(b []byte) (int, error) {
	m.WriteHeader(http.StatusOK)
	return m.w.Write(b)
}

func (m *memory) RoundTrip(r *http.Request) (*http.Response, error) {
	m.n.Add(1)
	pr, pw := io.Pipe()
	w := &memoryWriter{header: http.Header{}, wrote: make(chan struct{}), w: pw}
	context.AfterFunc(r.Context(), func() { _ = pr.CloseWithError(r.Context().Err()) })
	go func() {
		m.h.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK)
		_ = pw.Close()
	}()
	select {
	case <-w.wrote:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: w.status, Header: w.header, Body: pr, Request: r}, nil
}

// W-001, W-052, W-240: a watch that hears nothing sends nothing, for hours.
func TestIdleSendsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{h: newFake("")}
		o := quick()
		o.HTTPTransport = m
		s := newTestPool(t, o, Spec{Name: "srv", URL: "http://srv/mcp"})
		e, _ := mustSubscribe(t, s, "a:/1")
		if _, err := s.Read(t.Context(), "a:/1", nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := m.n.Load()
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if n := m.n.Load() - before; n != 0 || len(e.interrupted) != 0 {
			t.Errorf("%d requests and %d interruptions in six idle hours", n, len(e.interrupted))
		}
		touch(t, s, "a:/1")
		await(t, "update", e.updated)
	})
}
