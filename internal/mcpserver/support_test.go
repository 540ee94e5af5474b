package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/memo"
	"github.com/ossicle/ossicle/listen"
)

// fixture is a server with a memo store and a source of oddities.
type fixture struct {
	*Server
	notes *memo.Store
	odd   *oddSource
	hub   *listen.Hub
	reg   *listen.Registry
}

func newFixture(t testing.TB, opts *Options, tools ...Tool) *fixture {
	t.Helper()
	f, err := makeFixture(opts, tools...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		if err := f.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		f.reg.Close()
	})
	return f
}

func makeFixture(opts *Options, tools ...Tool) (*fixture, error) {
	notes, err := memo.New(nil)
	if err != nil {
		return nil, err
	}
	f := &fixture{notes: notes, odd: newOddSource()}
	f.reg = listen.NewRegistry(&listen.RegistryOptions{Linger: -1})
	for _, s := range []listen.Source{notes, f.odd} {
		if err := f.reg.Mount(s); err != nil {
			return nil, err
		}
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Version == "" {
		o.Version = "1.2.3"
	}
	if o.Lists == nil {
		o.Lists = []listen.List{listen.ToolsList}
	}
	f.hub = listen.NewHub(f.reg, &listen.HubOptions{Lists: o.Lists})
	f.Server, err = New(f.reg, f.hub, append(MemoTools(notes), tools...), &o)
	return f, err
}

func (f *fixture) set(t testing.TB, key, value string) {
	t.Helper()
	if err := f.notes.Set(key, json.RawMessage(value)); err != nil {
		t.Fatal(err)
	}
}

// oddSource has an event log (odd://log), a blob (odd://blob), one that is
// static, one that panics, one that is slow, and any number of odd://item/N.
type oddSource struct {
	ring *listen.Ring

	mu      sync.Mutex
	items   int
	watched map[string]map[int]func()
	seq     int
}

func newOddSource() *oddSource {
	s := &oddSource{ring: listen.NewRing(nil), watched: map[string]map[int]func(){}}
	for i := range 3 {
		if _, err := s.ring.Append("ADDED", map[string]any{"object": map[string]int{"n": i}}); err != nil {
			panic(err)
		}
	}
	return s
}

func (s *oddSource) Owns(uri string) bool { return strings.HasPrefix(uri, "odd:") }

func (s *oddSource) List(context.Context) (listen.Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := listen.Listing{
		Resources: []listen.Resource{
			{URI: "odd://log", Name: "log", MIMEType: listen.EventLogMIME},
			{URI: "odd://blob", Name: "blob", Static: true},
		},
		Templates: []listen.Template{
			{URITemplate: "odd://item/{n}", Name: "item", Description: "an item"},
			{URITemplate: "odd://fixed/{n}", Name: "fixed", Static: true},
		},
	}
	for i := range s.items {
		l.Resources = append(l.Resources, listen.Resource{URI: fmt.Sprintf("odd://item/%03d", i)})
	}
	return l, nil
}

func (s *oddSource) Read(ctx context.Context, uri string, opts listen.ReadOptions) ([]listen.Contents, error) {
	switch {
	case uri == "odd://log":
		return []listen.Contents{{MIMEType: listen.EventLogMIME, Text: s.ring.Body(opts.After)}}, nil
	case uri == "odd://blob":
		return []listen.Contents{{MIMEType: "image/png", Blob: []byte{1, 2, 3}}}, nil
	case uri == "odd://panic":
		panic("odd")
	case uri == "odd://slow":
		<-ctx.Done()
		return nil, ctx.Err()
	case strings.HasPrefix(uri, "odd://item/"):
		return []listen.Contents{{URI: uri, MIMEType: "text/plain", Text: "<item>"}}, nil
	}
	return nil, &listen.NotFoundError{URI: uri, Hint: "did you mean: odd://log"}
}

func (s *oddSource) Watch(_ context.Context, uri string, changed func()) (func(), error) {
	if uri == "odd://blob" {
		return nil, listen.ErrNotWatchable
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	n := s.seq
	if s.watched[uri] == nil {
		s.watched[uri] = map[int]func(){}
	}
	s.watched[uri][n] = changed
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watched[uri], n)
		if len(s.watched[uri]) == 0 {
			delete(s.watched, uri)
		}
	}, nil
}

// watching returns how many URIs are observed.
func (s *oddSource) watching() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watched)
}

// Requests of the two eras.

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"}}`

// modernCall is a request of revision 2026-07-28; params are members, or empty.
func modernCall(id, method, params string) string {
	if params != "" {
		params = "," + params
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + modernMeta + params + `}}`
}

func legacyCall(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + `}}`
}

func notification(method, params string) string {
	return `{"jsonrpc":"2.0","method":"` + method + `","params":{` + params + `}}`
}

func initializeCall(id, version string) string {
	return legacyCall(id, "initialize", `"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"test","version":"1"}`)
}

func listenCall(id string, uris ...string) string {
	list, _ := json.Marshal(uris)
	return modernCall(id, "subscriptions/listen", `"notifications":{"resourceSubscriptions":`+string(list)+`}`)
}

// message is a frame as tests look at it.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		URI           string         `json:"uri"`
		RequestID     any            `json:"requestId"`
		Meta          map[string]any `json:"_meta"`
		Notifications struct {
			ResourceSubscriptions []string `json:"resourceSubscriptions"`
		} `json:"notifications"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int64           `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
	raw string
}

func (m message) String() string { return m.raw }

func (m message) subscription() string {
	b, _ := json.Marshal(m.Params.Meta["io.modelcontextprotocol/subscriptionId"])
	return string(b)
}

func parseMessage(t testing.TB, line string) message {
	t.Helper()
	m := message{raw: line}
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("not a frame: %q: %v", line, err)
	}
	return m
}

// members returns the members of a JSON object.
func members(t testing.TB, raw json.RawMessage) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return m
}
