package scripted

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

type (
	object = map[string]any
	array  = []any
)

// wire is one protocol: how to read a request and how to write a reply.
type wire struct {
	api   API
	parse func(r *http.Request, body []byte) (Turn, error)
	write func(out *output, t Turn, r Reply)
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, prefix := range []string{"", "/v1"} {
		mux.Handle("POST "+prefix+"/chat/completions", s.serve(wire{Chat, parseChat, writeChat}))
		mux.Handle("POST "+prefix+"/responses", s.serve(wire{Responses, parseResponses, writeResponses}))
		mux.Handle("POST "+prefix+"/messages", s.serve(wire{Anthropic, parseAnthropic, writeAnthropic}))
		mux.HandleFunc("POST "+prefix+"/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, object{"input_tokens": 10})
		})
		mux.HandleFunc("GET "+prefix+"/models", func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, object{"object": "list", "data": array{
				object{"id": s.o.Model, "object": "model", "created": 1, "owned_by": "scripted"},
			}})
		})
	}
	gemini := s.serve(wire{Gemini, parseGemini, writeGemini})
	// Gemini puts the verb after a colon, which ServeMux cannot match.
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "enerateContent"):
			gemini.ServeHTTP(w, r)
		case strings.HasSuffix(r.URL.Path, ":countTokens"):
			writeJSON(w, http.StatusOK, object{"totalTokens": 10})
		default:
			writeError(w, http.StatusNotFound, "no such path")
		}
	})
	return mux
}

func (s *Server) serve(p wire) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			status := http.StatusBadRequest
			var big *http.MaxBytesError
			if errors.As(err, &big) {
				status = http.StatusRequestEntityTooLarge
			}
			writeError(w, status, err.Error())
			return
		}
		turn, err := p.parse(r, body)
		if err != nil {
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
		turn.N, turn.API, turn.Body = s.next(), p.api, body[:min(len(body), maxKeptBody)]
		reply := s.o.Reply(turn)
		s.keep(Record{Turn: turn, Reply: reply})
		if !pause(r, reply.Delay) {
			s.aborted(turn.N)
			return
		}
		if reply.Status != 0 && reply.Status != http.StatusOK {
			writeError(w, reply.Status, "scripted failure")
			return
		}
		out := &output{w: w}
		if turn.Stream {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
		}
		p.write(out, turn, reply)
	})
}

// pause waits and reports whether the client is still there.
func pause(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// output writes server-sent events or one JSON document. Write errors mean
// that the client went away, which its request context tells better.
type output struct{ w http.ResponseWriter }

func (o *output) event(name string, v any) {
	if name != "" {
		_, _ = fmt.Fprintf(o.w, "event: %s\n", name)
	}
	_, _ = fmt.Fprintf(o.w, "data: %s\n\n", encode(v))
	_ = http.NewResponseController(o.w).Flush()
}

func (o *output) document(v any) { writeJSON(o.w, http.StatusOK, v) }

// encode writes deterministic JSON; raw strings like "[DONE]" pass as rawText.
func encode(v any) []byte {
	if raw, ok := v.(rawText); ok {
		return []byte(raw)
	}
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		// Only a script whose Args are not JSON gets here.
		return []byte(`{"error":{"message":"scripted reply is not JSON"}}`)
	}
	return b
}

type rawText string

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(v))
}

func writeError(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, object{"error": object{"message": text, "type": "scripted_error", "code": status}})
}
