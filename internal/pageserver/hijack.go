package pageserver

import (
	"bufio"
	"net"
	"net/http"
)

// taken is a ResponseWriter that keeps the connection which is taken over: the
// close of a WebSocket waits for the client, and nothing but the end of the
// connection below ends that wait.
type taken struct {
	http.ResponseWriter
	conn net.Conn
}

// Unwrap lets http.ResponseController through.
func (w *taken) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w *taken) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.conn = conn
	return conn, rw, err
}
