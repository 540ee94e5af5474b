package mcpclient

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ossicle/ossicle/listen"
)

// fakeEnv makes this test binary a stdio server that behaves as its words say.
const fakeEnv = "MCPCLIENT_TEST_SERVER"

func TestMain(m *testing.M) {
	if words, ok := os.LookupEnv(fakeEnv); ok {
		newFake(words).stdio()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// fake is a server in a few words, modern unless it is told otherwise. It writes
// raw JSON, so that it can be wrong in every way.
type fake struct {
	words map[string]bool

	mu      sync.Mutex
	listens map[string]fakeListen // by id as JSON
	legacy  map[string]bool       // subscribed URIs
	push    func(string)          // writes to the legacy client
	counts  map[string]int        // requests by method
	slow    time.Duration         // of the probe's answer
}

type fakeListen struct {
	uris []string
	send func(string)
	end  func()
}

func newFake(words string) *fake {
	f := &fake{words: map[string]bool{}, listens: map[string]fakeListen{}, legacy: map[string]bool{}, counts: map[string]int{}, slow: 400 * time.Millisecond}
	for w := range strings.FieldsSeq(words) {
		f.words[w] = true
	}
	return f
}

func (f *fake) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[method]
}

// stdio serves the pipes until they end.
func (f *fake) stdio() {
	if f.words["dies-at-once"] {
		fmt.Fprintln(os.Stderr, "cannot open the database")
		os.Exit(3)
	}
	if f.words["slow-start"] {
		time.Sleep(f.slow)
	}
	if f.words["stubborn"] {
		signal.Ignore(syscall.SIGTERM)
	}
	var mu sync.Mutex
	send := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		if f.words["noise"] {
			fmt.Print("Server is running...\n{\"level\":\"info\",\"msg\":\"hi\"}\n\n[debug] x\n")
		}
		fmt.Println(s)
	}
	f.push = send
	if f.words["banner"] {
		for i := range 20 {
			fmt.Println("banner line", i)
		}
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if f.words["stubborn"] {
				select {}
			}
			return
		}
		f.handle(line, send, nil)
	}
}

type fakeRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		URI           string          `json:"uri"`
		Name          string          `json:"name"`
		Arguments     json.RawMessage `json:"arguments"`
		Cursor        string          `json:"cursor"`
		RequestID     json.RawMessage `json:"requestId"`
		Notifications listen.Filter   `json:"notifications"`
		Meta          map[string]any  `json:"_meta"`
	} `json:"params"`
}

