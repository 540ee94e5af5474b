package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// M-1: server/discover and then initialize on one pipe; afterwards requests of
// both eras, each answered in its own.
func TestBothErasOnOnePipe(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	p := f.connect(t.Context(), t)
	discovered := p.result(modernCall("1", "server/discover", ""))
	versions := fmt.Sprint(discovered["supportedVersions"])
	if want := "[2026-07-28 2025-11-25 2025-06-18 2025-03-26 2024-11-05]"; versions != want {
		t.Errorf("supportedVersions = %s, want %s", versions, want)
	}
	initialized := p.initialize("2025-06-18")
	if v := initialized["protocolVersion"]; v != "2025-06-18" {
		t.Errorf("initialize negotiated %v", v)
	}
	for _, res := range []map[string]any{discovered, initialized} {
		caps := res["capabilities"].(map[string]any)
		if diff := cmp.Diff(map[string]any{"subscribe": true}, caps["resources"]); diff != "" { // W-010
			t.Errorf("resources (-want +got):\n%s", diff)
		}
		if _, ok := caps["logging"]; ok {
			t.Error("logging is advertised and not served")
		}
	}
	for i := range 3 {
		for _, method := range []string{"tools/list", "resources/list", "resources/templates/list", "resources/read"} {
			params := ""
			if method == "resources/read" {
				params = `"uri":"memo://notes"`
			}
			// M-6, W-025
			modern := p.result(modernCall(fmt.Sprint(10+i), method, params))
			if modern["ttlMs"] != 0.0 || modern["cacheScope"] != "private" || modern["resultType"] != "complete" {
				t.Errorf("modern %s: %v", method, modern)
			}
			legacy := p.result(legacyCall(fmt.Sprintf(`"l%d"`, i), method, params))
			for _, field := range []string{"ttlMs", "cacheScope", "resultType", "_meta"} {
				if _, ok := legacy[field]; ok {
					t.Errorf("legacy %s has %s: %v", method, field, legacy)
				}
			}
		}
	}
	p.close()
}

// M-1: whatever initialize asks for, the session is a legacy one.
func TestInitializeNegotiatesALegacyRevision(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{
		"2025-11-25": "2025-11-25", "2025-06-18": "2025-06-18", "2025-03-26": "2025-03-26", "2024-11-05": "2024-11-05",
		"2026-07-28": "2025-11-25", "2099-01-01": "2025-11-25", "1.0": "2025-11-25",
	} {
		f := newFixture(t, nil)
		p := f.connect(t.Context(), t)
		if got := p.initialize(asked)["protocolVersion"]; got != want {
			t.Errorf("asked for %s, got %v, want %s", asked, got, want)
		}
		if res := p.result(legacyCall("1", "resources/read", `"uri":"memo://notes"`)); res["ttlMs"] != nil {
			t.Errorf("asked for %s: a modern result %v", asked, res)
		}
		p.close()
	}
}

// M-3, M-5: two listens for one URI and a legacy subscription, all on one pipe,
// each told of each change under its own id; a cancelled one hears no more.
func TestListensAndSubscriptionsOnOnePipe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, err := makeFixture(nil)
		if err != nil {
			t.Fatal(err)
		}
		p := f.connect(t.Context(), t)
		p.initialize("2025-11-25")
		p.send(listenCall("1", "memo://notes", "memo://nothing"), listenCall(`"1"`, "memo://notes"))
		acks := map[string]string{}
		for range 2 {
			m := p.next()
			if m.Method != "notifications/subscriptions/acknowledged" {
				t.Fatalf("before the acknowledgement: %s", m)
			}
			acks[m.subscription()] = fmt.Sprint(m.Params.Notifications.ResourceSubscriptions)
		}
		if diff := cmp.Diff(map[string]string{"1": "[memo://notes]", `"1"`: "[memo://notes]"}, acks); diff != "" {
			t.Errorf("acknowledged (-want +got):\n%s", diff)
		}
		p.result(legacyCall("2", "resources/subscribe", `"uri":"memo://notes"`))
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			got := map[string]int{}
			for len(p.got) > 0 {
				m := p.next()
				if m.Method != "notifications/resources/updated" || m.Params.URI != "memo://notes" {
					t.Errorf("unexpected: %s", m)
				}
				got[m.subscription()]++
			}
			wanted := map[string]int{}
			for _, id := range want {
				wanted[id]++
			}
			if diff := cmp.Diff(wanted, got); diff != "" {
				t.Errorf("updates by listen (-want +got):\n%s", diff)
			}
		}
		f.set(t, "a", "1")
		expect("1", `"1"`, "null")
		p.send(notification("notifications/cancelled", `"requestId":1`))
		synctest.Wait()
		f.set(t, "a", "2")
		expect(`"1"`, "null")
		p.result(legacyCall("3", "resources/unsubscribe", `"uri":"memo://notes"`))
		f.set(t, "a", "3")
		expect(`"1"`)
		// The id of a cancelled listen is free again.
		p.send(listenCall("1", "memo://notes"))
		if m := p.next(); m.subscription() != "1" {
			t.Errorf("listen again: %s", m)
		}
		p.close()
		synctest.Wait()
		if n := f.hub.Stats().Listens; n != 0 {
			t.Errorf("%d listens are left", n)
		}
		f.shutdown(t)
	})
}

