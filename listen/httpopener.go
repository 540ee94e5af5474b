package listen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// DefaultIdleTimeout is the silence after which a stream that has keep-alive
// comments counts as dead: three times the usual interval of 15 s.
const DefaultIdleTimeout = 45 * time.Second

// maxRefusal bounds what is read of a reply that is no event stream, in bytes.
const maxRefusal = 1 << 20

// HTTPOptions refine an [HTTPOpener]. Zero fields take the defaults.
type HTTPOptions struct {
	// Client makes the requests; http.DefaultClient when nil. It must not have a
	// Timeout, for that would end every stream. Credentials are its transport's
	// business.
	Client     *http.Client
	ClientInfo ClientInfo
	// AckTimeout bounds an opening; [DefaultAckTimeout] when zero.
	AckTimeout time.Duration
	// IdleTimeout is the least silence that ends a stream which has keep-alive
	// comments; [DefaultIdleTimeout] when zero, none when negative. See
	// [HTTPOpener].
	IdleTimeout time.Duration
	// MaxEvent bounds one event, in bytes; [MaxEventSize] when zero.
	MaxEvent int
	// Logger hears of frames that are skipped; nil is none.
	Logger *slog.Logger
}

// HTTPOpener opens listens over Streamable HTTP, one POST and one event stream
// each.
//
// A peer can vanish without a trace on its connection. Where the server sends
// keep-alive comments, silence is therefore judged: a stream ends as lost after
// IdleTimeout without a byte, or three times the longest pause that came before
// a comment if that is more. Before the server has shown that it keeps an
// interval nothing is judged, because many servers never send comments and a
// healthy stream of theirs may be silent for days. The timer of this watchdog
// is pushed on by what the server sends, so it never fires on a healthy stream.
type HTTPOpener struct {
	url string
	o   HTTPOptions
	seq atomic.Int64
}

// NewHTTPOpener returns an opener for the MCP endpoint at url.
func NewHTTPOpener(url string, o *HTTPOptions) *HTTPOpener {
	h := &HTTPOpener{url: url}
	if o != nil {
		h.o = *o
	}
	if h.o.Client == nil {
		h.o.Client = http.DefaultClient
	}
	if h.o.AckTimeout == 0 {
		h.o.AckTimeout = DefaultAckTimeout
	}
	if h.o.IdleTimeout == 0 {
		h.o.IdleTimeout = DefaultIdleTimeout
	}
	if h.o.Logger == nil {
		h.o.Logger = slog.New(slog.DiscardHandler)
	}
	return h
}

// Open posts subscriptions/listen and waits for the acknowledgement.
func (h *HTTPOpener) Open(ctx context.Context, f Filter) (*Stream, error) {
	body, err := h.frame(f)
	if err != nil {
		return nil, err
	}
	ctx, stopOpening := context.WithTimeoutCause(ctx, h.o.AckTimeout, ErrNoAck)
	defer stopOpening()
	// The request outlives ctx, which ends it only until the acknowledgement.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, cancel)

	resp, err := h.post(life, body) //nolint:bodyclose // the reader below closes it, at the end of the stream
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("open listen: %w", err)
	}
	if !isEventStream(resp) {
		defer cancel()
		return nil, httpRefusal(resp)
	}

	reader := &httpStream{body: resp.Body, gone: make(chan struct{}), opener: h}
	s := newStream(f, nil)
	end := func() {
		cancel()
		reader.close()
		<-reader.gone
	}
	s.close, reader.s = end, s
	go reader.run(cancel)
	err = s.awaitAck(ctx)
	if err == nil && !detach() {
		err = fmt.Errorf("open listen: %w", context.Cause(ctx))
	}
	if err != nil {
		end()
		return nil, err
	}
	return s, nil
}

func (h *HTTPOpener) frame(f Filter) ([]byte, error) {
	params, err := listenFrame(h.o.ClientInfo, f)
	if err != nil {
		return nil, err
	}
	id := strconv.Quote("ossicle-listen-" + strconv.FormatInt(h.seq.Add(1), 10))
	return json.Marshal(envelope{JSONRPC: "2.0", ID: jsontext.Value(id), Method: methodListen, Params: params})
}

