package worker

import (
	"bufio"
	"errors"
	"net"
	"net/http"
)

// connBuffer is the size of the buffers of a connection, one for each direction,
// in bytes. net/http would leave 4 KiB each with every worker, most of which do
// nothing most of the time; what is larger passes the buffers by.
const connBuffer = 1 << 10

// smallBuffers is a ResponseWriter whose hijacked connection has small buffers.
type smallBuffers struct{ http.ResponseWriter }

// Unwrap lets http.ResponseController through.
func (w smallBuffers) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w smallBuffers) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if rw.Reader.Buffered() > 0 { // a worker that speaks before it was let in
		_ = conn.Close()
		return nil, nil, errors.New("the worker sent data before the upgrade")
	}
	return conn, bufio.NewReadWriter(bufio.NewReaderSize(conn, connBuffer), bufio.NewWriterSize(conn, connBuffer)), nil
}