// shutdown is for tests in a bubble, whose cleanups run outside of it.
func (f *fixture) shutdown(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
	defer cancel()
	if err := f.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	f.reg.Close()
}

// M-8, B-097: the end of input ends the server at once, whatever is open.
func TestEndOfInputEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, err := makeFixture(nil)
		if err != nil {
			t.Fatal(err)
		}
		p := f.connect(t.Context(), t)
		p.send(listenCall("1", "memo://notes", "odd://log"))
		p.next()
		if n := f.odd.watching(); n != 1 {
			t.Fatalf("%d observed, want 1", n)
		}
		started := time.Now()
		p.close()
		if d := time.Since(started); d != 0 {
			t.Errorf("it took %v", d)
		}
		synctest.Wait()
		if n := f.odd.watching(); n != 0 {
			t.Errorf("%d are still observed", n)
		}
		f.shutdown(t)
	})
}

// What was asked before the end of input is answered; what cannot be within a
// second is not.
func TestEndOfInputLetsAnswersOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, err := makeFixture(nil, Tool{Name: "slow", Call: func(ctx context.Context, _ json.RawMessage) (ToolResult, error) {
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
			}
			return ToolResult{Text: "done"}, ctx.Err()
		}})
		if err != nil {
			t.Fatal(err)
		}
		p := f.connect(t.Context(), t)
		p.send(modernCall("1", "tools/call", `"name":"slow"`), modernCall("2", "tools/list", ""))
		_ = p.in.Close()
		p.answer("2")
		if m := p.answer("1"); m.Error != nil || !strings.Contains(string(m.Result), "done") {
			t.Errorf("slow tool: %s", m)
		}
		p.ended(nil)

		q := f.connect(t.Context(), t)
		q.send(modernCall("1", "resources/read", `"uri":"odd://slow"`))
		started := time.Now()
		q.close()
		if d := time.Since(started); d < time.Second || d > 3*time.Second {
			t.Errorf("with a request that does not end it took %v", d)
		}
		f.shutdown(t)
	})
}

// M-4: told to stop, the server ends listens with a result and a cancellation.
func TestStopEndsListensPolitely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, err := makeFixture(nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		p := f.connect(ctx, t)
		p.send(listenCall("7", "memo://notes"))
		p.next()
		synctest.Wait()
		cancel()
		m := p.next()
		if string(m.ID) != "7" || members(t, m.Result)["resultType"] != "complete" {
			t.Errorf("first: %s", m)
		}
		m = p.next()
		if m.Method != "notifications/cancelled" || m.Params.RequestID != 7.0 {
			t.Errorf("second: %s", m)
		}
		p.ended(context.Canceled)
		f.shutdown(t)
	})
}