func (h *HTTPOpener) post(ctx context.Context, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", mimeJSON)
	req.Header.Set("Accept", mimeJSON+", "+mimeEventStream)
	req.Header.Set(headerProtocolVersion, ProtocolVersion)
	req.Header.Set(headerMethod, methodListen)
	return h.o.Client.Do(req)
}

func isEventStream(resp *http.Response) bool {
	t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return t == mimeEventStream && resp.StatusCode >= 200 && resp.StatusCode < 300
}

// StatusError is an HTTP reply that is neither an event stream nor a JSON-RPC
// message.
type StatusError struct {
	Status int    // HTTP status code
	Text   string // the beginning of the body
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("HTTP status %d %s", e.Status, http.StatusText(e.Status))
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// httpRefusal makes an error of a reply that is no event stream. A server without
// listen answers with HTTP 404, with -32601, or with both (known fault B-017).
func httpRefusal(resp *http.Response) error {
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return fmt.Errorf("open listen: HTTP status %d: %w", resp.StatusCode, err)
	}
	var m envelope
	if json.Unmarshal(body, &m) == nil && m.JSONRPC == "2.0" {
		switch {
		case m.Error != nil && m.Error.Code == codeMethodNotFound:
			return &NoListenError{Status: resp.StatusCode, Err: rpcError(m.Error)}
		case m.Error != nil:
			return fmt.Errorf("open listen: %w", &EndError{Reason: EndFailed, Err: rpcError(m.Error)})
		case m.Result != nil:
			return fmt.Errorf("open listen: %w", &EndError{Reason: EndGraceful})
		}
	}
	status := &StatusError{Status: resp.StatusCode, Text: excerpt(body)}
	if resp.StatusCode == http.StatusNotFound {
		return &NoListenError{Status: resp.StatusCode, Err: status}
	}
	return fmt.Errorf("open listen: %w", status)
}

// excerpt is the beginning of an untrusted body, for an error text.
func excerpt(b []byte) string {
	const limit = 200
	b = bytes.TrimSpace(b)
	if len(b) > limit {
		b = b[:limit]
	}
	return string(bytes.Map(func(r rune) rune {
		if r < ' ' || r == '\uFFFD' {
			return ' '
		}
		return r
	}, b))
}

// httpStream reads one event stream into its Stream.
type httpStream struct {
	s      *Stream
	opener *HTTPOpener
	body   io.ReadCloser
	once   sync.Once
	gone   chan struct{} // closed when run has returned
	dog    watchdog
}

func (h *httpStream) close() { h.once.Do(func() { _ = h.body.Close() }) }

// run reads until the stream ends, by whatever cause.
func (h *httpStream) run(cancel context.CancelFunc) {
	defer close(h.gone)
	defer cancel()
	defer h.close()
	h.dog.start(h.opener.o.IdleTimeout, func(quiet time.Duration) {
		h.s.finish(&EndError{Reason: EndLost, Err: &SilenceError{For: quiet}})
		h.close()
	})
	defer h.dog.stop()
	events := NewEventReader(&aliveReader{h.body, &h.dog}, h.opener.o.MaxEvent)
	events.Comment = h.dog.comment
	for h.s.Err() == nil {
		ev, err := events.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // the end of a stream is its result, not EOF
			}
			h.s.finish(&EndError{Reason: EndLost, Err: err})
			return
		}
		h.take(ev)
	}
}

// take handles one event. What is no frame of this listen is skipped.
func (h *httpStream) take(ev Event) {
	if ev.Type != "message" || len(ev.Data) == 0 {
		return
	}
	var m envelope
	if err := json.Unmarshal(ev.Data, &m); err != nil || m.JSONRPC != "2.0" {
		h.opener.o.Logger.Warn("skipped a malformed frame on a listen stream")
		return
	}
	switch {
	case m.Method == "" && m.Error != nil:
		h.s.finish(&EndError{Reason: EndFailed, Err: rpcError(m.Error)})
	case m.Method == "" && m.Result != nil:
		h.s.finish(&EndError{Reason: EndGraceful})
	case m.Method != "" && m.ID == nil:
		// The subscription id is not compared: one response carries one listen,
		// and gateways that rewrite request ids leave the ids in _meta alone.
		var p notificationParams
		if len(m.Params) > 0 && json.Unmarshal(m.Params, &p) != nil {
			h.opener.o.Logger.Warn("skipped a malformed frame on a listen stream")
			return
		}
		h.s.notification(m.Method, &p)
	}
}
