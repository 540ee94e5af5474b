package mcpclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/listen"
)

// maxErrorBody bounds what is read of an HTTP error, in bytes.
const maxErrorBody = 1 << 20

// guard is the http.RoundTripper under everything that goes to one server. It
// adds the configured headers, to that server only; it bounds and checks every
// message before the SDK sees it, because the SDK reads JSON bodies without a
// limit and ends the session over one bad message; it taps results. The SDK's
// Streamable HTTP transport must not be wrapped, so this is the one place for
// all that.
type guard struct {
	server  string
	origin  string // scheme and host of the server
	headers map[string]string
	sse     bool        // the old transport, where a GET is refused for want of access too
	auth    *authorizer // nil: none
	base    http.RoundTripper
	table   *taps
	log     *slog.Logger
}

func newGuard(spec Spec, base http.RoundTripper, table *taps, log *slog.Logger) (*guard, error) {
	u, err := url.Parse(spec.URL)
	if err != nil {
		return nil, fmt.Errorf("parse url: %w", err)
	}
	return &guard{server: spec.Name, origin: originOf(u), headers: spec.Headers, sse: spec.Transport == SSE, base: base, table: table, log: log}, nil
}

func originOf(u *url.URL) string { return u.Scheme + "://" + strings.ToLower(u.Host) }

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	t := tapOf(req.Context())
	id := requestID(req)
	t.register(string(id))
	resp, err := g.send(req)
	if err != nil {
		return nil, err
	}
	challenge := resp.Header.Get("WWW-Authenticate")
	t.noteStatus(resp.StatusCode)
	if (g.sse || req.Method == http.MethodPost) && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden) {
		_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody)
		_ = resp.Body.Close()
		return nil, &AuthError{Server: g.server, Status: resp.StatusCode, Detail: clip(challenge)}
	}
	if req.Header.Get("Mcp-Method") != "subscriptions/listen" {
		g.wrap(req.Context(), resp, id)
	} // the listen client checks for itself, and hears the comments
	return resp, nil
}

// send makes the request, with headers and credentials where they belong.
func (g *guard) send(req *http.Request) (*http.Response, error) {
	ours := originOf(req.URL) == g.origin
	r := req.Clone(req.Context())
	if ours {
		for k, v := range g.headers {
			r.Header.Set(k, v)
		}
	}
	if g.auth == nil || !ours {
		return g.base.RoundTrip(r)
	}
	return g.auth.roundTrip(g.base, r)
}

func clip(s string) string {
	const limit = 200
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "")
}

// requestID reads the id of the JSON-RPC request in a POST, as JSON.
func requestID(req *http.Request) jsontext.Value {
	if req.Method != http.MethodPost || req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(io.LimitReader(body, salvageLimit))
	if err != nil {
		return nil
	}
	var h header
	if json.Unmarshal(data, &h, lax) == nil {
		if h.Method == nil {
			return nil // a response of ours
		}
		return h.ID
	}
	return idAhead(data)
}

// idAhead finds the id of a large request in its beginning: the SDK writes it
// before the method.
func idAhead(data []byte) jsontext.Value {
	ahead, _, found := bytes.Cut(data, []byte(`,"method"`))
	if !found {
		return nil
	}
	id, _ := salvage(append(bytes.Clone(ahead), '}'))
	return id
}

// wrap puts the checks between the body and its reader.
func (g *guard) wrap(ctx context.Context, resp *http.Response, id jsontext.Value) {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	// What is checked has another length than what came.
	switch {
	case !ok:
		resp.Body = &readCloser{io.LimitReader(resp.Body, maxErrorBody), resp.Body}
	case media == "text/event-stream":
		events := listen.NewEventReader(resp.Body, maxFrame)
		events.All = true
		resp.Body = &readCloser{&eventBody{g: g, events: events, id: id, ctxLog: ctxLog(ctx, g.log)}, resp.Body}
	case media == "application/json":
		resp.Body = &readCloser{&jsonBody{g: g, src: resp.Body, id: id, ctxLog: ctxLog(ctx, g.log)}, resp.Body}
	default:
		return
	}
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
}

