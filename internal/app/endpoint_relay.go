package app

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"

	evidence "github.com/ossicle/ossicle/attach"
)

const (
	// relayPath is below which agents reach servers of others.
	relayPath = "/via"
	// maxEvidenceLine bounds a line of a relay that is a process of its own.
	maxEvidenceLine = 64 << 10
	// keptAttempts are those over whose ways in traffic is still told.
	keptAttempts = evidence.MaxAttempts - 1
)

// relayURL is where a relay with the token is.
func (e *Endpoint) relayURL(token string) string { return e.base() + relayPath + "/" + token }

// serveRelay passes on what is for a server of others, as long as its attempt
// lasts.
func (e *Endpoint) serveRelay(w http.ResponseWriter, r *http.Request) {
	a := e.find(r)
	if a == nil || a.relays[r.PathValue("token")] == nil {
		http.NotFound(w, r)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.gone, cancel)()
	a.relays[r.PathValue("token")].ServeHTTP(w, r.WithContext(ctx))
}

// seenByRelays are the kinds of evidence that a relay can have.
var seenByRelays = map[evidence.Kind]bool{
	evidence.DiscoverObserved: true, evidence.InitializeObserved: true, evidence.ToolsListObserved: true, evidence.ToolCallObserved: true,
	evidence.RequestError: true, evidence.ServerError: true, evidence.ConnectionClosed: true,
}

// intake takes what a relay has seen that the agent started: one long request, a
// piece of evidence a line. Whose evidence it is, and when it came, is ours to
// say.
func (a *attempt) intake(server string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		lines := bufio.NewScanner(r.Body)
		lines.Buffer(nil, maxEvidenceLine)
		for lines.Scan() {
			var e evidence.Evidence
			switch err := json.Unmarshal(lines.Bytes(), &e); {
			case err != nil:
				w.WriteHeader(http.StatusBadRequest)
				return
			case e.Kind == evidence.SessionBlocked:
				a.stall()
			case seenByRelays[e.Kind]:
				a.take(evidence.Evidence{Server: server, Kind: e.Kind, Detail: e.Detail})
			}
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