// M-8: a line over the limit is answered, with its id where that is to be found,
// and the stream stays in step.
func TestTooLongLinesAreAnsweredAndSkipped(t *testing.T) {
	t.Parallel()
	f := newFixture(t, &Options{MaxLine: 100 << 10})
	p := f.connect(t.Context(), t)
	long := strings.Repeat("x", 120<<10)
	for want, line := range map[string]string{
		"1":   `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"` + long + `"}}`,
		`"b"`: `{"method":"tools/call","params":{"id":9,"x":"` + long + `"},"jsonrpc":"2.0","id":"b"}`,
		"3":   `{"method":"tools/call","params":{"x":"` + long + `","id":{"id":9}},"id": 3 }`,
		"":    `{"method":"tools/call","params":{"x":"` + long + `","y":{"id":9}}}`,
	} {
		p.send(line)
		m := p.next()
		if string(m.ID) != want || m.Error == nil || m.Error.Code != codeInvalidRequest || !strings.Contains(m.Error.Message, "limit is 102400") {
			t.Errorf("%.60s: %s, want the id %s", line, m, want)
		}
		p.result(modernCall(`"next"`, "tools/list", ""))
	}
	// At the limit a line is served.
	call := modernCall("4", "tools/call", `"name":"memo_get","arguments":{"key":"`)
	pad := strings.Repeat("y", 100<<10-len(call)-2)
	line := strings.TrimSuffix(call, "}}") + pad + `"}}}`
	p.send(line[:len(line)-1]) // one brace too few: a parse error, not a long line
	if m := p.next(); m.Error == nil || m.Error.Code != codeParseError {
		t.Errorf("%s", m)
	}
	p.send(strings.Replace(line, pad, pad[1:], 1))
	if m := p.next(); m.Error != nil || string(m.ID) != "4" {
		t.Errorf("%.100s", m)
	}
	p.close()
}

