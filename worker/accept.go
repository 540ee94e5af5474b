package worker

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/coder/websocket"

	"github.com/ossicle/ossicle/internal/logattr"
)

// retryAfter is what a host that takes no upgrade now asks for, in seconds.
const retryAfter = 1

// subprotocols are the majors that the host accepts, newest first.
func (h *Host) subprotocols() []string {
	var out []string
	for _, text := range h.o.Channels {
		if v, err := ParseVersion(text); err == nil {
			out = append(out, subprotocolOf(v.Major))
		}
	}
	return out
}

// ServeHTTP is the upgrade of a worker. Nothing of a session exists before the
// token was accepted: an upgrade without one is answered 401 and leaves no
// trace. Then: 403 for a session that is over, 426 with our majors for a worker
// of another, 503 with Retry-After while we drain or too many handshakes are
// under way. What cannot be an upgrade is answered 405.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "workers come by an upgrade of GET", http.StatusMethodNotAllowed)
		return
	}
	id, err := h.auth.Authenticate(r.Context(), bearer(r))
	if err != nil || id == "" {
		w.Header().Set("WWW-Authenticate", challenge)
		http.Error(w, "the token is missing or not valid", http.StatusUnauthorized)
		return
	}
	s, err := h.find(r.Context(), id)
	switch {
	case errors.Is(err, ErrUnknownSession), errors.Is(err, ErrOver):
		w.Header().Set("WWW-Authenticate", challenge)
		http.Error(w, "the session is over", http.StatusForbidden)
		return
	case err != nil:
		h.later(w)
		return
	}
	defer s.leave()
	offered := offeredSubprotocols(r)
	if !slices.ContainsFunc(offered, func(p string) bool { return slices.Contains(h.subprotocols(), p) }) {
		h.refuseMajor(w, s, offered)
		return
	}
	if !h.takeSlot() {
		h.later(w)
		return
	}
	h.upgrade(w, r, s)
}

// Realm names what a host guards, in WWW-Authenticate of 401 and 403: so whoever
// looks at a URL tells a host that refuses a token from all other web servers,
// without a token and without learning a version.
const Realm = "agentfy.worker"

const challenge = `Bearer realm="` + Realm + `"`

// bearer returns the token of a request, or "".
func bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || len(r.Header.Values("Authorization")) != 1 || !validToken(token) {
		return ""
	}
	return token
}

func offeredSubprotocols(r *http.Request) []string {
	var out []string
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		out = append(out, splitList(line)...)
	}
	return out
}

// refuseMajor answers 426 with both lists.
func (h *Host) refuseMajor(w http.ResponseWriter, s *Session, offered []string) {
	ours := strings.Join(h.subprotocols(), ", ")
	theirs := strings.Join(offered, ", ")
	if len(theirs) > MaxCloseReason {
		theirs = theirs[:MaxCloseReason]
	}
	s.feed(hostVersion{ours, strings.ToValidUTF8(theirs, "?")})
	w.Header().Set("Upgrade", "websocket")
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Sec-WebSocket-Protocol", ours)
	http.Error(w, "this host speaks "+ours, http.StatusUpgradeRequired)
}

// later answers 503: the worker comes back within its window.
func (h *Host) later(w http.ResponseWriter) {
	w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	http.Error(w, "no handshake can begin now", http.StatusServiceUnavailable)
}

// takeSlot takes a place among the handshakes.
func (h *Host) takeSlot() bool {
	if !h.gate.enter() {
		return false
	}
	if !h.rate.Allow() || !h.enter() {
		h.gate.leave()
		return false
	}
	return true
}

// upgrade hands the connection to its session and returns, so that the memory
// of the HTTP request is free while the worker is connected.
func (h *Host) upgrade(w http.ResponseWriter, r *http.Request, s *Session) {
	done := h.gate.leave
	ws, err := websocket.Accept(smallBuffers{w}, r, &websocket.AcceptOptions{
		Subprotocols: h.subprotocols(),
		// Not a browser: the token authenticates, and an Origin means nothing.
		InsecureSkipVerify: true,
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		done()
		h.work.Done()
		h.o.Logger.InfoContext(r.Context(), "an upgrade failed", logattr.Session(s.id), logattr.Err(err))
		return
	}
	l, ctx := s.admit(ws, majorOf(ws.Subprotocol()), done)
	go func() {
		defer h.work.Done()
		s.serve(ctx, l)
	}()
}
