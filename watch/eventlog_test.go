package watch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// logText makes an event-log body. id "" makes one without identity and position.
func logText(id string, last int64, seqs ...int64) string {
	entries := []string{}
	for _, seq := range seqs {
		entries = append(entries, fmt.Sprintf(`{"seq":%d,"type":"ADDED","object":{"id":%d}}`, seq, seq))
	}
	head := ""
	if id != "" {
		head = fmt.Sprintf(`"log":%q,"last_seq":%d,`, id, last)
	}
	return `{` + head + `"events":[` + strings.Join(entries, ",") + `]}`
}

func mustLog(t *testing.T, body string) *logBody {
	t.Helper()
	l, err := parseLog([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// trail shows events by their seq, a GAP by its range.
func trail(events []Event) []string {
	list := []string{}
	for _, e := range events {
		if e.Type == TypeGap {
			list = append(list, "GAP "+e.message())
		} else {
			list = append(list, fmt.Sprint(e.Seq))
		}
	}
	return list
}

// W-250: event log, seq and GAP.
func TestEventLog(t *testing.T) {
	t.Parallel()
	type read struct {
		body string
		want []string
	}
	for _, c := range []struct {
		name     string
		baseline string
		reads    []read
	}{
		// W-018, W-040: events with a greater seq, in order, whatever the order of the body.
		{"in order of seq", logText("", 0, 1, 2), []read{{logText("", 0, 5, 3, 4, 1, 2), []string{"3", "4", "5"}}}},
		// W-041, W-244: at most once for each seq.
		{"read again", logText("", 0, 1), []read{{logText("", 0, 1, 2), []string{"2"}}, {logText("", 0, 1, 2), []string{}}, {logText("", 0, 2, 3, 3), []string{"3"}}}},
		// W-042: the oldest seq is greater than the last seen + 1.
		{"gap", logText("", 0, 1, 2), []read{{logText("", 0, 5, 6), []string{"GAP 2 events were missed (seq 3 to 4)", "5", "6"}}, {logText("", 0, 5, 6, 7), []string{"7"}}}},
		{"gap of one", logText("", 0, 1), []read{{logText("", 0, 3), []string{"GAP event 2 was missed", "3"}}}},
		// W-043: every event is delivered, also those that cancel each other out.
		{"no net difference", logText("", 0, 1), []read{{`{"events":[{"seq":2,"type":"ADDED","object":{"id":1}},{"seq":3,"type":"DELETED","object":{"id":1}}]}`, []string{"2", "3"}}}},
		// W-044: the events of the baseline are not delivered.
		{"baseline", logText("", 0, 7, 8, 9), []read{{logText("", 0, 7, 8, 9), []string{}}, {logText("", 0, 8, 9, 10), []string{"10"}}}},
		// WA-05: an empty ring at the baseline.
		{"empty baseline, first event", logText("", 0), []read{{logText("", 0, 1), []string{"1"}}}},
		{"empty baseline, seq 40", logText("", 0), []read{{logText("", 0, 40), []string{"GAP 39 events were missed (seq 1 to 39)", "40"}}}},
		{"empty baseline with a position", logText("a", 39), []read{{logText("a", 40, 40), []string{"40"}}}},
		{"the ring was emptied", logText("a", 5, 5), []read{{logText("a", 9), []string{"GAP 4 events were missed (seq 6 to 9)"}}, {logText("a", 10, 10), []string{"10"}}}},
		// A position taken a moment after the events costs no event.
		{"position ahead of the events", logText("a", 7, 5), []read{{logText("a", 8, 5, 6, 7, 8), []string{"6", "7", "8"}}}},
		// WA-06: a log that began anew, known by its identity, its position, or its seqs.
		{"new identity", logText("a", 57, 57), []read{
			{logText("b", 60, 58, 59, 60), []string{"GAP the event log began anew after seq 57; events may have been missed", "58", "59", "60"}},
			{logText("b", 61, 60, 61), []string{"61"}},
		}},
		{"new identity, nothing yet", logText("a", 57, 57), []read{{logText("b", 0), []string{"GAP the event log began anew after seq 57; events may have been missed"}}, {logText("b", 1, 1), []string{"1"}}}},
		{"lower seqs", logText("", 0, 57), []read{{logText("", 0, 1, 2), []string{"GAP the event log began anew after seq 57; events may have been missed", "1", "2"}}, {logText("", 0, 1, 2, 3), []string{"3"}}}},
		{"lower position", logText("a", 57, 57), []read{{logText("a", 2, 1, 2), []string{"GAP the event log began anew after seq 57; events may have been missed", "1", "2"}}}},
		{"an empty ring without a position says nothing", logText("", 0, 57), []read{{logText("", 0), []string{}}, {logText("", 0, 58), []string{"58"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cur := mustLog(t, c.baseline).baseline()
			for i, r := range c.reads {
				if diff := cmp.Diff(r.want, trail(cur.advance(mustLog(t, r.body), false))); diff != "" {
					t.Errorf("read %d: %s", i, diff)
				}
			}
		})
	}
}

func TestEventLogAnswersToACursor(t *testing.T) {
	t.Parallel()
	cur := mustLog(t, logText("a", 57, 56, 57)).baseline()
	if !cur.resumable {
		t.Fatal("a log with identity and position is not resumable")
	}
	if diff := cmp.Diff([]string{}, trail(cur.advance(mustLog(t, logText("a", 57)), true))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"58"}, trail(cur.advance(mustLog(t, logText("a", 58, 58)), true))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"GAP event 59 was missed", "60"}, trail(cur.advance(mustLog(t, logText("a", 60, 60)), true))); diff != "" {
		t.Error(diff)
	}
	// An answer that ran behind the position loses nothing.
	if diff := cmp.Diff([]string{}, trail(cur.advance(mustLog(t, logText("a", 62)), true))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"61", "62"}, trail(cur.advance(mustLog(t, logText("a", 62, 61, 62)), true))); diff != "" {
		t.Error(diff)
	}
	for _, body := range []string{logText("b", 99), logText("a", 3)} {
		if !cur.restarted(mustLog(t, body)) {
			t.Errorf("%s is not seen to have begun anew", body)
		}
	}
	if mustLog(t, logText("", 0, 1)).resumable() {
		t.Error("a log without identity is resumable")
	}
}

// TestEventLogAtMostOnce reads a ring at random moments, again and again,
// through restarts: what is delivered are the seqs of each log in order, none
// twice, and none is missing without a GAP (W-041, W-042, W-244).
func TestEventLogAtMostOnce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for round := range 120 {
		const size = 8
		named := round%2 == 0
		id, seq := 1, int64(0)
		var ring []int64
		body := func(after *int64) string {
			shown := []int64{}
			for _, s := range ring {
				if after == nil || s > *after {
					shown = append(shown, s)
				}
			}
			r.Shuffle(len(shown), func(i, j int) { shown[i], shown[j] = shown[j], shown[i] })
			if r.IntN(3) == 0 && len(shown) > 0 {
				shown = append(shown, shown[0]) // an entry twice
			}
			if named {
				return logText(fmt.Sprint(id), seq, shown...)
			}
			return logText("", 0, shown...)
		}
		cur := mustLog(t, body(nil)).baseline()
		delivered, expect, fresh := map[string]bool{}, int64(1), true
		for range 60 {
			for range r.IntN(12) {
				seq++
				if ring = append(ring, seq); len(ring) > size {
					ring = ring[1:]
				}
			}
			restarted := false
			if r.IntN(15) == 0 && seq > 3 {
				id++
				seq, ring, restarted = 1, []int64{1}, true
				if !named && cur.last <= 1 {
					restarted = false // not to be known from outside
					fresh = true
				}
			}
			log, partial := mustLog(t, body(nil)), false
			if cur.resumable && r.IntN(2) == 0 {
				last := cur.last
				if l := mustLog(t, body(&last)); !cur.restarted(l) {
					log, partial = l, true
				}
			}
			for _, e := range cur.advance(log, partial) {
				if e.Type == TypeGap {
					fresh, expect = true, 0
					continue
				}
				key := fmt.Sprint(id, ":", e.Seq)
				if delivered[key] {
					t.Fatalf("round %d: seq %s twice", round, key)
				}
				delivered[key] = true
				if !fresh && e.Seq != expect {
					t.Fatalf("round %d: seq %d without a GAP, want %d", round, e.Seq, expect)
				}
				fresh, expect = false, e.Seq+1
			}
			if restarted && !fresh && expect != seq+1 {
				t.Fatalf("round %d: after a restart the last was %d, want %d", round, expect-1, seq)
			}
		}
	}
}

// M-16: entries that are no events are left out and counted, and nothing panics.
func TestEventLogHostile(t *testing.T) {
	t.Parallel()
	l := mustLog(t, fmt.Sprintf(`{"events":[{"seq":1,"type":"A"},{"seq":"2","type":"A"},{"seq":1.0,"type":"A"},{"seq":0,"type":"A"},{"seq":-1,"type":"A"},
		{"seq":3},{"seq":4,"type":""},{"seq":5,"type":7},{"SEQ":6,"type":"A"},null,[],7,{"seq":%d,"type":"A"},{"seq":1e3,"type":"A"},{"seq":99999999999999999999,"type":"A"}],
		"log":7,"last_seq":"x"}`, int64(math.MaxInt64)))
	if len(l.events) != 1 || l.broken != 14 || l.id != "" || l.lastSeq != nil {
		t.Errorf("events %d, broken %d, id %q, last %v", len(l.events), l.broken, l.id, l.lastSeq)
	}
	for _, body := range []string{``, `[]`, `{}`, `{"events":{}}`, `{"events":null}`, `{"Events":[]}`, `{"events":[]`, `{"events":[],"events":[]}`, `null`, `"x"`} {
		if _, err := parseLog([]byte(body)); err == nil {
			t.Errorf("%s is an event log", body)
		}
	}
	cur := mustLog(t, logText("", 0, math.MaxInt64-1)).baseline()
	if got := trail(cur.advance(mustLog(t, logText("", 0, math.MaxInt64-1)), false)); len(got) != 0 {
		t.Errorf("at the greatest seq: %v", got)
	}
}

func FuzzEventLog(f *testing.F) {
	f.Add([]byte(logText("a", 3, 1, 2, 3)), []byte(logText("b", 1, 1)))
	f.Add([]byte(`{"events":[{"seq":1,"type":"MODIFIED","old":{"a":1},"object":{"a":2}}]}`), []byte(`{"events":[{"seq":2,"type":"ERROR","message":"x"}],"last_seq":9}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		first, err := parseLog(a)
		if err != nil {
			return
		}
		second, err := parseLog(b)
		if err != nil {
			return
		}
		cur := first.baseline()
		seen := map[int64]bool{}
		for range 2 {
			for _, e := range cur.advance(second, false) {
				if e.Type != TypeGap && e.Seq != 0 {
					if seen[e.Seq] {
						t.Fatalf("seq %d twice", e.Seq)
					}
					seen[e.Seq] = true
				}
				if e.Type == "" {
					t.Fatal("an event without a type")
				}
				e.Object("w", "u")
				(&liner{}).line(&e)
			}
		}
	})
}
