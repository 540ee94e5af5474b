package app

import (
	"encoding/json"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/agent"
	evidence "github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/observe"
)

// Methods of the conversation that a probe looks at.
const (
	acpInitialize = "initialize"
	acpNew        = "session/new"
)

// acpProbe keeps what was seen.
type acpProbe struct {
	o       ProbeACPOptions
	attempt string
	changed chan struct{} // something was seen
	exited  chan struct{}
	once    sync.Once // for exited

	mu         sync.Mutex
	attached   evidence.Report
	saw        []evidence.Evidence // at most maxProbeEvidence
	requests   map[string]int
	calls      map[string]string    // methods by the id of the request
	sent       map[string]time.Time // by method
	steps      [2]ACPStep           // initialize, session/new
	info       agent.Info
	advertised ACPAdvertised
	delivered  ACPDelivered
	answered   time.Time // session/new was
	stop       string
	writeErr   error
}

// maxProbeEvidence bounds what is kept; the first of each kind is all that counts.
const maxProbeEvidence = 1000

func (p *acpProbe) tell() {
	select {
	case p.changed <- struct{}{}:
	default: // told already
	}
}

// see takes evidence of the sentinel.
func (p *acpProbe) see(e evidence.Evidence) {
	e.AttemptID, e.ExecutionID = p.attempt, "probe"
	p.mu.Lock()
	defer p.mu.Unlock()
	if next, err := evidence.Reduce(p.attached, e); err == nil {
		p.attached = next
	}
	if len(p.saw) < maxProbeEvidence {
		p.saw = append(p.saw, e)
	}
	p.write(struct {
		Time time.Time     `json:"time"`
		Dir  string        `json:"dir"`
		Kind evidence.Kind `json:"event"`
		evidence.Detail
	}{e.OccurredAt, SentinelName, e.Kind, e.Detail})
	p.tell()
}

// trace takes the requests to the sentinel.
func (p *acpProbe) trace(x observe.Exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := x.Methods
	if len(names) == 0 && x.HTTPMethod != "POST" {
		names = []string{x.HTTPMethod}
	}
	for _, n := range names {
		if _, known := p.requests[n]; known || len(p.requests) < 64 {
			p.requests[n]++
		}
	}
	p.write(struct {
		Time         time.Time `json:"time"`
		Dir          string    `json:"dir"`
		Event        string    `json:"event"`
		HTTPMethod   string    `json:"http_method"`
		Methods      []string  `json:"methods,omitempty"`
		ConnectionID string    `json:"connection_id,omitempty"`
		Status       int       `json:"status"`
		MS           float64   `json:"ms"`
	}{x.At.UTC(), SentinelName, "request", x.HTTPMethod, x.Methods, x.ConnectionID, x.Status, float64(x.Took.Microseconds()) / 1000})
}

// write adds a line to the frames, under mu.
func (p *acpProbe) write(v any) {
	if b, err := json.Marshal(v); err == nil {
		p.writeLine(append(b, '\n'))
	}
}

func (p *acpProbe) writeLine(b []byte) {
	if p.o.Frames == nil || p.writeErr != nil {
		return
	}
	_, p.writeErr = p.o.Frames.Write(b)
}

func (p *acpProbe) wroteAll() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writeErr
}

// frameWriter takes the lines of the engine's recorder, each in one write.
type frameWriter struct{ p *acpProbe }

// Write implements io.Writer.
func (w frameWriter) Write(b []byte) (int, error) {
	now := time.Now()
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.writeLine(b)
	w.p.frame(b, now)
	return len(b), nil
}

