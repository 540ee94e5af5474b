package shim

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

func placed(t testing.TB, stream io.Reader) string {
	t.Helper()
	target, err := url.Parse("https://me:secret@mcp.example/base/sse?key=k")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target, o: ProxyOptions{Prefix: "/via/t"}}
	body, err := io.ReadAll(&firstEvent{Closer: io.NopCloser(nil), r: bufio.NewReaderSize(stream, maxEndpoint), endpoint: p.here})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// The endpoint that a server of the older transport names is found below our own
// path; nothing else of a stream changes, however it comes.
func TestEndpointOfAStream(t *testing.T) {
	t.Parallel()
	long := "event: endpoint\ndata: /" + strings.Repeat("x", maxEndpoint) + "\n\n"
	for in, want := range map[string]string{
		"event: endpoint\ndata: /messages?s=1\n\ndata: /messages?s=1\n\n":  "event: endpoint\ndata: /via/t/messages?s=1\n\ndata: /messages?s=1\n\n",
		": hello\r\nevent:endpoint\r\ndata:messages?s=1\r\n\r\n":           ": hello\r\nevent:endpoint\r\ndata: /via/t/base/messages?s=1\r\n\r\n",
		"event: endpoint\ndata: https://mcp.example/m%2Fx?a=b#c\n\n":       "event: endpoint\ndata: /via/t/m%2Fx?a=b#c\n\n",
		"event: endpoint\ndata: https://other.example/m\n\n":               "event: endpoint\ndata: https://other.example/m\n\n",
		"event: endpoint\ndata: http://mcp.example/m\n\n":                  "event: endpoint\ndata: http://mcp.example/m\n\n",
		"event: message\ndata: {}\n\nevent: endpoint\ndata: /messages\n\n": "event: message\ndata: {}\n\nevent: endpoint\ndata: /messages\n\n",
		"data: {\"x\":1}\n\nevent: endpoint\ndata: /messages\n\n":          "data: {\"x\":1}\n\nevent: endpoint\ndata: /messages\n\n",
		"event: endpoint\ndata: %zz\n\n":                                   "event: endpoint\ndata: %zz\n\n",
		"event: endpoint\ndata: /cut off":                                  "event: endpoint\ndata: /cut off",
		long:                                                               long,
		"":                                                                 "",
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "bytes": iotest.OneByteReader(strings.NewReader(in))} {
			if got := placed(t, r); got != want {
				t.Errorf("%s, %.60q: %.90q, want %.90q", name, in, got, want)
			}
		}
	}
}

// A request below our path goes to the same place of the server, and nowhere else.
func TestInto(t *testing.T) {
	t.Parallel()
	target, _ := url.Parse("https://mcp.example/base/mcp?key=k")
	p := &Proxy{target: target, o: ProxyOptions{Prefix: "/via/t"}}
	for in, want := range map[string]string{
		"/via/t":                 "https://mcp.example/base/mcp?key=k",
		"/via/t?other=1":         "https://mcp.example/base/mcp?key=k",
		"/via/t/messages?s=1":    "https://mcp.example/messages?s=1",
		"/via/t/m%2Fx":           "https://mcp.example/m%2Fx",
		"/via/t//evil.example/x": "https://mcp.example//evil.example/x",
	} {
		r, err := http.NewRequest(http.MethodPost, "https://mcp.example"+in, http.NoBody) //nolint:noctx // it is not sent
		if err != nil {
			t.Fatal(err)
		}
		p.into(r)
		if got := r.URL.String(); got != want {
			t.Errorf("%s goes to %s, want %s", in, got, want)
		}
	}
}

// A stream is the same however it is cut into pieces, and only lines of its first
// event change.
func FuzzFirstEvent(f *testing.F) {
	f.Add([]byte("event: endpoint\ndata: /messages?s=1\n\ndata: x\n\n"))
	f.Add([]byte("event: endpoint\r\ndata: https://mcp.example/m\r\n\r\n"))
	f.Add([]byte("data: x\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, pieces := placed(t, bytes.NewReader(in)), placed(t, iotest.OneByteReader(bytes.NewReader(in)))
		if whole != pieces {
			t.Errorf("%q whole, %q in pieces", whole, pieces)
		}
		if !bytes.Contains(in, []byte("endpoint")) && whole != string(in) {
			t.Errorf("%q became %q", in, whole)
		}
		if a, b := strings.Count(whole, "\n"), bytes.Count(in, []byte("\n")); a != b {
			t.Errorf("%d lines became %d", b, a)
		}
	})
}
