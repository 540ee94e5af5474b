package feed_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/ossicle/ossicle/feed"
)

func event(typ, data string) feed.Event { return feed.Event{Type: typ, Data: json.RawMessage(data)} }

// F-29: the form, with counts of all events.
func TestDigest(t *testing.T) {
	t.Parallel()
	d := feed.NewDigest(&feed.DigestOptions{Buffer: 8, Tokens: 400})
	if got := d.Render(); got != "" {
		t.Errorf("empty: %q", got)
	}
	for i := range 12 {
		d.Add(event("incident.updated", fmt.Sprintf(`{"n":%d}`, i)))
	}
	for i := range 3 {
		d.Add(event("incident.resolved", fmt.Sprintf(`{"r":%d}`, i)))
	}
	want := `Since your last message: 12 x incident.updated, 3 x incident.resolved (7 older events dropped).
Most recent:
- incident.updated: {"n":10}
- incident.updated: {"n":11}
- incident.resolved: {"r":0}
- incident.resolved: {"r":1}
- incident.resolved: {"r":2}`
	if got := d.Render(); got != want {
		t.Errorf("got %s", got)
	}
	if got := d.Render(); got != "" {
		t.Errorf("rendered twice: %q", got)
	}
	d.AddGap(feed.Gap{Dropped: 40})
	d.Add(event("up", "1"))
	if got := d.Render(); !strings.HasPrefix(got, "Since your last message: 1 x up, 40 x others (33 older events dropped).\n") {
		t.Errorf("with a gap: %s", got)
	}
}

// estimate is the usual rule of thumb, four bytes a token.
func estimate(s string) int { return (len(s) + 3) / 4 }

// F-29: 4,000 events of one type cost at most 120 tokens and are all counted.
func TestDigestIsBounded(t *testing.T) {
	t.Parallel()
	for _, data := range []string{`{"id":"INC-2231","severity":"SEV1","status":"mitigating"}`, `{"text":"` + strings.Repeat("word ", 200) + `"}`, strings.Repeat(`[`, 300), `"` + strings.Repeat("日本", 300) + `"`, "1"} {
		d := feed.NewDigest(nil)
		for range 4000 {
			d.Add(event("incident.updated", data))
		}
		got := d.Render()
		if !strings.HasPrefix(got, "Since your last message: 4000 x incident.updated (3800 older events dropped).\nMost recent:\n- ") || strings.Count(got, "\n- ") != 5 {
			t.Errorf("got %s", got)
		}
		if n := estimate(got); n > 120 || !utf8.ValidString(got) {
			t.Errorf("%d tokens: %s", n, got)
		}
	}
}

// F-29, F-30: bounded whatever comes, and each line cut on a rune boundary.
func TestDigestOfHostileEvents(t *testing.T) {
	t.Parallel()
	d := feed.NewDigest(&feed.DigestOptions{Tokens: 5000})
	for i := range 10_000 {
		d.Add(event(strings.Repeat("t", 100)+fmt.Sprint(i), `"`+strings.Repeat("é", 200_000/100)+`"`))
	}
	got := d.Render()
	if len(got) > 4000 || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
	if !strings.Contains(got, "9992 x others") {
		t.Errorf("got %s", got)
	}
	for line := range strings.SplitSeq(got, "\n") {
		if data, ok := strings.CutPrefix(line, "- "+strings.Repeat("t", 40)+": "); ok && utf8.RuneCountInString(data) != 160 {
			t.Errorf("%d characters", utf8.RuneCountInString(data))
		}
	}
}

// F-29: every event is in exactly one block.
func TestDigestIsAtomic(t *testing.T) {
	t.Parallel()
	d := feed.NewDigest(nil)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				d.Add(event("x", "1"))
			}
		})
	}
	total := 0
	count := func() {
		var n int
		if _, err := fmt.Sscanf(d.Render(), "Since your last message: %d x x", &n); err == nil {
			total += n
		}
	}
	for range 100 {
		count()
	}
	wg.Wait()
	count()
	if total != 4000 {
		t.Errorf("counted %d", total)
	}
}

// F-29, F-30: what was lost on the way is told, also where nobody knows how much,
// and an event with its key.
func TestADigestTellsOfLoss(t *testing.T) {
	t.Parallel()
	d := feed.NewDigest(nil)
	d.AddGap(feed.Gap{From: 1, To: 250, Reason: feed.Evicted})
	if got := d.Render(); !strings.Contains(got, "missing") {
		t.Errorf("a loss alone is %q", got)
	}
	if got := d.Render(); got != "" {
		t.Errorf("told twice: %q", got)
	}
	d.AddGap(feed.Gap{From: 1, To: 250, Reason: feed.Epoch})
	d.Add(feed.Event{Type: "opened", Key: "INC-7", Data: []byte(`{"severity":"high"}`)})
	if got := d.Render(); !strings.HasPrefix(got, "Since your last message: 1 x opened (events before these are missing") || !strings.Contains(got, `- INC-7 {"severity":"high"}`) {
		t.Errorf("got %q", got)
	}
}
