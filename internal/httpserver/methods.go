package httpserver

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// otherMethods are the methods that a mux takes at the path of a request which it
// does not take. Its catch-all hides that from the mux itself, so it is asked
// without one.
func otherMethods(mux *http.ServeMux, r *http.Request) []string {
	h, pattern := mux.Handler(r)
	if pattern != "" {
		return nil
	}
	answer := &headAnswer{header: http.Header{}}
	h.ServeHTTP(answer, r)
	if answer.status != http.StatusMethodNotAllowed {
		return nil
	}
	return strings.Split(answer.header.Get("Allow"), ", ")
}

// headAnswer keeps the head of an answer.
type headAnswer struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (a *headAnswer) Header() http.Header { return a.header }

// Write implements http.ResponseWriter.
func (a *headAnswer) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader implements http.ResponseWriter.
func (a *headAnswer) WriteHeader(status int) { a.status = status }

// notAllowed answers 405 with the methods that there are.
func notAllowed(w http.ResponseWriter, methods []string) {
	set := map[string]bool{}
	for _, m := range methods {
		set[m] = true
	}
	allow := strings.Join(slices.Sorted(maps.Keys(set)), ", ")
	w.Header().Set("Allow", allow)
	WriteProblem(w, http.StatusMethodNotAllowed, "this path takes "+allow)
}
