package worker

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden frames")

// INI-1, INI-2, INI-3, INI-4, INI-5, INI-6, INI-7, INI-8, INI-9, FRM-1, HB-1,
// HB-3, RDY-1, REL-1, REL-2, SG-2: the frames, byte by byte. initialize has
// empty capabilities, nine budgets and no dialSeconds.
func TestGoldenFrames(t *testing.T) {
	t.Parallel()
	for name, got := range map[string][]byte{
		"initialize":       initializeFrame(intID(1), "ses_1", "api:7", ChannelVersion, Light()),
		"initialized":      initializedFrame(),
		"welcome":          welcomeFrame(intID(1), MCPVersion, "worker:3", welcome{"ses_1", "1.1.0", "ins_1", 0}),
		"received":         receivedFrame("c1-host-7", "c2"),
		"ready":            readyFrame(readyParams{"ses_1", []string{"exec", "file"}, "/workspace", 812}),
		"heartbeat":        heartbeatFrame(intID(42), Heartbeat{"ses_1", 37 * time.Second, 512 * time.Second, 0, 18452113, "1.1.0"}),
		"heartbeat_answer": heartbeatAnswer(intID(42), heartbeatResult{true, seconds(90 * time.Second), seconds(900 * time.Second)}),
		"release":          releaseFrame(intID(77), releaseParams{"ses_1", ReasonIdle, seconds(30 * time.Second)}),
		"report":           reportFrame(intID(77), Report{true, []Output{{URI: "store://art_88", Name: "a.txt", MIMEType: "text/plain", Size: 3}}}),
		"report_empty":     reportFrame(jsontext.Value(`"x"`), Report{}),
		"list":             listFrame(intID(2), ""),
		"list_page":        listFrame(intID(3), "c"),
		"parse_error":      errorFrame(nullID, &wireError{Code: codeParse, Message: "the message is not one JSON value"}),
		"version_error":    errorFrame(nullID, versionError("1.1.0", "2.0.0")),
		"session_error":    errorFrame(nullID, sessionError("ses_1", "ses_2")),
		"sampling_error":   errorFrame(intID(9), refuseRequest("sampling/createMessage")),
	} {
		path := filepath.Join("testdata", "frames", name+".json")
		if *update {
			if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if _, bad := parseFrame(got); bad != nil {
			t.Errorf("%s is broken for our own reader: %v", name, bad)
		}
	}
	for _, never := range []string{"dialSeconds", "sampling", "roots", "elicitation", "oken"} {
		if bytes.Contains(initializeFrame(intID(1), "s", "i", ChannelVersion, Light()), []byte(never)) {
			t.Errorf("initialize mentions %s", never)
		}
	}
}

// CON-8, CON-9: what is broken, with the code that answers it and the id if it
// could be read.
func TestBrokenFrames(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct {
		code int64
		id   string
	}{
		``:                           {codeParse, "null"},
		`not json`:                   {codeParse, "null"},
		`{"jsonrpc":"2.0","method":`: {codeParse, "null"},
		"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}":       {codeParse, "null"},
		`{"jsonrpc":"2.0","method":"a"}{"jsonrpc":"2.0"}`: {codeParse, "null"},
		`{"jsonrpc":"2.0","method":"a"} x`:                {codeParse, "null"},
		`[{"jsonrpc":"2.0","method":"a"}]`:                {codeInvalidRequest, "null"},
		`[]`:                                              {codeInvalidRequest, "null"},
		`7`:                                               {codeInvalidRequest, "null"},
		`null`:                                            {codeInvalidRequest, "null"},
		`{}`:                                              {codeInvalidRequest, "null"},
		`{"id":1,"method":"a"}`:                           {codeInvalidRequest, "1"},
		`{"jsonrpc":"1.0","id":1,"method":"a"}`:           {codeInvalidRequest, "1"},
		`{"jsonrpc":2.0,"id":1,"method":"a"}`:             {codeInvalidRequest, "1"},
		`{"JSONRPC":"2.0","id":1,"method":"a"}`:           {codeInvalidRequest, "1"},
		`{"jsonrpc":"2.0","id":1}`:                        {codeInvalidRequest, "1"},
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`:                                         {codeInvalidRequest, "1"},
		`{"jsonrpc":"2.0","id":1,"method":"a","result":{}}`:                                                            {codeInvalidRequest, "1"},
		`{"jsonrpc":"2.0","id":1.5,"method":"a"}`:                                                                      {codeInvalidRequest, "null"},
		`{"jsonrpc":"2.0","id":1e3,"method":"a"}`:                                                                      {codeInvalidRequest, "null"},
		`{"jsonrpc":"2.0","id":null,"method":"a"}`:                                                                     {codeInvalidRequest, "null"},
		`{"jsonrpc":"2.0","id":{},"method":"a"}`:                                                                       {codeInvalidRequest, "null"},
		`{"jsonrpc":"2.0","id":true,"result":{}}`:                                                                      {codeInvalidRequest, "null"},
		`{"jsonrpc":"2.0","id":null,"result":{}}`:                                                                      {codeInvalidRequest, "null"},
		`{"jsonrpc":"2.0","result":{}}`:                                                                                {codeInvalidRequest, "null"},
		`{"jsonrpc":"2.0","id":"x","method":"a","params":7}`:                                                           {codeInvalidRequest, `"x"`},
		`{"jsonrpc":"2.0","id":"x","method":"a","params":null}`:                                                        {codeInvalidRequest, `"x"`},
		`{"jsonrpc":"2.0","id":1,"method":7}`:                                                                          {codeInvalidRequest, "1"},
		`{"jsonrpc":"2.0","id":1,"method":""}`:                                                                         {codeInvalidRequest, "1"},
		`{"jsonrpc":"2.0","id":1,"error":"no"}`:                                                                        {codeInvalidRequest, "1"},
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"sampling/createMessage"}`:                             {codeInvalidRequest, "null"},
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","\u006dethod":"sampling/createMessage"}`:                        {codeInvalidRequest, "null"},
		`{"jsonrpc":"2.0","id":1,"method":"a","params":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`: {codeInvalidRequest, "null"},
	} {
		_, bad := parseFrame([]byte(in))
		if bad == nil {
			t.Errorf("%.80s passed", in)
			continue
		}
		if bad.code != want.code || (string(bad.id) != want.id && want.id != "null") {
			t.Errorf("%.80s: code %d id %s, want %d %s", in, bad.code, bad.id, want.code, want.id)
		}
	}
}

// What is a message stays exactly what it was.
func TestFrames(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]frame{
		` {"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"n":9007199254740993}}` + "\n": {kind: kindRequest, id: jsontext.Value("9007199254740993"), method: "tools/call", params: jsontext.Value(`{"n":9007199254740993}`)},
		`{"jsonrpc":"2.0","method":"\u0073ampling/createMessage"}`:                                              {kind: kindNotification, id: nullID, method: "sampling/createMessage"},
		`{"jsonrpc":"2.0","id":"a","result":null}`:                                                              {kind: kindResult, id: jsontext.Value(`"a"`), result: jsontext.Value("null")},
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}`:                                     {kind: kindError, id: nullID, err: &wireError{Code: -32700, Message: "m"}},
		`{"jsonrpc":"2.0","id":-3,"error":{"code":1,"message":"m","data":{"a":1}}}`:                             {kind: kindError, id: jsontext.Value("-3"), err: &wireError{Code: 1, Message: "m", Data: jsontext.Value(`{"a":1}`)}},
	} {
		got, bad := parseFrame([]byte(in))
		if bad != nil {
			t.Errorf("%s: %v", in, bad)
			continue
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(frame{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

// ERR-1, SG-3, SG-7: which requests of a worker are refused with which code,
// after decoding.
func TestRefuseRequest(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]int64{
		"agentfy/heartbeat": 0, "ping": 0,
		"sampling/createMessage": CodeSamplingDisabled, "sampling/": CodeSamplingDisabled, "Sampling/createMessage": CodeSamplingDisabled, "SAMPLING/x": CodeSamplingDisabled,
		"elicitation/create": CodeCapabilityNotNegotiated, "roots/list": CodeCapabilityNotNegotiated, "samplings": CodeCapabilityNotNegotiated,
		"tools/list": CodeCapabilityNotNegotiated, "Ping": CodeCapabilityNotNegotiated,
		"agentfy/ready": CodeVersionMismatch, "agentfy/done": CodeVersionMismatch, "agentfy/Heartbeat": CodeVersionMismatch,
	} {
		got := int64(0)
		if e := refuseRequest(method); e != nil {
			got = e.Code
		}
		if got != want {
			t.Errorf("%s: %d, want %d", method, got, want)
		}
	}
}

// SG-6: results that ask for something.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		`{"content":[]}`: false, `{"content":[],"resultType":"complete"}`: false,
		`{"inputRequests":{}}`: true, `{"resultType":"input_required"}`: true, `{"InputRequests":{"a":1}}`: true,
		`{"\u0069nputRequests":{}}`: true, `[]`: true, `7`: true,
		`{"structuredContent":{"inputRequests":1}}`: false,
	} {
		if got := smuggles(jsontext.Value(in)); got != want {
			t.Errorf("%s: %t, want %t", in, got, want)
		}
	}
}

// CON-8: what the reader takes, the standard library takes too, and reads alike;
// what is written is read.
func FuzzFrame(f *testing.F) {
	files, err := filepath.Glob("testdata/frames/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no golden frames", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, bad := parseFrame(data)
		if bad != nil {
			if bad.code != codeParse && bad.code != codeInvalidRequest {
				t.Errorf("code %d", bad.code)
			}
			return
		}
		var loose map[string]json.RawMessage
		if err := json.Unmarshal(data, &loose); err != nil {
			t.Fatalf("we take what encoding/json does not: %v", err)
		}
		var again []byte
		switch got.kind {
		case kindRequest:
			again = requestFrame(got.id, got.method, got.params)
		case kindNotification:
			again = noticeFrame(got.method, got.params)
		case kindResult:
			again = resultFrame(got.id, got.result)
		case kindError:
			again = errorFrame(got.id, got.err)
		}
		back, bad := parseFrame(again)
		if bad != nil {
			t.Fatalf("what we wrote is broken: %v: %s", bad, again)
		}
		if back.kind != got.kind || back.method != got.method || !bytes.Equal(back.id, got.id) {
			t.Errorf("read %+v, then %+v", got, back)
		}
	})
}

// Payloads of the life cycle from outside never crash, and what is read is
// within bounds.
func FuzzLifecycle(f *testing.F) {
	f.Add([]byte(`{"protocolVersion":"2025-06-18","_meta":{"agentfy":{"sessionId":"s","channelVersion":"1.1.0","instanceId":"i","attempt":0,"budgets":{"idleSeconds":1e300}}}}`))
	f.Add([]byte(`{"sessionId":"s","idleSeconds":-1,"execSeconds":1.5,"activeToolCalls":2}`))
	f.Add([]byte(`{"accepted":true,"outputsFlushed":true,"outputs":[{"type":"resource_link","uri":"store://a"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, h, err := readHello(data); err == nil {
			for _, b := range h.Budgets.fields() {
				if *b.at < 0 {
					t.Errorf("budget %s is %v", b.name, *b.at)
				}
			}
		}
		if _, _, w, err := readWelcome(data); err == nil && (w.Attempt < 0 || w.InstanceID == "") {
			t.Errorf("welcome %+v", w)
		}
		var h Heartbeat
		if h.UnmarshalJSON(data) == nil && (h.Idle < 0 || h.Exec < 0 || h.ActiveToolCalls < 0) {
			t.Errorf("heartbeat %+v", h)
		}
		var r Report
		_ = r.UnmarshalJSON(data)
		_, _ = ParseVersion(string(data))
	})
}
