package watch

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/jsonx"
)

func logEvent(t *testing.T, entry string) Event {
	t.Helper()
	l := mustLog(t, `{"events":[`+entry+`]}`)
	if len(l.events) != 1 {
		t.Fatalf("%s is no event", entry)
	}
	return newLogEvent(l.events[0])
}

func stateEvents(t *testing.T, old, new string) []Event {
	t.Helper()
	return Diff(state(old), state(new))
}

// W-070 to W-078: the event as a filter sees it.
func TestEventObject(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		event Event
		want  string
	}{
		{
			"W-077 WA-14: state, added", stateEvents(t, `[]`, `[{"id":1}]`)[0],
			`{"watch":"w","uri":"u:x","type":"ADDED","old":null,"key":"1","item":{"id":1},"new":{"id":1}}`,
		},
		{
			"W-072 W-073: state, modified", stateEvents(t, `[{"id":1,"v":1}]`, `[{"id":1,"v":2}]`)[0],
			`{"watch":"w","uri":"u:x","type":"MODIFIED","old":{"id":1,"v":1},"changed":["v"],"key":"1","item":{"id":1,"v":2},"new":{"id":1,"v":2}}`,
		},
		{
			"WA-14: state, deleted", stateEvents(t, `[{"id":1}]`, `[]`)[0],
			`{"watch":"w","uri":"u:x","type":"DELETED","old":null,"key":"1","item":{"id":1}}`,
		},
		{
			"WA-04: text", stateEvents(t, `a`, `b"`)[0],
			`{"watch":"w","uri":"u:x","type":"CHANGED","old":"a","key":"","item":"b\"","new":"b\""}`,
		},
		{
			"W-071 W-076: event log, fields pass through", logEvent(t, `{"seq":7,"type":"ADDED","object":{"id":9007199254740993},"message":"m","extra":[1.0]}`),
			`{"watch":"w","uri":"u:x","type":"ADDED","old":null,"seq":7,"object":{"id":9007199254740993},"message":"m","extra":[1.0]}`,
		},
		{
			"W-019 W-072: event log, old from the server", logEvent(t, `{"seq":7,"type":"MODIFIED","old":{"a":1},"object":{"a":2}}`),
			`{"watch":"w","uri":"u:x","type":"MODIFIED","old":{"a":1},"changed":["a"],"seq":7,"object":{"a":2}}`,
		},
		{
			"W-072: event log, old is null for other types", logEvent(t, `{"seq":7,"type":"DELETED","old":{"a":1},"object":{"a":2}}`),
			`{"watch":"w","uri":"u:x","type":"DELETED","old":null,"seq":7,"object":{"a":2}}`,
		},
		{
			"W-078: event log, modified without old", logEvent(t, `{"seq":7,"type":"MODIFIED","object":{"a":2}}`),
			`{"watch":"w","uri":"u:x","type":"MODIFIED","old":null,"seq":7,"object":{"a":2}}`,
		},
		{
			"W-070: a server cannot give another watch or uri", logEvent(t, `{"seq":7,"type":"X","watch":"evil","uri":"evil","changed":["evil"],"key":"k"}`),
			`{"watch":"w","uri":"u:x","type":"X","old":null,"seq":7,"key":"k"}`,
		},
		{
			"W-071: GAP", seqGap(3, 4),
			`{"watch":"w","uri":"u:x","type":"GAP","old":null,"from":3,"to":4,"message":"2 events were missed (seq 3 to 4)"}`,
		},
	} {
		got := c.event.Object("w", "u:x")
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if !jsonx.Valid(got) {
			t.Errorf("%s: not JSON: %s", c.name, got)
		}
	}
}

func changed(t *testing.T, old, new string) []string {
	t.Helper()
	e := Event{Type: TypeModified}
	e.compare(json.RawMessage(old), json.RawMessage(new))
	return e.Changed
}