// handle answers one message. end, for a listen over HTTP, ends its response.
func (f *fake) handle(raw []byte, send func(string), end func()) {
	var r fakeRequest
	if err := json.Unmarshal(raw, &r); err != nil {
		fmt.Fprintln(os.Stderr, "bad request", err)
		return
	}
	f.mu.Lock()
	f.counts[r.Method]++
	f.mu.Unlock()
	result := func(body string) { send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, body)) }
	fail := func(code int, msg string) {
		send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, r.ID, code, msg))
	}
	const info = `"serverInfo":{"name":"fake","version":"1"}`
	const caps = `"capabilities":{"resources":{"subscribe":true},"tools":{}}`
	old := f.words["legacy"] || f.words["exits-on-probe"] || f.words["mute-probe"] || f.words["silent"]
	switch r.Method {
	case "server/discover":
		switch {
		case f.words["exits-on-probe"]:
			os.Exit(1)
		case f.words["silent"], f.words["mute-probe"]:
		case f.words["refuses-modern"]:
			fail(-32021, "missing capability")
		case old:
			fail(-32601, "Method not found")
		default:
			if f.words["slow-probe"] {
				time.Sleep(f.slow)
			}
			versions := "2026-07-28"
			if f.words["lists-legacy"] {
				versions = "2025-11-25"
			}
			result(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["` + versions + `"],` + caps + `,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}}`)
		}
	case "initialize":
		switch {
		case f.words["silent"]:
		case old, f.words["slow-probe"], f.words["lists-legacy"]:
			result(`{"protocolVersion":"2025-11-25",` + caps + `,` + info + `}`)
		default:
			fail(-32022, "unsupported protocol version")
		}
	case "resources/list":
		result(`{"resultType":"complete","ttlMs":60000,"cacheScope":"private","resources":[{"uri":"a:/1","name":"one","mimeType":"application/json","description":"d"},{"uri":"s:/1","name":"s","_meta":{"io.github.ossicle/watchable":false}}]}`)
	case "resources/templates/list":
		if f.words["no-templates"] {
			fail(-32601, "Method not found")
			return
		}
		result(`{"resultType":"complete","ttlMs":60000,"cacheScope":"private","resourceTemplates":[{"uriTemplate":"a:/{x}","name":"t"}]}`)
	case "resources/read":
		f.read(r, result, fail, send)
	case "tools/list":
		f.tools(r, result)
	case "tools/call":
		f.callTool(r, result, fail)
	case "subscriptions/listen":
		if f.words["no-listen"] {
			fail(-32601, "Method not found")
			return
		}
		f.listen(r, send, end)
	case "resources/subscribe":
		if r.Params.URI == "x:/refused" {
			fail(-32602, "no such resource")
			return
		}
		f.mu.Lock()
		f.legacy[r.Params.URI] = true
		f.mu.Unlock()
		result(`{}`)
	case "resources/unsubscribe":
		f.mu.Lock()
		delete(f.legacy, r.Params.URI)
		f.mu.Unlock()
		result(`{}`)
	case "notifications/cancelled":
		f.mu.Lock()
		delete(f.listens, string(r.Params.RequestID))
		f.mu.Unlock()
	}
}

func (f *fake) read(r fakeRequest, result func(string), fail func(int, string), send func(string)) {
	n := f.count("resources/read")
	text := func(s string) string {
		b, _ := json.Marshal(s)
		return fmt.Sprintf(`{"resultType":"complete","ttlMs":60000,"cacheScope":"private","contents":[{"uri":%q,"mimeType":"text/plain","text":%s}]}`, r.Params.URI, b)
	}
	switch uri := r.Params.URI; uri {
	case "t:/huge":
		result(text(strings.Repeat("x", maxFrame+1000)))
	case "t:/large":
		result(text(strings.Repeat("x", maxFrame-1000)))
	case "t:/duplicates":
		result(`{"contents":[{"uri":"t:/d","text":"a","text":"b"}]}`)
	case "t:/case":
		send(fmt.Sprintf(`{"jsonrpc":"2.0","ID":%s,"id":%s,"result":{"Contents":[{"uri":"t:/case","text":"no"}],"contents":[{"uri":"t:/case","Text":"no","text":"yes"}]}}`, r.ID, r.ID))
	case "t:/exact":
		result(text(`{"id":1915883588174806058}`))
	case "t:/many":
		result(`{"contents":[{"uri":"t:/1","text":"a"},{"uri":"t:/2","blob":"/w=="}]}`)
	case "t:/blob":
		result(`{"contents":[{"uri":"t:/1","mimeType":"text/x","blob":"aGk="}]}`)
	case "t:/after":
		result(text(fmt.Sprint(r.Params.Meta["io.github.ossicle/after"])))
	case "t:/count":
		result(text(fmt.Sprint(n)))
	case "t:/bytes":
		result("{\"contents\":[{\"uri\":\"t:/1\",\"text\":\"a\xffb\"}]}")
	case "t:/hang":
	case "t:/dies":
		fmt.Fprintln(os.Stderr, "out of memory")
		os.Exit(4)
	case "t:/input":
		result(`{"resultType":"input_required","requestState":"x","inputRequests":{"q":{"method":"roots/list"}}}`)
	case "t:/none":
		fail(-32602, "resource not found")
	default:
		result(text("value of " + uri))
	}
}

func (f *fake) tools(r fakeRequest, result func(string)) {
	switch {
	case f.words["endless"]:
		result(fmt.Sprintf(`{"tools":[{"name":"t%s","inputSchema":{"type":"object"}}],"nextCursor":"%sx"}`, r.Params.Cursor, r.Params.Cursor))
	case f.words["same-cursor"]:
		result(`{"tools":[],"nextCursor":"again"}`)
	case f.words["crowd"]:
		var b strings.Builder
		for i := range 6000 {
			fmt.Fprintf(&b, `,{"name":"t%s%d","inputSchema":{"type":"object"}}`, r.Params.Cursor, i)
		}
		result(fmt.Sprintf(`{"tools":[%s],"nextCursor":"x%s"}`, b.String()[1:], r.Params.Cursor))
	default:
		page := `{"resultType":"complete","ttlMs":60000,"cacheScope":"private","tools":[{"name":"touch","description":"d","inputSchema":{"type":"object","maximum":9007199254740993},"annotations":{"readOnlyHint":true}}],"nextCursor":"2"}`
		if r.Params.Cursor == "2" {
			page = `{"resultType":"complete","ttlMs":60000,"cacheScope":"private","tools":[{"name":"other","inputSchema":{"type":"object"}},{"name":"third","inputSchema":{"type":"object"},"annotations":{"ReadOnlyHint":true,"readOnlyHint":false}}]}`
		}
		result(page)
	}
}

func (f *fake) callTool(r fakeRequest, result func(string), fail func(int, string)) {
	var args struct{ URI string }
	_ = json.Unmarshal(r.Params.Arguments, &args)
	switch r.Params.Name {
	case "touch":
		f.touch(args.URI)
		result(`{"content":[{"type":"text","text":"touched"}]}`)
	case "echo":
		result(fmt.Sprintf(`{"content":[],"structuredContent":%s}`, r.Params.Arguments))
	case "texts":
		result(`{"content":[{"type":"text","text":"{\"id\":1915883588174806058}"},{"type":"image","data":"","mimeType":"image/png"},{"type":"text","text":"plain"}]}`)
	case "json":
		result(`{"content":[{"type":"text","text":" [1.0, 1915883588174806058]"}]}`)
	case "nothing":
		result(`{"content":[]}`)
	case "broken":
		result(`{"isError":true,"content":[{"type":"text","text":"disk full"}]}`)
	case "end-listens":
		f.endListens()
		result(`{"content":[]}`)
	case "die":
		os.Exit(5)
	default:
		fail(-32602, "unknown tool")
	}
}

func (f *fake) listen(r fakeRequest, send func(string), end func()) {
	honoured := listen.Filter{}
	for _, u := range r.Params.Notifications.ResourceSubscriptions {
		if u != "x:/refused" {
			honoured.ResourceSubscriptions = append(honoured.ResourceSubscriptions, u)
		}
	}
	b, _ := json.Marshal(map[string]any{"resourceSubscriptions": honoured.ResourceSubscriptions})
	send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":%s}}`, r.ID, b))
	if f.words["hangs-up"] {
		send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}`, r.ID))
		if end != nil {
			end()
		}
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listens[string(r.ID)] = fakeListen{honoured.ResourceSubscriptions, send, end}
}

// touch announces a change.
func (f *fake) touch(uri string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, l := range f.listens {
		for _, u := range l.uris {
			if listen.Covers(u, uri) {
				l.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"uri":%q}}`, id, uri))
			}
		}
	}
	if f.legacy[uri] && f.push != nil {
		f.push(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%q}}`, uri))
	}
}

// endListens ends all listens in order.
func (f *fake) endListens() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, l := range f.listens {
		l.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}`, id))
		if l.end != nil {
			l.end()
		}
		delete(f.listens, id)
	}
}

