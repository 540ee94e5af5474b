package watch

import (
	"strconv"
	"time"

	"github.com/ossicle/ossicle/internal/python"
)

// Defaults of [Limits].
const (
	DefaultWatches        = 5
	DefaultFilterTime     = python.DefaultTime
	DefaultFilterCalls    = python.DefaultCalls
	DefaultFilterFailures = 20
	DefaultEvents         = 100
	DefaultLines          = 20
	DefaultLineRunes      = 500
	DefaultQuiet          = 3 * time.Second
	DefaultMaxWait        = 15 * time.Second
	DefaultDedupeRows     = 4096
	DefaultPendingLines   = 1000
	DefaultBody           = 16 << 20
	DefaultReadTime       = 40 * time.Second
	DefaultCloseTime      = 2 * time.Second
	DefaultQueue          = 256
	// Resubscribes is how often a failed subscription is tried again, with the
	// delays of [Backoff], before its watches fail (W-050, W-051). The servers of
	// an engine do the trying; the engine tells of it.
	Resubscribes = 5
)

// Bounds of the arguments of [Manager.Start], in bytes.
const (
	MaxName   = 64
	MaxURI    = 4096
	MaxSource = python.MaxSource
)

// Limits bound an engine (specification W-160 to W-166). A zero field takes its
// default.
type Limits struct {
	Watches        int           // running watches; a start beyond fails
	FilterTime     time.Duration // one filter run, its tool calls included
	FilterCalls    int           // tool calls of one filter run
	FilterFailures int           // failed runs in a row after which a filter is switched off
	Events         int           // events of one update that are processed before others get their turn; none is dropped
	Lines          int           // lines of a notice; more are counted as "+N more"
	LineRunes      int           // a longer line is cut
	Quiet          time.Duration // a notice leaves this long after its last line …
	MaxWait        time.Duration // … or this long after its first, if that is sooner
	DedupeRows     int           // objects whose last line is remembered, the longest unused is forgotten
	PendingLines   int           // different lines that wait for a notice; more are only counted
	Body           int           // bytes of a read; a larger one is an error
	ReadTime       time.Duration // one read, the server's wait for its source included
	CloseTime      time.Duration // Close waits this long for what is running
	Queue          int           // notices that are no lines of a watch and wait for the sink; the oldest is dropped
}

func (l Limits) withDefaults() Limits {
	for _, field := range []struct {
		value *int
		def   int
	}{
		{&l.Watches, DefaultWatches},
		{&l.FilterCalls, DefaultFilterCalls},
		{&l.FilterFailures, DefaultFilterFailures},
		{&l.Events, DefaultEvents},
		{&l.Lines, DefaultLines},
		{&l.LineRunes, DefaultLineRunes},
		{&l.DedupeRows, DefaultDedupeRows},
		{&l.PendingLines, DefaultPendingLines},
		{&l.Body, DefaultBody},
		{&l.Queue, DefaultQueue},
	} {
		if *field.value <= 0 {
			*field.value = field.def
		}
	}
	for _, field := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&l.FilterTime, DefaultFilterTime},
		{&l.Quiet, DefaultQuiet},
		{&l.MaxWait, DefaultMaxWait},
		{&l.ReadTime, DefaultReadTime},
		{&l.CloseTime, DefaultCloseTime},
	} {
		if *field.value <= 0 {
			*field.value = field.def
		}
	}
	l.PendingLines = max(l.PendingLines, l.Lines)
	return l
}

// Backoff returns how long to wait before the n-th try to repair a failure,
// counted from 1: 1, 2, 4, 8, 16 s (W-050). It is false when the tries are used up.
func Backoff(n int) (time.Duration, bool) {
	if n < 1 || n > Resubscribes {
		return 0, false
	}
	return time.Second << (n - 1), true
}

// LimitRow is one line of the limits as documentation shows them.
type LimitRow struct {
	What    string
	Default string
}

// LimitTable renders the defaults, so that a test can hold the documentation
// to them.
func LimitTable() []LimitRow {
	l := Limits{}.withDefaults()
	first, _ := Backoff(1)
	last, _ := Backoff(Resubscribes)
	return []LimitRow{
		{"watches per agent", strconv.Itoa(l.Watches)},
		{"filter run, per event", l.FilterTime.String()},
		{"filter tool calls, per event", strconv.Itoa(l.FilterCalls)},
		{"filter failures in a row", strconv.Itoa(l.FilterFailures)},
		{"events per pass", strconv.Itoa(l.Events)},
		{"lines per notice", strconv.Itoa(l.Lines)},
		{"characters per line", strconv.Itoa(l.LineRunes)},
		{"debounce, quiet", l.Quiet.String()},
		{"debounce, at most", l.MaxWait.String()},
		{"resubscribe attempts", strconv.Itoa(Resubscribes) + " (" + first.String() + " to " + last.String() + ")"},
		{"objects whose last line is remembered", strconv.Itoa(l.DedupeRows)},
		{"different lines waiting for a notice", strconv.Itoa(l.PendingLines)},
		{"bytes of a read", strconv.Itoa(l.Body)},
		{"one read", l.ReadTime.String()},
		{"name of a watch, bytes", strconv.Itoa(MaxName)},
		{"URI, bytes", strconv.Itoa(MaxURI)},
		{"filter source, bytes", strconv.Itoa(MaxSource)},
	}
}
