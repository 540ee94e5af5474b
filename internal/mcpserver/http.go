package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Handler serves one URL to both eras. It belongs behind whatever checks Host,
// Origin and the caller: it does none of that itself. The http.Server needs
// WriteTimeout zero; every write has a deadline of its own.
func (s *Server) Handler() http.Handler { return s.http }

// httpHandler decides the era of each request. Both SDK handlers share one
// mcp.Server; the legacy one keeps sessions.
type httpHandler struct {
	s        *Server
	modern   http.Handler // stateless
	legacy   http.Handler // with sessions
	listens  http.Handler // the hub, in front of modern
	sessions *sessions
	requests *requests
}

func newHTTPHandler(s *Server) *httpHandler {
	get := func(*http.Request) *mcp.Server { return s.mcp } // the same one, or pushes reach nobody
	sdk := func(o mcp.StreamableHTTPOptions) http.Handler {
		o.Logger = slog.New(slog.DiscardHandler) // it logs per request, and what clients do wrong
		o.DisableLocalhostProtection = true      // the surface in front checks Host, with the names it serves
		o.MaxRequestBodyBytes = -1               // the body was read before, within its limit
		return mcp.NewStreamableHTTPHandler(get, &o)
	}
	h := &httpHandler{
		s:        s,
		modern:   sdk(mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}),
		legacy:   sdk(mcp.StreamableHTTPOptions{}),
		requests: newRequests(),
	}
	h.sessions = newSessions(s.opts.MaxSessions, s.opts.SessionIdle, h.endSession)
	h.listens = s.hub.Handler(http.HandlerFunc(h.serveOther))
	return h
}

// ServeHTTP implements http.Handler.
func (h *httpHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The hub takes listens by their header, and the connection with it; it
	// wants both untouched.
	h.listens.ServeHTTP(w, r)
}

// serveOther serves what is no listen.
func (h *httpHandler) serveOther(w http.ResponseWriter, r *http.Request) {
	ctx, done, ok := h.requests.begin(r)
	if !ok {
		refuseShutdown(w, nil)
		return
	}
	defer done()
	r = r.WithContext(ctx) //nolint:contextcheck // it is that of the request, ended by a shutdown
	switch r.Method {
	case http.MethodPost:
		h.servePost(w, r)
	case http.MethodGet, http.MethodDelete:
		h.serveSession(w, r)
	default:
		w.Header().Set("Allow", http.MethodPost)
		writeError(w, http.StatusMethodNotAllowed, nil, newError(codeInvalidRequest, "only POST is served here", nil))
	}
}

// serveSession serves GET and DELETE, which only legacy sessions have.
func (h *httpHandler) serveSession(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(headerSession)
	if id == "" || r.Header.Get(headerVersion) >= modernVersion {
		w.Header().Set("Allow", http.MethodPost)
		writeError(w, http.StatusMethodNotAllowed, nil, newError(codeInvalidRequest,
			"only POST is served here; GET and DELETE are for legacy sessions, which send "+headerSession, nil))
		return
	}
	defer h.sessions.use(id)()
	h.pass(h.legacy, w, r, nil)
	if r.Method == http.MethodDelete {
		h.sessions.forget(id)
	}
}

// servePost reads the message, which decides the era together with the header.
func (h *httpHandler) servePost(w http.ResponseWriter, r *http.Request) {
	body, status, fault := h.readBody(w, r)
	if fault != nil {
		writeError(w, status, nil, fault)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	header := r.Header.Get(headerVersion)
	if jsontext.Value(body).Kind() == '[' {
		h.serveBatch(w, r, header)
		return
	}
	f, fault := parseFrame(body)
	if fault != nil {
		writeError(w, http.StatusBadRequest, f.ID, fault)
		return
	}
	if header >= modernVersion || f.modern() || f.method() == methodDiscover {
		h.serveModern(w, r, &f, header)
		return
	}
	h.serveLegacy(w, r, &f, header, body)
}

// readBody reads the whole body within its bounds of size and time.
func (h *httpHandler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, int, *jsonrpc.Error) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(DefaultBodyTime)) // where it is not supported there is none
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.s.opts.MaxBody))
	_ = rc.SetReadDeadline(time.Time{})
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, http.StatusRequestEntityTooLarge, newError(codeInvalidRequest, "the request is larger than the limit: send less at once", map[string]any{"limit": tooLarge.Limit})
	case err != nil:
		return nil, http.StatusBadRequest, newError(codeInvalidRequest, "the request ended before its body: "+err.Error(), nil)
	case len(body) == 0:
		return nil, http.StatusBadRequest, newError(codeInvalidRequest, "the body is empty: POST one JSON-RPC message", nil)
	}
	return body, 0, nil
}

// serveModern serves one request of revision 2026-07-28.
func (h *httpHandler) serveModern(w http.ResponseWriter, r *http.Request, f *frame, header string) {
	if header == "" && f.version() == "" {
		writeError(w, http.StatusBadRequest, f.ID, newError(codeInvalidParams,
			f.method()+" is of revision "+modernVersion+": send the "+headerVersion+" header and _meta", nil))
		return
	}
	// Left-overs of a legacy client; this era has neither.
	r.Header.Del(headerSession)
	r.Header.Del(headerLastEventID)
	h.pass(h.modern, w, r, f)
}

