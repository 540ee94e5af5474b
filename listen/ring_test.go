package listen_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/listen"
)

type logBody struct {
	Log     string           `json:"log"`
	LastSeq int64            `json:"last_seq"`
	Events  []map[string]any `json:"events"`
}

func readRing(t testing.TB, r *listen.Ring, after *int64) logBody {
	t.Helper()
	var b logBody
	if err := json.Unmarshal([]byte(r.Body(after)), &b); err != nil {
		t.Fatalf("body is no JSON: %v", err)
	}
	return b
}

func (b logBody) seqs() []int64 {
	out := []int64{}
	for _, e := range b.Events {
		out = append(out, int64(e["seq"].(float64)))
	}
	return out
}

func mustAppend(t testing.TB, r *listen.Ring, kind string, fields any) int64 {
	t.Helper()
	seq, err := r.Append(kind, fields)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// W-018, W-020, WA-05: the body, byte for byte, with numbers as they came.
func TestRingBody(t *testing.T) {
	t.Parallel()
	r := listen.NewRing(nil)
	if got, want := r.Body(nil), `{"log":"`+r.Log()+`","last_seq":0,"events":[]}`; got != want {
		t.Errorf("an empty ring reads\n\t%s, want\n\t%s", got, want)
	}
	mustAppend(t, r, "ADDED", map[string]any{"object": jsontext.Value(`{"id": 1915883588174806058, "html": "<a>"}`)})
	mustAppend(t, r, "SYNCED", nil)
	r.AppendError("gone\xff: \"x\"")
	want := `{"log":"` + r.Log() + `","last_seq":3,"events":[` +
		`{"seq":1,"type":"ADDED","object":{"id":1915883588174806058,"html":"<a>"}},` +
		`{"seq":2,"type":"SYNCED"},` +
		"{\"seq\":3,\"type\":\"ERROR\",\"message\":\"gone\uFFFD: \\\"x\\\"\"}]}"
	if got := r.Body(nil); got != want {
		t.Errorf("body is\n\t%s, want\n\t%s", got, want)
	}
	c := r.Contents("x://y", listen.ReadOptions{})
	if d := cmp.Diff([]listen.Contents{{URI: "x://y", MIMEType: listen.EventLogMIME, Text: want}}, c); d != "" {
		t.Error(d)
	}
	if other := listen.NewRing(nil); other.Log() == r.Log() || r.Log() == "" {
		t.Error("two rings have one log id") // WA-06
	}
}

// W-020, W-042: bounded by count; what is lost is the oldest, and shows as a gap.
func TestRingCount(t *testing.T) {
	t.Parallel()
	r := listen.NewRing(&listen.RingOptions{MaxEvents: 3})
	for i := range 3 {
		mustAppend(t, r, "E", nil)
		if got := len(readRing(t, r, nil).Events); got != i+1 {
			t.Fatalf("%d events after %d", got, i+1)
		}
	}
	mustAppend(t, r, "E", nil)
	b := readRing(t, r, nil)
	if d := cmp.Diff([]int64{2, 3, 4}, b.seqs()); d != "" || b.LastSeq != 4 {
		t.Errorf("after 4 events: last %d %s", b.LastSeq, d)
	}
	full := listen.NewRing(nil)
	for range listen.DefaultRingEvents + 1 {
		mustAppend(t, full, "E", nil)
	}
	if got := readRing(t, full, nil).seqs(); len(got) != listen.DefaultRingEvents || got[0] != 2 {
		t.Errorf("the default ring holds %d events from %d", len(got), got[0])
	}
}

// WA-29: bounded by bytes; an event that does not fit at all is told of.
func TestRingBytes(t *testing.T) {
	t.Parallel()
	r := listen.NewRing(&listen.RingOptions{MaxBytes: 2048})
	for range 10 {
		mustAppend(t, r, "E", map[string]string{"pad": strings.Repeat("x", 700)})
		if got := len(r.Body(nil)); got > 2048+100 {
			t.Fatalf("body has %d bytes", got)
		}
	}
	if d := cmp.Diff([]int64{9, 10}, readRing(t, r, nil).seqs()); d != "" {
		t.Error(d)
	}
	seq := mustAppend(t, r, "HUGE", map[string]string{"pad": strings.Repeat("x", 4096)})
	b := readRing(t, r, nil)
	last := b.Events[len(b.Events)-1]
	if seq != 11 || b.LastSeq != 11 || last["type"] != listen.EventError || !strings.Contains(fmt.Sprint(last["message"]), "HUGE") {
		t.Errorf("an event over the limit became %v, seq %d, last %d", last, seq, b.LastSeq)
	}
}

// M-6: the cursor; W-021: it consumes nothing.
func TestRingAfter(t *testing.T) {
	t.Parallel()
	r := listen.NewRing(&listen.RingOptions{MaxEvents: 4})
	for range 10 {
		mustAppend(t, r, "E", nil)
	}
	for _, tt := range []struct {
		after int64
		want  []int64
	}{
		{10, []int64{}},
		{9, []int64{10}},
		{7, []int64{8, 9, 10}},
		{6, []int64{7, 8, 9, 10}},
		{0, []int64{7, 8, 9, 10}},
		{-1, []int64{7, 8, 9, 10}},
		{11, []int64{7, 8, 9, 10}}, // a cursor of the log before this one
	} {
		for range 2 {
			b := readRing(t, r, &tt.after)
			if d := cmp.Diff(tt.want, b.seqs()); d != "" || b.LastSeq != 10 {
				t.Errorf("after %d: last %d %s", tt.after, b.LastSeq, d)
			}
		}
	}
}

func TestRingRefuses(t *testing.T) {
	t.Parallel()
	r := listen.NewRing(nil)
	for _, fields := range []any{
		map[string]int{"seq": 1},
		map[string]string{"type": "x"},
		[]int{1},
		"text",
		jsontext.Value(`{"a":1,"a":2}`),
		func() {},
	} {
		if seq, err := r.Append("E", fields); err == nil {
			t.Errorf("Append(%v) = %d", fields, seq)
		}
	}
	if r.LastSeq() != 0 {
		t.Error("a refused event took a seq")
	}
}

func TestRingConcurrent(t *testing.T) {
	t.Parallel()
	r := listen.NewRing(&listen.RingOptions{MaxEvents: 50})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				mustAppend(t, r, "E", nil)
				got := readRing(t, r, nil).seqs()
				for i, seq := range got {
					if seq != got[0]+int64(i) {
						t.Errorf("seqs jump: %v", got)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if r.LastSeq() != 800 {
		t.Errorf("last seq is %d", r.LastSeq())
	}
}
