package gateway

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/worker"
)

// PeersPath is where gateways use each other's sessions, with POST.
const PeersPath = peersPath + "{session}/{verb}"

const (
	peersPath = "/v1/peers/sessions/"
	// maxAnswer bounds a request and an answer between gateways, in bytes.
	maxAnswer = worker.MaxMessage + 64<<10
	// maxFlights bounds the calls that run here for others.
	maxFlights = 4096
)

// verb is what a gateway asks of another one about a session.
type verb string

const (
	verbCall    verb = "call"
	verbCancel  verb = "cancel"
	verbRelease verb = "release"
	verbRecord  verb = "record"
)

type (
	callRequest struct {
		ID        string         `json:"id"`
		Tool      string         `json:"tool"`
		Arguments jsontext.Value `json:"arguments"`
		// Received are calls of before whose results have arrived.
		Received []string `json:"received,omitempty"`
	}
	cancelRequest struct {
		ID string `json:"id"`
	}
	releaseRequest struct {
		Reason worker.Reason `json:"reason"`
	}
)

// fault is an error on its way between gateways.
type fault struct {
	Kind    string         `json:"kind"`
	Message string         `json:"message"`
	Code    int64          `json:"code,omitzero"` // of a worker's error, as its data
	Data    jsontext.Value `json:"data,omitzero"`
}

const faultOfWorker = "worker"

// Every error that a caller branches on.
var faults = []struct {
	kind string
	err  error
}{
	{"draining", worker.ErrDraining},
	{"conflict", worker.ErrConflict},
	{"elsewhere", errElsewhere},
	{"releasing", worker.ErrReleasing},
	{"over", worker.ErrOver},
	{"busy", worker.ErrBusy},
	{"unknown_tool", worker.ErrUnknownTool},
	{"unknown_outcome", worker.ErrUnknownOutcome},
	{"cancelled", context.Canceled},
}

func writeFault(err error) fault {
	var remote *worker.RemoteError
	if errors.As(err, &remote) {
		return fault{faultOfWorker, remote.Message, remote.Code, remote.Data}
	}
	for _, f := range faults {
		if errors.Is(err, f.err) {
			return fault{Kind: f.kind, Message: err.Error()}
		}
	}
	return fault{Kind: "other", Message: err.Error()}
}

func readFault(text []byte) error {
	var f fault
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if f.Kind == faultOfWorker {
		return &worker.RemoteError{Code: f.Code, Message: f.Message, Data: f.Data}
	}
	for _, row := range faults {
		if row.kind == f.Kind {
			return fmt.Errorf("%w (its host: %.300s)", row.err, f.Message)
		}
	}
	return fmt.Errorf("its host: %.300s", f.Message)
}

// flightKey names a call that runs here for another gateway.
type flightKey struct{ session, id string }

// flight outlives the connection of whoever asked for it: a connection that breaks
// is no word of the caller, and a repetition joins.
type flight struct {
	tool   string
	args   string
	cancel context.CancelFunc
	done   chan struct{}
	out    jsontext.Value
	err    error
}

// Mount adds the routes on which other gateways use the sessions of the host. They
// authenticate by tokens of the gateways' own key and by nothing else.
func (c *Calls) Mount(mux *http.ServeMux) {
	mux.HandleFunc("POST "+PeersPath, c.serve)
}

func (c *Calls) serve(w http.ResponseWriter, r *http.Request) {
	id, err := c.tokens.authenticatePeer(bearer(r))
	if err != nil || id != r.PathValue("session") {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "the token is not of a gateway for this session", http.StatusUnauthorized)
		return
	}
	// A call takes as long as its tool; what bounds it is the session.
	control := http.NewResponseController(w)
	_, _ = control.SetReadDeadline(time.Now().Add(peerLife)), control.SetWriteDeadline(time.Time{})
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAnswer))
	if err != nil {
		http.Error(w, "the request could not be read", http.StatusBadRequest)
		return
	}
	s, err := c.held(id)
	if err != nil {
		answerFault(w, err)
		return
	}
	var out any
	switch verb(r.PathValue("verb")) {
	case verbCall:
		var q callRequest
		if json.Unmarshal(body, &q) != nil || q.ID == "" {
			http.Error(w, "the call is not of this shape", http.StatusBadRequest)
			return
		}
		s.Received(q.Received[:min(len(q.Received), maxReceipts)]...)
		var result jsontext.Value
		result, err = c.fly(r.Context(), s, q)
		out = map[string]jsontext.Value{"result": result}
	case verbCancel:
		var q cancelRequest
		if json.Unmarshal(body, &q) == nil {
			c.land(flightKey{id, q.ID})
		}
		out = struct{}{}
	case verbRelease:
		var q releaseRequest
		if json.Unmarshal(body, &q) != nil || !q.Reason.Valid() {
			http.Error(w, "the reason is not of the contract", http.StatusBadRequest)
			return
		}
		var rec worker.Record
		if rec, err = s.Release(r.Context(), q.Reason); err == nil && !rec.State.Final() {
			err = errElsewhere
		}
		out = recordText(rec)
	case verbRecord:
		out = recordText(s.Record())
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		answerFault(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.MarshalWrite(w, out)
}

// recordText writes a record as stores do.
func recordText(rec worker.Record) jsontext.Value {
	text, err := stdjson.Marshal(rec)
	if err != nil { // no value of it can fail
		return jsontext.Value("{}")
	}
	return text
}

func (c *Calls) held(id string) (*worker.Session, error) {
	if c.host == nil {
		return nil, errElsewhere
	}
	s, err := c.host.Session(id)
	if err != nil {
		return nil, errElsewhere
	}
	return s, nil
}

func answerFault(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusConflict)
	_ = json.MarshalWrite(w, writeFault(err))
}

// fly runs a call, or joins the one of its id, until it ends or whoever asked is
// gone.
func (c *Calls) fly(ctx context.Context, s *worker.Session, q callRequest) (jsontext.Value, error) {
	key := flightKey{s.ID(), q.ID}
	c.mu.Lock()
	f := c.flights[key]
	switch {
	case c.closed:
		c.mu.Unlock()
		return nil, errElsewhere
	case f == nil && len(c.flights) >= maxFlights:
		c.mu.Unlock()
		return nil, worker.ErrBusy
	case f != nil && (f.tool != q.Tool || f.args != string(q.Arguments)):
		c.mu.Unlock()
		return nil, fmt.Errorf("the call id %.40q is that of another call", q.ID)
	case f == nil:
		call, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{tool: q.Tool, args: string(q.Arguments), cancel: cancel, done: make(chan struct{})}
		c.flights[key] = f
		c.work.Go(func() {
			defer cancel()
			f.out, f.err = s.CallRaw(call, q.Tool, q.Arguments, &worker.CallOptions{ID: q.ID})
			c.mu.Lock()
			delete(c.flights, key)
			c.mu.Unlock()
			close(f.done)
		})
	}
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.out, f.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// land ends a call whose caller gave up.
func (c *Calls) land(key flightKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.flights[key]; f != nil {
		f.cancel()
	}
}