// W-073, W-074, WA-13: sorted dotted paths of at most three names.
func TestChanged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		old, new string
		want     []string
	}{
		{`{"b":1,"a":1,"c":1}`, `{"c":2,"b":2,"a":1}`, []string{"b", "c"}},
		{`{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":2}}}`, []string{"a.b.c"}},
		{`{"a":{"b":{"c":{"d":1,"e":1}}}}`, `{"a":{"b":{"c":{"d":2,"e":2}}}}`, []string{"a.b.c"}},
		{`{"a":{"b":{"c":{"d":1}}}}`, `{"a":{"b":{"c":{"d":1}}}}`, []string{}},
		{`{"a":[1,{"x":1}]}`, `{"a":[1,{"x":2}]}`, []string{"a"}},
		{`{"a":{}}`, `{"a":{"new":1}}`, []string{"a.new"}},
		{`{"a":{"gone":1}}`, `{"a":{}}`, []string{"a.gone"}},
		{`{"a":{"x":1}}`, `{"a":1}`, []string{"a"}},
		{`{"status":{}}`, `{}`, []string{"status"}},
		{`{"metadata":{"labels":{"app.kubernetes.io/name":"a"}}}`, `{"metadata":{"labels":{"app.kubernetes.io/name":"b"}}}`, []string{`metadata.labels["app.kubernetes.io/name"]`}},
		{`{"":1,".":1,"a b":1,"a[0]":1,"x-y/z":1}`, `{"":2,".":2,"a b":2,"a[0]":2,"x-y/z":2}`, []string{`[""]`, `["."]`, `["a b"]`, `["a[0]"]`, `x-y/z`}},
		{`{"metadata":{"resourceVersion":"1","generation":1,"managedFields":[1],"name":"a"}}`, `{"metadata":{"resourceVersion":"2","generation":2,"managedFields":[],"name":"a"}}`, []string{}},
		{`{"metadata":{"resourceVersion":"1"},"spec":1}`, `{"metadata":{"resourceVersion":"2"},"spec":2}`, []string{"spec"}},
		{`{"x":{"metadata":{"resourceVersion":"1"}}}`, `{"x":{"metadata":{"resourceVersion":"2"}}}`, []string{"x.metadata.resourceVersion"}},
		{`{"resourceVersion":"1"}`, `{"resourceVersion":"2"}`, []string{"resourceVersion"}},
		{`{"n":1}`, `{"n":1.0}`, []string{"n"}},
		{`{"n":50000000014435121}`, `{"n":50000000014435124}`, []string{"n"}},
		{`{"A":1}`, `{"a":1}`, []string{"A", "a"}},
		{`1`, `2`, []string{"."}},
		{`[1]`, `[2]`, []string{"."}},
	} {
		if diff := cmp.Diff(c.want, changed(t, c.old, c.new)); diff != "" {
			t.Errorf("%s to %s: %s", c.old, c.new, diff)
		}
	}
}

// W-075, W-078: a MODIFIED in which nothing that matters differs is no event,
// one without an old is.
func TestNoop(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entry string
		noop  bool
	}{
		{`{"seq":1,"type":"MODIFIED","old":{"metadata":{"generation":1}},"object":{"metadata":{"generation":2}}}`, true},
		{`{"seq":1,"type":"MODIFIED","old":{"a":1},"object":{"a":2}}`, false},
		{`{"seq":1,"type":"MODIFIED","object":{"a":2}}`, false},
		{`{"seq":1,"type":"MODIFIED","old":null,"object":{"a":2}}`, false},
		{`{"seq":1,"type":"MODIFIED","old":{"a":1}}`, false},
		{`{"seq":1,"type":"SYNCED","old":{"a":1},"object":{"a":1}}`, false},
	} {
		e := logEvent(t, c.entry)
		if got := !(unchanged{}).apply(t.Context(), &ticket{event: &e}); got != c.noop {
			t.Errorf("%s: dropped %v", c.entry, got)
		}
	}
	events := stateEvents(t, `[{"metadata":{"name":"a","resourceVersion":"1"}}]`, `[{"metadata":{"name":"a","resourceVersion":"2"}}]`)
	if len(events) != 1 || !events[0].noop() {
		t.Errorf("a new resourceVersion in a list: %v", brief(events))
	}
}

func TestItemKey(t *testing.T) {
	t.Parallel()
	keys := map[string]string{}
	for _, object := range []string{
		`{"metadata":{"uid":"1","name":"a"}}`, `{"uid":"1"}`, `{"id":"1"}`, `{"metadata":{"name":"a","namespace":"x"}}`,
		`{"metadata":{"name":"a","namespace":"y"}}`, `{"metadata":{"name":"a"}}`, `{"name":"b"}`,
	} {
		v, err := jsonx.Parse([]byte(object))
		if err != nil {
			t.Fatal(err)
		}
		key := itemKey(v)
		if other, twice := keys[key]; twice || key == "" {
			t.Errorf("%s has key %q, like %s", object, key, other)
		}
		keys[key] = object
	}
	for _, none := range []string{`{}`, `[]`, `null`, `{"id":null}`, `{"id":{}}`} {
		v, _ := jsonx.Parse([]byte(none))
		if key := itemKey(v); key != "" {
			t.Errorf("%s has key %q", none, key)
		}
	}
}
