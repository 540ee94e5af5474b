package sse

import (
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxMessage bounds what is kept of the body of an answer without a stream.
const maxMessage = 256

// check reports whether a response is an event stream. A body that is none is
// read for its beginning only.
func check(res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
		if err != nil || kind != "text/event-stream" {
			return &ContentTypeError{res.Header.Get("Content-Type")}
		}
		return nil
	}
	e := &StatusError{Code: res.StatusCode, RetryAfter: retryAfter(res.Header.Get("Retry-After"), time.Now())}
	if kind := res.Header.Get("Content-Type"); strings.HasPrefix(kind, "text/plain") || strings.Contains(kind, "json") {
		// One read, which the watchdog of the connection no longer guards: what
		// has not come with the headers is not awaited.
		if n := res.ContentLength; n > 0 && n <= maxMessage {
			b, _ := io.ReadAll(io.LimitReader(res.Body, maxMessage))
			e.Message = printable(string(b))
		}
	}
	return e
}

func printable(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, s))
}

// retryAfter understands both forms of the header.
func retryAfter(value string, now time.Time) time.Duration {
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), MaxRetryAfter)
	}
	if value == "" || strings.Trim(value, "0123456789") != "" {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n > int64(MaxRetryAfter/time.Second) {
		return MaxRetryAfter
	}
	return time.Duration(n) * time.Second
}