type readCloser struct {
	io.Reader
	io.Closer
}

// ctxLog logs with the context of the request, which a reader has no other way
// to get.
func ctxLog(ctx context.Context, log *slog.Logger) func(error) {
	return func(err error) {
		log.LogAttrs(ctx, slog.LevelWarn, "skipped a bad message", logattr.Err(err))
	}
}

// check passes a good message on and taps it. A bad one is replaced by an error
// for the request that waits, or by nothing.
func (g *guard) check(raw []byte, id jsontext.Value, report func(error)) []byte {
	h, _, err := checkFrame(raw)
	if err == nil {
		if h.Method == nil && h.Result != nil {
			g.table.observe(string(h.ID), h.Result, nil)
		}
		return raw
	}
	if h.ID != nil {
		id = h.ID
	}
	return g.refuse(id, err, report)
}

func (g *guard) refuse(id jsontext.Value, err error, report func(error)) []byte {
	report(err)
	if id == nil {
		return nil
	}
	g.table.observe(string(id), nil, err)
	// The text goes no further than the SDK; callers see err itself.
	return []byte(`{"jsonrpc":"2.0","id":` + string(id) + `,"error":{"code":-32700,"message":` + strconv.QuoteToASCII("bad message") + `}}`)
}

// jsonBody reads a whole JSON message before it hands any of it out.
type jsonBody struct {
	g      *guard
	src    io.Reader
	id     jsontext.Value
	ctxLog func(error)
	out    *bytes.Reader
}

func (b *jsonBody) Read(p []byte) (int, error) {
	if b.out == nil {
		data, err := io.ReadAll(io.LimitReader(b.src, maxFrame+1))
		switch {
		case err != nil:
			data = b.g.refuse(b.id, &FrameError{Problem: "cut off: " + err.Error()}, b.ctxLog)
		case len(data) > maxFrame:
			data = b.g.refuse(b.id, &FrameError{Problem: fmt.Sprintf("over %d bytes", maxFrame)}, b.ctxLog)
		case len(bytes.TrimSpace(data)) > 0 || b.id != nil:
			data = b.g.check(data, b.id, b.ctxLog)
		}
		b.out = bytes.NewReader(data)
	}
	return b.out.Read(p)
}

// eventBody reads events by the standard and writes the good ones anew, plainly
// enough for any reader.
type eventBody struct {
	g      *guard
	events *listen.EventReader
	id     jsontext.Value // of the request that this stream answers
	ctxLog func(error)
	out    bytes.Buffer
	err    error
}

func (b *eventBody) Read(p []byte) (int, error) {
	for b.out.Len() == 0 {
		if b.err != nil {
			return 0, b.err
		}
		ev, err := b.events.Next()
		if err != nil {
			b.err = err
			if errors.Is(err, listen.ErrEventTooLarge) {
				b.err = io.EOF
				b.write(listen.Event{Data: b.g.refuse(b.id, &FrameError{Problem: err.Error()}, b.ctxLog)})
			}
			continue
		}
		if len(ev.Data) > 0 && ev.Type == "message" {
			if ev.Data = b.g.check(ev.Data, b.id, b.ctxLog); ev.Data == nil {
				continue
			}
		}
		b.write(ev)
	}
	return b.out.Read(p)
}

func (b *eventBody) write(ev listen.Event) {
	if len(ev.Data) == 0 && ev.ID == "" && ev.Retry == "" {
		return
	}
	if ev.Type != "" && ev.Type != "message" {
		_, _ = fmt.Fprintf(&b.out, "event: %s\n", ev.Type)
	}
	if ev.ID != "" {
		_, _ = fmt.Fprintf(&b.out, "id: %s\n", ev.ID)
	}
	if ev.Retry != "" {
		_, _ = fmt.Fprintf(&b.out, "retry: %s\n", ev.Retry)
	}
	for line := range bytes.Lines(ev.Data) {
		_, _ = fmt.Fprintf(&b.out, "data: %s\n", bytes.TrimSuffix(line, []byte("\n")))
	}
	_ = b.out.WriteByte('\n')
}