// ServeHTTP serves the modern era and legacy without sessions.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	raw, _ := io.ReadAll(r.Body)
	var q fakeRequest
	_ = json.Unmarshal(raw, &q)
	switch {
	case q.Method == "subscriptions/listen" && !f.words["no-listen"]:
		f.serveListen(w, r, raw)
		return
	case len(q.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	var out string
	f.handle(raw, func(s string) { out = s }, nil)
	if out == "" {
		<-r.Context().Done()
		return
	}
	if f.words["sse"] {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": hi\r\ndata\r\rid: 1\r\ndata: "+out+"\r\n\r\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if strings.Contains(out, "-32601") {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = io.WriteString(w, out)
}

func (f *fake) serveListen(w http.ResponseWriter, r *http.Request, raw []byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	frames, ended := make(chan string, 100), make(chan struct{})
	f.handle(raw, func(s string) { frames <- s }, func() { close(ended) })
	defer func() {
		var q fakeRequest
		_ = json.Unmarshal(raw, &q)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.listens, string(q.ID))
	}()
	flush := http.NewResponseController(w)
	for {
		select {
		case s := <-frames:
			_, _ = fmt.Fprintf(w, "data: %s\n\n", s)
			_ = flush.Flush()
			continue
		default:
		}
		select {
		case s := <-frames:
			_, _ = fmt.Fprintf(w, "data: %s\n\n", s)
			_ = flush.Flush()
		case <-ended:
			if len(frames) == 0 {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
