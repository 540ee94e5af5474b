package watch

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func lineOf(t *testing.T, e Event) string {
	t.Helper()
	tk := &ticket{event: &e}
	defaultLine{&liner{}, DefaultLineRunes}.apply(t.Context(), tk)
	return tk.line
}

// W-250: default notice text.
func TestDefaultLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60)
	for _, c := range []struct{ name, entry, want string }{
		// W-090
		{"namespaced", `{"seq":1,"type":"ADDED","object":{"metadata":{"name":"watch-probe","namespace":"default"}}}`, "ADDED default/watch-probe"},
		// WA-18
		{"cluster-scoped", `{"seq":1,"type":"ADDED","object":{"metadata":{"name":"node-1"}}}`, "ADDED node-1"},
		// W-092
		{"otherwise compact", `{"seq": 1, "type":"SENT", "to":["a", 1.0]}`, `{"seq":1,"type":"SENT","to":["a",1.0]}`},
		// W-093
		{
			"three changes", `{"seq":1,"type":"MODIFIED","old":{"metadata":{"name":"bid-1"},"status":{"phase":"Deciding"}},"object":{"metadata":{"name":"bid-1"},"status":{"phase":"Published"}}}`,
			"MODIFIED bid-1 (status.phase: Deciding→Published)",
		},
		{
			"no more than three", `{"seq":1,"type":"MODIFIED","old":{"metadata":{"name":"b"},"a":1,"c":1,"d":1,"e":1},"object":{"metadata":{"name":"b"},"a":2,"c":2,"d":2,"e":2}}`,
			"MODIFIED b (a: 1→2, c: 1→2, d: 1→2)",
		},
		{
			"appears and goes", `{"seq":1,"type":"MODIFIED","old":{"metadata":{"name":"b"},"a":1},"object":{"metadata":{"name":"b"},"c":""}}`,
			`MODIFIED b (a: 1→(none), c: (none)→"")`,
		},
		// W-094
		{"long values", `{"seq":1,"type":"MODIFIED","old":{"metadata":{"name":"b"},"a":"` + long + `1"},"object":{"metadata":{"name":"b"},"a":"` + long + `2"}}`, "MODIFIED b (a)"},
		{
			"arrays and objects", `{"seq":1,"type":"MODIFIED","old":{"metadata":{"name":"b"},"a":[1],"d":{"x":{"y":{"z":1}}}},"object":{"metadata":{"name":"b"},"a":[2],"d":{"x":{"y":{"z":2}}}}}`,
			"MODIFIED b (a, d.x.y)",
		},
		{"both sides alike", `{"seq":1,"type":"MODIFIED","old":{"metadata":{"name":"b"},"a":1},"object":{"metadata":{"name":"b"},"a":"1"}}`, "MODIFIED b (a)"},
		// W-095
		{"deleted", `{"seq":1,"type":"DELETED","old":{"status":{"phase":"Running"}},"object":{"metadata":{"name":"b"},"status":{"phase":"Releasing"}}}`, "DELETED b"},
		{"error", `{"seq":1,"type":"ERROR","message":"the workspace\nis gone"}`, "ERROR the workspace is gone"},
		{"error without a message", `{"seq":1,"type":"ERROR","code":3}`, `{"seq":1,"type":"ERROR","code":3}`},
	} {
		if diff := cmp.Diff(c.want, lineOf(t, logEvent(t, c.entry))); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
	if got, want := lineOf(t, seqGap(58, 92)), "GAP 35 events were missed (seq 58 to 92)"; got != want {
		t.Errorf("GAP is %q", got)
	}
}

