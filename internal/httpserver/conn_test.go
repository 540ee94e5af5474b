package httpserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A body that a handler has left is not awaited longer than its deadline, and
// who takes a connection over gets it as it came.
func TestConnectionsOfHandlers(t *testing.T) {
	t.Parallel()
	s := newSite(t, &Options{Routes: []Route{
		{Pattern: "POST /impatient", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now())
			WriteProblem(w, http.StatusRequestTimeout, "too slow")
		})},
		{Pattern: "GET /take", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			own := ConnOf(r.Context())
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil || own != conn {
				t.Errorf("%T, %v", conn, err)
				return
			}
			var sealed []byte
			socket := own.Divert(func(b []byte) (int, error) {
				sealed = append(sealed, b...)
				return len(b), nil
			})
			if _, err := own.SyscallConn(); err == nil {
				t.Error("the socket is still there")
			}
			_, _ = fmt.Fprint(conn, "as it came")
			_, _ = fmt.Fprint(socket, strings.ToUpper(string(sealed)))
			_ = conn.Close()
			_ = socket.Close()
		})},
	}})
	for request, want := range map[string]string{
		"POST /impatient HTTP/1.1\r\nContent-Length: 100": "408 Request Timeout",
		"GET /take HTTP/1.1":                              "AS IT CAME",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(writeTime / 2))
		_, _ = fmt.Fprintf(conn, "%s\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n", request, testToken)
		b, err := io.ReadAll(bufio.NewReader(conn))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %q, %v", request, b, err)
		}
		_ = conn.Close()
	}
}