// recorded is a line of the recorder, and a frame in it.
type recorded struct {
	Dir string `json:"dir"`
	Raw struct {
		ID     jsontext.Value  `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
		Result json.RawMessage `json:"result"`
	} `json:"raw"`
}

// frame notes the two requests that matter and their answers.
func (p *acpProbe) frame(line []byte, now time.Time) {
	if !p.answered.IsZero() {
		return
	}
	var r recorded
	if json.Unmarshal(line, &r) != nil {
		return
	}
	id := string(r.Raw.ID)
	switch m := r.Raw.Method; {
	case r.Dir == "sent" && (m == acpInitialize || m == acpNew):
		p.calls[id], p.sent[m] = m, now
		if m == acpNew {
			p.deliver(r.Raw.Params, now)
		}
	case r.Dir == "received" && m == "" && p.calls[id] != "":
		p.answer(p.calls[id], r.Raw.Result, now)
	}
}

// deliver notes whether the sentinel is in the request that opens a session.
func (p *acpProbe) deliver(params json.RawMessage, now time.Time) {
	var q struct {
		Servers []struct {
			Name string             `json:"name"`
			Type evidence.Transport `json:"type"`
		} `json:"mcpServers"`
	}
	_ = json.Unmarshal(params, &q)
	for _, s := range q.Servers {
		if s.Name == SentinelName {
			p.delivered = ACPDelivered{OK: true, Transport: s.Type}
			p.attached, _ = evidence.Reduce(p.attached, evidence.Evidence{
				AttemptID: p.attempt, ExecutionID: "probe", Server: SentinelName, Kind: evidence.ServerDelivered, OccurredAt: now,
				Detail: evidence.Detail{Source: evidence.SourceBuiltin, Transport: s.Type},
			})
		}
	}
}

func (p *acpProbe) answer(method string, result json.RawMessage, now time.Time) {
	ms := milliseconds(now.Sub(p.sent[method]))
	if method == acpNew {
		p.answered, p.steps[1] = now, ACPStep{OK: result != nil, MS: ms}
		return
	}
	p.steps[0] = ACPStep{OK: result != nil, MS: ms}
	var hello struct {
		AgentInfo struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"agentInfo"`
		Capabilities struct {
			MCP struct {
				HTTP jsontext.Value `json:"http"`
				SSE  jsontext.Value `json:"sse"`
			} `json:"mcpCapabilities"`
		} `json:"agentCapabilities"`
	}
	_ = json.Unmarshal(result, &hello)
	p.info.Name, p.info.Version = hello.AgentInfo.Name, hello.AgentInfo.Version
	p.advertised = ACPAdvertised{HTTP: offered(hello.Capabilities.MCP.HTTP), SSE: offered(hello.Capabilities.MCP.SSE)}
}

// offered reads a capability: true, or an object.
func offered(v jsontext.Value) bool { return v.Kind() == 't' || v.Kind() == '{' }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// started notes the engine's decisions.
func (p *acpProbe) started(info agent.Info) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.info = info
	for _, i := range info.Injected {
		if i.Server == SentinelName && i.Transport == "" {
			p.delivered.Reason = i.Reason
		}
	}
}

func (p *acpProbe) listed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.attached.CurrentAttempt().Server(SentinelName)
	return a != nil && !a.ToolsListedAt.IsZero()
}

// observation is the first of the kind, with what is known of it.
func (p *acpProbe) observation(kind evidence.Kind) ACPObservation {
	var o ACPObservation
	for _, e := range p.saw {
		if e.Kind != kind {
			continue
		}
		o.Times++
		if o.Times == 1 {
			o.OK, o.MS = true, milliseconds(e.OccurredAt.Sub(p.sent[acpNew]))
			o.Era, o.ProtocolVersion, o.ClientName, o.ClientVersion, o.Tool = e.Era, e.ProtocolVersion, e.ClientName, e.ClientVersion, e.Tool
		}
		o.ToolCount = e.ToolCount
	}
	return o
}

// report tells what was seen until now.
func (p *acpProbe) report(err error, stderr string) ACPReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := ACPReport{
		Command: filepath.Base(p.o.Command[0]), AgentName: p.info.Name, AgentVersion: p.info.Version,
		Initialized: p.steps[0], Advertised: p.advertised, Delivered: p.delivered, Session: p.steps[1],
		Initialize: p.observation(evidence.InitializeObserved), Discover: p.observation(evidence.DiscoverObserved),
		ToolsList: p.observation(evidence.ToolsListObserved), ToolCall: p.observation(evidence.ToolCallObserved),
		Requests: p.requests, Stop: p.stop,
	}
	r.Server = p.attached.CurrentAttempt().Server(SentinelName)
	r.ToolCall.Asked = new(p.o.Prompt != "")
	for _, e := range p.saw {
		if p.answered.IsZero() || e.OccurredAt.Before(p.answered) {
			r.BeforeSession, r.BlockedOnMCP = true, p.answered.IsZero()
		}
	}
	r.Observed = err == nil && r.ToolsList.OK && (r.ToolCall.OK || p.o.Prompt == "")
	if err != nil {
		r.Error, r.Stderr = err.Error(), stderr
	}
	return r
}