func TestDefaultLinesOfState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, old, new string
		want           []string
	}{
		// W-091
		{"list", `[{"id":1},{"id":2,"v":1}]`, `[{"id":2,"v":3},{"id":4}]`, []string{"MODIFIED 2 (v: 1→3)", "ADDED 4", "DELETED 1"}},
		{"object", `{"todo":"a"}`, `{"owner":"me","todo":"b"}`, []string{"ADDED owner", "MODIFIED todo (a→b)"}},
		// W-094: a member that is one value, and not one to be shown, has no path.
		{"object with long values", `{"l":[1],"s":"` + strings.Repeat("x", 60) + `"}`, `{"l":[2],"s":"` + strings.Repeat("y", 60) + `"}`, []string{"MODIFIED l", "MODIFIED s"}},
		{"scalars", `["a"]`, `["b"]`, []string{"ADDED b", "DELETED a"}},
		// W-090: a list of Kubernetes objects is keyed by uid and shown by name.
		{"kubernetes list", `[]`, `[{"metadata":{"uid":"0","name":"n","namespace":"ns"}}]`, []string{"ADDED ns/n"}},
		{"short text", `red`, `green`, []string{"CHANGED (red→green)"}},
		{"long text", strings.Repeat("a", 50) + "1 tail", strings.Repeat("a", 50) + "2 tail", []string{"CHANGED at character 51: 2 tail"}},
		{"shape", `[]`, `{}`, []string{"CHANGED from a list to an object"}},
		{"no longer JSON", `{}`, `{`, []string{"CHANGED from an object to text"}},
	} {
		lines := []string{}
		for _, e := range stateEvents(t, c.old, c.new) {
			lines = append(lines, lineOf(t, e))
		}
		if diff := cmp.Diff(c.want, lines); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// WA-18: the kind is named from the moment at which a watch has seen two.
func TestLineNamesTheKindWhenThereAreSeveral(t *testing.T) {
	t.Parallel()
	l := &liner{}
	var got []string
	for _, kind := range []string{"Pod", "Pod", "Service", "Pod"} {
		e := logEvent(t, `{"seq":1,"type":"ADDED","object":{"kind":"`+kind+`","metadata":{"name":"a"}}}`)
		got = append(got, l.line(&e))
	}
	if diff := cmp.Diff([]string{"ADDED a", "ADDED a", "ADDED Service a", "ADDED Pod a"}, got); diff != "" {
		t.Error(diff)
	}
}

// WA-23: text from outside is one line and cannot end a notice's frame.
func TestNeutral(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"plain ünïcode → ok 👩‍🚀", "plain ünïcode → ok 👩‍🚀"},
		{"a\nb\r\nc\td\u2028e\u0085f", "a b  c d e f"},
		{"x</watch-event>y", "x‹/watch-event>y"},
		{"x< / WATCH-Event >y", "x‹ / WATCH-Event >y"},
		{"<watch-event name=\"a\">", "‹watch-event name=\"a\">"},
		{"＜／watch‑event＞", "‹／watch‑event＞"},
		{"</wat\u200bch-event>", "</wat\ufffdch-event>"},
		{"</watch\u200d-event>", "‹/watch-event>"},
		{"</watch_event>", "‹/watch_event>"},
		{"a\x1b[31mred\x00\u009b", "a\ufffd[31mred\ufffd\ufffd"},
		{"\u202eevil\u2066", "\ufffdevil\ufffd"},
		{"tag\U000E0041\U000E007F", "tag\ufffd\ufffd"},
		{"bad\xffutf8", "bad\ufffdutf8"},
		{"1 < 2 and <b>", "1 < 2 and <b>"},
	} {
		if got := neutral(c.in); got != c.want {
			t.Errorf("neutral(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func FuzzNeutral(f *testing.F) {
	f.Add("</watch-event>\n\u202e")
	f.Add("<\u200d/\u200dwatch\u200d-\u200devent")
	f.Fuzz(func(t *testing.T, s string) {
		got := bound(s, DefaultLineRunes)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > DefaultLineRunes {
			t.Fatalf("bound(%q) = %q", s, got)
		}
		if strings.ContainsAny(got, "\n\r\x00\x1b\u202e\u2028") {
			t.Fatalf("bound(%q) = %q has a control character", s, got)
		}
		if strings.Contains(strings.ToLower(strings.ReplaceAll(got, " ", "")), "</watch-event") {
			t.Fatalf("bound(%q) = %q ends a frame", s, got)
		}
		if again := bound(got, DefaultLineRunes); again != got {
			t.Fatalf("bound(%q) = %q, and again %q", s, got, again)
		}
	})
}

// WA-16: a line has at most 500 characters.
func TestBoundLine(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{499: 499, 500: 500, 501: 500, 100_000: 500} {
		got := bound(strings.Repeat("é", n), DefaultLineRunes)
		if runes := utf8.RuneCountInString(got); runes != want || strings.HasSuffix(got, "…") != (n > 500) {
			t.Errorf("%d characters become %d: …%s", n, runes, got[len(got)-8:])
		}
	}
}

// W-101, W-122, W-164, WA-20: a notice.
func TestBatch(t *testing.T) {
	t.Parallel()
	lim := Limits{}.withDefaults()
	fill := func(lines ...string) []string {
		b := batch{limits: &lim}
		for _, l := range lines {
			b.add(l, time.Time{})
		}
		return b.take()
	}
	if diff := cmp.Diff([]string{"a ×3", "b", "c ×2"}, fill("a", "b", "a", "c", "c", "a")); diff != "" {
		t.Error(diff)
	}
	var lines []string
	for i := range 23 {
		lines = append(lines, fmt.Sprint("line ", i), fmt.Sprint("line ", i))
	}
	for n, last := range map[int]string{40: "line 19 ×2", 42: "+1 more", 46: "+3 more"} {
		got := fill(lines[:n]...)
		if want := min(n/2, 20) + min(1, max(0, n/2-20)); len(got) != want || got[len(got)-1] != last {
			t.Errorf("%d lines: %d, the last %q", n, len(got), got[len(got)-1])
		}
	}
	small := Limits{Lines: 2, PendingLines: 3}.withDefaults()
	b := batch{limits: &small}
	for i := range 10 {
		b.add(fmt.Sprint(i), time.Time{})
	}
	if diff := cmp.Diff([]string{"0", "1", "+8 more"}, b.take()); diff != "" {
		t.Errorf("lines beyond those that are kept: %s", diff)
	}
	if !b.empty() || len(b.take()) != 0 {
		t.Error("the batch was not emptied")
	}
}

// TestBatchBounds: a batch leaves not before 3 s after its last line, unless 15 s
// after its first have passed (W-120, W-121, W-165).
func TestBatchBounds(t *testing.T) {
	t.Parallel()
	lim := Limits{}.withDefaults()
	start := time.Unix(0, 0)
	for seed := range 200 {
		b := batch{limits: &lim}
		now := start
		for step := range 100 {
			now = now.Add(time.Duration((seed*37+step*101)%2999) * time.Millisecond)
			due := b.add(fmt.Sprint(step), now)
			if due.After(b.first.Add(15*time.Second)) || due.After(now.Add(3*time.Second)) {
				t.Fatalf("at %s the batch of %s is due at %s", now.Sub(start), b.first.Sub(start), due.Sub(start))
			}
			if due.Before(now.Add(3*time.Second)) && !due.Equal(b.first.Add(15*time.Second)) {
				t.Fatalf("at %s the batch of %s is due too soon, at %s", now.Sub(start), b.first.Sub(start), due.Sub(start))
			}
			if !due.After(now) {
				b.take()
			}
		}
	}
}

// W-100, WA-19: per object, bounded, and an object's row goes with its DELETED.
func TestDedupe(t *testing.T) {
	t.Parallel()
	d := &dedupe{newRows(2)}
	pass := func(kind, key, line string) bool {
		return d.apply(t.Context(), &ticket{event: &Event{Type: kind, Key: key}, line: line})
	}
	for i, c := range []struct {
		kind, key, line string
		want            bool
	}{
		{TypeAdded, "a", "x", true},
		{TypeModified, "a", "x", false},
		{TypeModified, "b", "x", true},
		{TypeModified, "a", "y", true},
		{TypeModified, "a", "x", true},
		{TypeDeleted, "a", "gone", true},
		{TypeAdded, "a", "gone", true}, // a successor begins anew
		{TypeAdded, "c", "z", true},    // the third object: b, used longest ago, is forgotten
		{TypeModified, "b", "x", true},
		{TypeModified, "c", "z", false},
		{TypeError, "", "down", true},
		{TypeError, "", "down", false},
		{TypeModified, strings.Repeat("k", 5000), "x", true},
		{TypeModified, strings.Repeat("k", 5000), "x", false},
	} {
		if got := pass(c.kind, c.key, c.line); got != c.want {
			t.Errorf("step %d %s %.10s %s: kept %v", i, c.kind, c.key, c.line, got)
		}
	}
	remark := &ticket{event: &Event{Type: TypeError}, line: "down", remarks: []string{"filter error"}}
	d.apply(t.Context(), &ticket{event: &Event{Type: TypeError}, line: "down"})
	if !d.apply(t.Context(), remark) || remark.line != "" {
		t.Error("a remark fell with a repeated line")
	}
}

// WA-19: the row that was used longest ago goes first.
func TestRowsForgetTheLeastUsed(t *testing.T) {
	t.Parallel()
	r := newRows(2)
	r.set("a", "x")
	r.set("b", "x")
	r.set("a", "x")
	r.set("c", "x") // b goes
	if r.set("a", "x") || !r.set("b", "x") {
		t.Error("the wrong row was forgotten")
	}
}

func TestDedupeIsBounded(t *testing.T) {
	t.Parallel()
	d := newRows(DefaultDedupeRows)
	for i := range 3 * DefaultDedupeRows {
		d.set(fmt.Sprint(i), "x")
	}
	if len(d.byKey) != DefaultDedupeRows || d.order.Len() != DefaultDedupeRows {
		t.Errorf("%d rows", len(d.byKey))
	}
}
