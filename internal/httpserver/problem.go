package httpserver

import (
	"encoding/json"
	"net/http"
)

// Problem is an error in the form of RFC 9457.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"` // what to do
	// Output is the end of what an agent that failed wrote to its standard error, in
	// printable lines.
	Output []string `json:"output,omitempty"`
}

// Error implements error, for a client that has read one.
func (p *Problem) Error() string { return p.Detail }

// NewProblem returns the problem of a status. Detail says what is wrong and what
// to do.
func NewProblem(status int, detail string) Problem {
	return Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

// WriteProblem answers with an error in the form of RFC 9457. Detail says what is
// wrong and what to do.
func WriteProblem(w http.ResponseWriter, status int, detail string) {
	writeProblem(w, NewProblem(status, detail))
}

func writeProblem(w http.ResponseWriter, p Problem) {
	b, err := json.Marshal(p)
	if err != nil {
		b = []byte("{}")
	}
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(b, '\n'))
}