// serveLegacy serves one message of a session, or begins one.
func (h *httpHandler) serveLegacy(w http.ResponseWriter, r *http.Request, f *frame, header string, body []byte) {
	id := r.Header.Get(headerSession)
	initialize := f.method() == methodInitialize
	switch {
	case header != "" && !slices.Contains(legacyVersions, header):
		writeError(w, http.StatusBadRequest, f.ID, notSupported(header))
		return
	case id == "" && !initialize:
		writeError(w, http.StatusBadRequest, f.ID, newError(codeInvalidRequest,
			"there is no session: send initialize first, or the header and _meta of revision "+modernVersion+" with each request", nil))
		return
	case id != "" && initialize:
		writeError(w, http.StatusBadRequest, f.ID, newError(codeInvalidRequest,
			"this session is initialized already: leave out "+headerSession+" to begin another", nil))
		return
	case !initialize:
		defer h.sessions.use(id)()
		h.pass(h.legacy, w, r, f)
		return
	}
	params, version := pinLegacy(f.Params)
	if version == "" {
		writeError(w, http.StatusBadRequest, f.ID, newError(codeInvalidParams, `initialize needs "protocolVersion", the newest revision that the client speaks`, nil))
		return
	}
	reserved := h.sessions.reserve()
	if reserved == nil {
		w.Header().Set("Retry-After", "60")
		writeError(w, http.StatusServiceUnavailable, f.ID, newError(CodeTooManyRequests,
			"too many sessions: try again later, or speak revision "+modernVersion+", which has none", map[string]any{"limit": h.s.opts.MaxSessions}))
		return
	}
	pinned := *f
	pinned.Params = params
	if b, err := json.Marshal(pinned); err == nil {
		body = b
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	defer reserved.release()
	sw := newStreamWriter(w, f, h.s.opts.KeepAlive)
	// Before the client can use the session.
	sw.onBegin = func(header http.Header) { reserved.begin(header.Get(headerSession)) }
	defer sw.finish()
	h.legacy.ServeHTTP(sw, r)
	if id := sw.header.Get(headerSession); id != "" && h.session(id) == nil {
		h.sessions.forget(id) // initialize failed, and the SDK dropped the session
	}
}

// session finds a legacy session of the SDK.
func (h *httpHandler) session(id string) *mcp.ServerSession {
	for ss := range h.s.mcp.Sessions() {
		if ss.ID() == id {
			return ss
		}
	}
	return nil
}

// serveBatch passes on a batch, which the SDK takes apart, if the session's
// revision can have one.
func (h *httpHandler) serveBatch(w http.ResponseWriter, r *http.Request, header string) {
	id := r.Header.Get(headerSession)
	if id == "" || header > lastBatchVersion {
		writeError(w, http.StatusBadRequest, nil, newError(codeInvalidRequest, "batches are of revision "+lastBatchVersion+" and in a session only: POST one message at a time", nil))
		return
	}
	defer h.sessions.use(id)()
	h.pass(h.legacy, w, r, nil)
}

// pass lets the SDK answer, on a stream that is kept alive and in step.
func (h *httpHandler) pass(to http.Handler, w http.ResponseWriter, r *http.Request, f *frame) {
	sw := newStreamWriter(w, f, h.s.opts.KeepAlive)
	defer sw.finish()
	to.ServeHTTP(sw, r)
}

// endSession closes a legacy session of the SDK.
func (h *httpHandler) endSession(id string) {
	if ss := h.session(id); ss != nil {
		_ = ss.Close()
	}
}

func (h *httpHandler) refuse() { h.requests.refuse() }

// shutdown waits for the requests under way and then ends the sessions.
func (h *httpHandler) shutdown(ctx context.Context) error {
	err := h.requests.wait(ctx)
	return errors.Join(err, h.sessions.close(ctx))
}

func refuseShutdown(w http.ResponseWriter, id jsontext.Value) {
	w.Header().Set("Retry-After", "5")
	writeError(w, http.StatusServiceUnavailable, id, newError(CodeShuttingDown, "the server is shutting down: try again in a moment", nil))
}

// writeError writes a JSON-RPC error as the whole response.
func writeError(w http.ResponseWriter, status int, id jsontext.Value, e *jsonrpc.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	_, _ = w.Write(appendErrorFrame(nil, id, e))
}

// appendErrorFrame appends an error response. Without an id the member is left
// out, as the schema of MCP wants it, and not null.
func appendErrorFrame(dst []byte, id jsontext.Value, e *jsonrpc.Error) []byte {
	wire := struct {
		JSONRPC string         `json:"jsonrpc"`
		ID      jsontext.Value `json:"id,omitempty"`
		Error   struct {
			Code    int64          `json:"code"`
			Message string         `json:"message"`
			Data    jsontext.Value `json:"data,omitempty"`
		} `json:"error"`
	}{JSONRPC: "2.0", ID: id}
	wire.Error.Code, wire.Error.Message, wire.Error.Data = e.Code, e.Message, jsontext.Value(e.Data)
	b, err := json.Marshal(wire, jsontext.AllowInvalidUTF8(true))
	if err != nil { // data that is no JSON is a mistake of ours, and not worth the response
		wire.Error.Data = nil
		b, _ = json.Marshal(wire, jsontext.AllowInvalidUTF8(true))
	}
	return append(dst, b...)
}
