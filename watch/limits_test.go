package watch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// W-160 to W-166: the defaults are those of the specification; each has its
// boundary test where it acts.
func TestLimitTable(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	for _, row := range LimitTable() {
		got[row.What] = row.Default
	}
	want := map[string]string{
		"watches per agent": "5", "filter run, per event": "2s", "filter tool calls, per event": "10", "events per pass": "100",
		"lines per notice": "20", "debounce, quiet": "3s", "debounce, at most": "15s", "resubscribe attempts": "5 (1s to 16s)",
		"filter failures in a row": "20", "objects whose last line is remembered": "4096", "characters per line": "500",
	}
	for what, value := range want {
		if got[what] != value {
			t.Errorf("%s is %q, want %q", what, got[what], value)
		}
	}
}

func TestLimitsWithDefaults(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(Limits{}.withDefaults(), Limits{Watches: -1, Quiet: -time.Second}.withDefaults()); diff != "" {
		t.Errorf("negative fields: %s", diff)
	}
	set := Limits{Watches: 1, Lines: 50, PendingLines: 10, Quiet: time.Minute}.withDefaults()
	if set.Watches != 1 || set.Quiet != time.Minute || set.PendingLines != 50 || set.Events != DefaultEvents {
		t.Errorf("set fields: %+v", set)
	}
}

// W-125, W-163: one pass takes 100 events.
func TestNextPass(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][2]int{0: {0, 0}, 99: {99, 0}, 100: {100, 0}, 101: {100, 1}} {
		pass, rest := nextPass(make([]Event, n), DefaultEvents)
		if len(pass) != want[0] || len(rest) != want[1] {
			t.Errorf("%d events: %d now, %d later", n, len(pass), len(rest))
		}
	}
}
