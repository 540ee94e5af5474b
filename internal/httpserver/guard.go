package httpserver

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// guard refuses requests that a web page has tricked a browser into sending: by
// a name that points to us (DNS rebinding), or across origins.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.hostAllowed(r) {
			WriteProblem(w, http.StatusForbidden, "this server is not known by the name in the Host header; whoever runs it can allow the name")
			return
		}
		origin := r.Header.Get("Origin")
		if origin != "" && !s.originAllowed(origin, r) {
			WriteProblem(w, http.StatusForbidden, "requests of this Origin are not served; whoever runs the server can allow it")
			return
		}
		if origin != "" {
			allowOrigin(w.Header(), origin)
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// hostAllowed checks the Host header. Whoever comes over loopback must use a
// loopback name; others any name, unless names are configured: there the token
// protects.
func (s *Server) hostAllowed(r *http.Request) bool {
	host := hostname(r.Host)
	if slices.Contains(s.hosts, host) {
		return true
	}
	if overLoopback(r) {
		return isLoopbackName(host)
	}
	return len(s.hosts) == 0 && host != ""
}

// originAllowed checks the Origin header: our own, or one that is configured.
func (s *Server) originAllowed(origin string, r *http.Request) bool {
	if slices.Contains(s.opts.Origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, r.Host)
}

// allowOrigin lets the page read the answer.
func allowOrigin(h http.Header, origin string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Accept, Last-Event-ID, Idempotency-Key, Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name")
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate, Retry-After")
}

// hostname is a Host header without its port, in lower case.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// overLoopback reports whether a connection was made to a loopback address, or
// to a unix socket.
func overLoopback(r *http.Request) bool {
	switch a := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}
