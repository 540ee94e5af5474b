package observe_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/attach"
	"github.com/ossicle/ossicle/internal/observe"
)

// exchange is a line of the client and the answer.
type exchange struct{ client, server string }

// play feeds a conversation in pieces of n bytes; 0 is whole lines.
func play(p *observe.Pipe, talk []exchange, n int) {
	feed := func(to func([]byte), text string) {
		for len(text) > 0 {
			k := len(text)
			if n > 0 {
				k = min(n, k)
			}
			to([]byte(text[:k]))
			text = text[k:]
		}
	}
	for _, x := range talk {
		feed(p.Client, x.client+"\n")
		if x.server != "" {
			feed(p.Server, x.server+"\r\n")
		}
	}
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"2"}}`

var (
	falls = []exchange{
		{`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + modernMeta + `}}`, `{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"Method not found"}}`},
		{
			`{"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"c","version":"2"}},"jsonrpc":"2.0","id":1}`,
			`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","serverInfo":{"name":"s"}}}`,
		},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `a log line`},
		{`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"a"},{"name":"b"}],"nextCursor":"n"}}`},
		{`{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"cursor":"n"}}`, `{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"c"}]}}`},
		{`{"jsonrpc":"2.0","id":4,"method":"prompts/list"}`, `{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"Method not found"}}`},
		{
			`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"a","arguments":{"x":"` + canary + `"}}}`,
			`{"jsonrpc":"2.0","id":5,"result":{"content":[{"type":"text","text":"` + canary + `"}]}}`,
		},
	}
	fallsSeen = []string{
		"request_error era=modern method=server/discover reason=method_not_found summary=error -32601: Method not found",
		"initialize_observed era=legacy client=c version=2025-06-18 connected",
		"tools_list_observed era=legacy tools=2 connected",
		"tools_list_observed era=legacy tools=3 connected",
		"request_error era=legacy method=prompts/list reason=method_not_found summary=error -32601: Method not found connected",
		"tool_call_observed era=legacy tool=a connected",
		"connection_closed connected",
	}
	modern = []exchange{
		{
			`{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{` + modernMeta + `}}`,
			`{"jsonrpc":"2.0","id":"d","result":{"supportedVersions":["2026-07-28"]}}`,
		},
		{`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{` + modernMeta + `}}`, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`},
		{`{"jsonrpc":"2.0","id":"t","method":"tools/list","params":{` + modernMeta + `}}`, `{"jsonrpc":"2.0","id":"t","result":{"tools":[]}}`},
	}
	modernSeen = []string{
		"discover_observed era=modern client=c version=2026-07-28",
		"initialize_observed era=modern client=c version=2026-07-28",
		"tools_list_observed era=modern tools=0",
	}
)

// A pipe is seen in both eras, however its bytes are cut: a probe and its
// fallback are one connection, pages of a list add up, and a pipe that never had a
// legacy session has none to end.
//
//
func TestPipe(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		talk []exchange
		want []string
	}{{"falls back", falls, fallsSeen}, {"modern", modern, modernSeen}} {
		for _, n := range []int{0, 1, 7, 1000} {
			t.Run(fmt.Sprint(tc.name, n), func(t *testing.T) {
				t.Parallel()
				o, s := observer(t)
				p := o.Pipe("1")
				play(p, tc.talk, n)
				p.Close()
				p.Close()
				o.Close()
				if o.Dropped() > 0 { // bytes one by one fill the queue on a busy machine
					t.Skipf("%d dropped", o.Dropped())
				}
				if d := cmp.Diff(tc.want, s.lines()); d != "" {
					t.Error(d)
				}
				b, err := json.Marshal(s.evidence())
				if err != nil || strings.Contains(string(b), canary) {
					t.Errorf("%v %s", err, b)
				}
			})
		}
	}
}

// Messages that are larger than what is looked at count, as far as they can be
// read.
func TestLargeMessages(t *testing.T) {
	t.Parallel()
	o, s := observer(t)
	p := o.Pipe("1")
	large := strings.Repeat("x", 5<<20)
	send := func(to func([]byte), text string) { // in pieces, which the queue bears
		for len(text) > 0 {
			k := min(len(text), 64<<10)
			to([]byte(text[:k]))
			text = text[k:]
			settle(o)
		}
	}
	send(p.Client, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":"`+large+`"}}`+"\n")
	send(p.Server, `{"jsonrpc":"2.0","id":1,"result":"`+large+`"}`+"\n")
	send(p.Client, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n")
	send(p.Server, `{"jsonrpc":"2.0","id":2,"result":{"tools":["`+large+`"]}}`+"\n")
	send(p.Client, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`+"\n")
	send(p.Server, `{"jsonrpc":"2.0","id":3,"result":{"tools":[]}}`+"\n")
	o.Close()
	want := []string{"tool_call_observed era=legacy connected", "tools_list_observed era=legacy connected", "tools_list_observed era=legacy tools=0 connected"}
	if d := cmp.Diff(want, s.lines()); d != "" || o.Dropped() != 0 {
		t.Errorf("%d dropped\n%s", o.Dropped(), d)
	}
}

// settle waits until everything so far was read.
func settle(o *observe.Observer) {
	done := make(chan struct{})
	for !o.Do(func() { close(done) }) {
		runtime.Gosched() // there is no room yet
	}
	<-done
}

// Somebody who does not take evidence makes nobody wait: what does not fit is
// dropped, and after that the pipe is read from its next line on.
//
//
func TestFullQueueDrops(t *testing.T) {
	t.Parallel()
	block, s, taking := make(chan struct{}), &seen{}, make(chan struct{}, 8)
	o := observe.New(func(e attach.Evidence) { taking <- struct{}{}; <-block; s.sink(e) }, nil)
	p := o.Pipe("1")
	line := `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}` + "\n"
	p.Client(fmt.Appendf(nil, line, 0))
	p.Server([]byte(`{"id":0,"result":{"tools":[]}}` + "\n"))
	<-taking // from here on nothing leaves the queue
	for range 5000 {
		p.Client([]byte(`{"jsonrpc":"2.0","method":"notifications/progress"}` + "\n"))
	}
	if o.Dropped() == 0 {
		t.Error("nothing was dropped")
	}
	p.Client([]byte(`{"jsonrpc":"2.0","id":9999,"met`)) // lost with the others
	close(block)
	settle(o)
	p.Client([]byte(`hod":"tools/list"}` + "\n"))
	p.Client(fmt.Appendf(nil, line, 10000))
	p.Server([]byte(`{"id":9999,"result":{"tools":[{},{},{}]}}` + "\n" + `{"id":10000,"result":{"tools":[{}]}}` + "\n"))
	o.Close()
	got := s.lines()
	if last := got[len(got)-1]; !strings.Contains(last, "tools=1") || len(got) != 2 {
		t.Errorf("got %q", got)
	}
	p.Client([]byte("x\n")) // after the end: nothing
	o.Close()
}

func FuzzPipe(f *testing.F) {
	f.Add(falls[1].client+"\n"+falls[3].client+"\n", falls[1].server+"\n"+falls[3].server+"\n")
	f.Add("[{\"id\":1,\"method\":\"initialize\"}]\n", "[{\"id\":1,\"result\":[[[[")
	f.Fuzz(func(t *testing.T, client, server string) {
		s := &seen{}
		o := observe.New(s.sink, nil)
		p := o.Pipe("1")
		p.Client([]byte(client))
		p.Server([]byte(server))
		p.Close()
		o.Close()
		r, err := attach.Report{}.Begin(attach.Start{SessionID: "s", ExecutionID: "x", AttemptID: "a", StartedAt: s.now()})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range s.evidence() {
			e.AttemptID, e.ExecutionID, e.Server = "a", "x", "m"
			if r, err = attach.Reduce(r, e); err != nil {
				t.Errorf("%+v: %v", e, err)
			}
		}
	})
}