func TestBrokenLinesAreAnswered(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	p := f.connect(t.Context(), t)
	for line, want := range map[string]struct {
		id   string
		code int64
	}{
		`not json`:                {"", codeParseError},
		`{"jsonrpc":"2.0","id":1`: {"", codeParseError},
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`: {"", codeParseError},
		`"text"`: {"", codeInvalidRequest},
		`[]`:     {"", codeInvalidRequest},
		`[1`:     {"", codeParseError},
		`{"jsonrpc":"1.0","id":1,"method":"ping"}`:                {"1", codeInvalidRequest},
		`{"jsonrpc":"2.0","id":1}`:                                {"1", codeInvalidRequest},
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`:              {"", codeInvalidRequest},
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`: {"", codeInvalidRequest},
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`:             {"", codeInvalidRequest},
		`{"jsonrpc":"2.0","id":1,"method":7}`:                     {"1", codeInvalidRequest},
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}`:   {"1", codeInvalidRequest},
		`{"jsonrpc":"2.0","ID":1,"method":"ping","Id":2}`:         {"", 0}, // a notification: names match by case
	} {
		p.send(line)
		if want.code == 0 {
			continue
		}
		m := p.next()
		if string(m.ID) != want.id || m.Error == nil || m.Error.Code != want.code {
			t.Errorf("%s: %s, want id %s and code %d", line, m, want.id, want.code)
		}
	}
	p.send("", "  ", "\r")
	p.initialize("2025-11-25")
	p.result(legacyCall("1", "ping", "") + "\r")
	p.close()
}

// M-7: every error has a code of the specification and says what to do.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil,
		Tool{Name: "panics", Call: func(context.Context, json.RawMessage) (ToolResult, error) { panic("tool") }})
	p := f.connect(t.Context(), t)
	p.fails(legacyCall("1", "tools/list", ""), codeInvalidRequest, "send initialize first")
	p.fails(legacyCall("2", "server/discover", ""), codeInvalidParams, "_meta")
	p.initialize("2025-11-25")
	p.fails(initializeCall("3", "2025-11-25"), codeInvalidRequest, "initialized already")
	p.fails(legacyCall("4", "no/such", ""), codeMethodNotFound, "no/such")
	p.fails(modernCall("5", "no/such", ""), codeMethodNotFound, "no/such")
	p.fails(modernCall("6", "resources/subscribe", `"uri":"memo://notes"`), codeMethodNotFound, "resources/subscribe")
	p.fails(legacyCall("7", "subscriptions/listen", `"notifications":{}`), codeMethodNotFound, "")
	for i, call := range []func(id, method, params string) string{modernCall, legacyCall} {
		id := func(n int) string { return fmt.Sprint(100*(i+1) + n) }
		// Unknown resources: -32602, never -32002.
		p.fails(call(id(1), "resources/read", `"uri":"memo://nots"`), codeInvalidParams, "memo://notes")
		p.fails(call(id(2), "resources/read", `"uri":"nobody://x"`), codeInvalidParams, "not found")
		p.fails(call(id(3), "resources/read", `"uri":""`), codeInvalidParams, "resources/list")
		p.fails(call(id(4), "tools/call", `"name":"nothing"`), codeInvalidParams, "nothing")
		p.fails(call(id(5), "resources/list", `"cursor":"%%"`), codeInvalidParams, "without a cursor")
		p.fails(call(id(6), "tools/list", `"cursor":"%%"`), codeInvalidParams, "")
		p.fails(call(id(7), "resources/read", `"uri":"odd://panic"`), codeInternal, "the server goes on")
		p.fails(call(id(8), "tools/call", `"name":"panics"`), codeInternal, "the server goes on")
	}
	p.fails(strings.Replace(modernCall("8", "tools/list", ""), "2026-07-28", "2027-01-01", 1), -32022, "")
	p.fails(strings.Replace(modernCall("9", "tools/list", ""), `"io.modelcontextprotocol/clientCapabilities":{},`, "", 1), codeInvalidParams, "clientCapabilities")
	// Tools tell the model about its own mistakes.
	for args, text := range map[string]string{
		`{"key":"a"}`: "required", `{"key":"a","value":1,"val":2}`: "val", `{"Key":"a","value":1}`: "Key", `{"key":7,"value":1}`: "key", `{"key":"","value":1}`: "empty",
	} {
		res := p.result(modernCall("10", "tools/call", `"name":"memo_set","arguments":`+args))
		if res["isError"] != true || !strings.Contains(fmt.Sprint(res["content"]), text) {
			t.Errorf("memo_set %s: %v, want an error about %q", args, res, text)
		}
	}
	p.result(modernCall("11", "tools/list", ""))
	p.close()
}

// W-231, B-051: what memo_set takes, a read returns, digit by digit.
func TestNumbersStayExactThroughToolsAndReads(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	p := f.connect(t.Context(), t)
	p.initialize("2025-11-25")
	const value = `{"id":1915883588174806058,"f":1.10,"big":123456789012345678901234567890,"s":"<&> é \u2028"}`
	p.result(modernCall("1", "tools/call", `"name":"memo_set","arguments":{"key":"a","value":`+value+`}`))
	p.result(modernCall("2", "tools/call", `"name":"memo_set","arguments":{"key":"n","value":null}`))
	const want = `{"a":` + value + `,"n":null}`
	for _, line := range []string{
		modernCall("3", "resources/read", `"uri":"memo://notes"`), legacyCall("4", "resources/read", `"uri":"memo://notes"`),
	} {
		m := p.call(line)
		var res struct {
			Contents []struct{ URI, MIMEType, Text string }
		}
		if err := json.Unmarshal(m.Result, &res); err != nil || len(res.Contents) != 1 {
			t.Fatalf("%s: %v", m, err)
		}
		if diff := cmp.Diff(struct{ URI, MIMEType, Text string }{"memo://notes", "application/json", want}, res.Contents[0]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	res := p.result(modernCall("5", "tools/call", `"name":"memo_get","arguments":{"key":"a"}`))
	text := res["content"].([]any)[0].(map[string]any)["text"]
	if text != value {
		t.Errorf("memo_get = %v", text)
	}
	p.close()
}

func TestCancelledCallsStayUnanswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started, cancelled := make(chan struct{}), make(chan struct{})
		f, err := makeFixture(nil, Tool{Name: "wait", Call: func(ctx context.Context, _ json.RawMessage) (ToolResult, error) {
			close(started)
			<-ctx.Done()
			close(cancelled)
			return ToolResult{}, ctx.Err()
		}})
		if err != nil {
			t.Fatal(err)
		}
		p := f.connect(t.Context(), t)
		p.send(modernCall("1", "tools/call", `"name":"wait"`))
		<-started
		p.send(notification("notifications/cancelled", `"requestId":1`))
		<-cancelled
		synctest.Wait()
		p.result(modernCall("2", "tools/list", ""))
		for _, m := range p.seen {
			t.Errorf("after the cancellation: %s", m)
		}
		p.close()
		f.shutdown(t)
	})
}

func TestRequestsOfAPipeAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, err := makeFixture(&Options{MaxInFlight: 3, ReadTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		p := f.connect(t.Context(), t)
		for i := range 3 {
			p.send(modernCall(fmt.Sprint(i), "resources/read", `"uri":"odd://slow"`))
		}
		p.send(listenCall("10", "memo://notes")) // a listen is none
		p.next()
		p.fails(modernCall("11", "tools/list", ""), CodeTooManyRequests, "wait for answers")
		p.fails(modernCall("10", "tools/list", ""), codeInvalidRequest, "use each id once")
		// Every request has an end: -32603 after the read timeout.
		for range 3 {
			if m := p.next(); m.Error == nil || m.Error.Code != codeInternal || !strings.Contains(m.Error.Message, "exceeded 5s") {
				t.Errorf("slow read: %s", m)
			}
		}
		p.result(modernCall("12", "tools/list", ""))
		p.close()
		f.shutdown(t)
	})
}

// A peer that does not read cannot hold the server: input that ends, ends it,
// and so does half a minute.
func TestPeerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, err := makeFixture(nil)
		if err != nil {
			t.Fatal(err)
		}
		inR, inW := io.Pipe()
		outR, outW := io.Pipe() // nobody reads
		done := make(chan error, 1)
		go func() { done <- f.ServeStdio(t.Context(), inR, outW) }()
		_, _ = io.WriteString(inW, modernCall("1", "tools/list", "")+"\n")
		started := time.Now()
		if err := <-done; !errors.Is(err, errStuck) {
			t.Errorf("ServeStdio = %v, want errStuck", err)
		}
		if d := time.Since(started); d < DefaultPipeTime || d > DefaultPipeTime+5*time.Second {
			t.Errorf("it took %v", d)
		}
		_ = outR.Close() // frees the write that nobody could interrupt
		f.shutdown(t)
	})
}

// Legacy revisions up to 2025-03-26 have batches, the others have not.
func TestBatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	p := f.connect(t.Context(), t)
	batch := `[` + legacyCall("1", "ping", "") + `,` + notification("notifications/progress", `"progressToken":1,"progress":1`) + `,` + legacyCall(`"x"`, "no/such", "") + `,7]`
	p.send(batch)
	if m := p.next(); m.Error == nil || m.Error.Code != codeInvalidRequest {
		t.Errorf("batch before initialize: %s", m)
	}
	p.initialize("2025-03-26")
	p.send(batch)
	var got []message
	for _, raw := range array(t, p.next().raw) {
		got = append(got, parseMessage(t, string(raw)))
	}
	slices.SortFunc(got, func(a, b message) int { return strings.Compare(string(a.ID), string(b.ID)) })
	if len(got) != 3 || got[0].Error.Code != codeInvalidRequest || string(got[1].ID) != `"x"` || got[1].Error.Code != codeMethodNotFound ||
		string(got[2].ID) != "1" || string(got[2].Result) != "{}" {
		t.Errorf("answers %v", got)
	}
	p.send(`[` + notification("notifications/progress", `"progressToken":1,"progress":1`) + `]`) // unanswered
	p.send(`[` + modernCall("5", "tools/list", "") + `]`)
	if m := array(t, p.next().raw); !strings.Contains(string(m[0]), "no batches") {
		t.Errorf("modern request in a batch: %s", m)
	}
	p.send("[" + strings.Repeat(legacyCall("1", "ping", "")+",", 100) + legacyCall("1", "ping", "") + "]")
	if m := p.next(); m.Error == nil || !strings.Contains(m.Error.Message, "1 to 100") {
		t.Errorf("101 messages: %s", m)
	}
	p.close()
}

func array(t *testing.T, raw string) []json.RawMessage {
	t.Helper()
	var all []json.RawMessage
	if err := json.Unmarshal([]byte(raw), &all); err != nil {
		t.Fatalf("not an array: %s", raw)
	}
	return all
}
