package mailbox

import "time"

// Defaults of Retention.
const (
	DefaultKeepCount = 10_000
	DefaultKeepBytes = 64 << 20
	DefaultKeepAge   = 30 * 24 * time.Hour
)

// Bounds of a session. A note beyond them takes the place of the oldest.
const (
	MaxMembers   = 1000
	MaxNotes     = 10_000
	MaxNoteBytes = 64 << 20
)

// AwayAfter is how long after its last call nobody waits for a member any more: not
// for its acknowledgements, and not with its place if the session has MaxMembers.
const AwayAfter = 7 * 24 * time.Hour

// TrimStep bounds what one call removes. A call adds less, so all of them together
// keep up.
const TrimStep = 100

// Retention bounds the signals that a session keeps. Zero fields take the defaults,
// negative ones are no bound.
//
// A signal is done when all members that it reaches have acknowledged it, those
// that are away left out; one that reaches nobody waits for somebody until it is
// AwayAfter old. Of what is done the oldest go, also those that somebody who was away has
// not read: that member is told how many (Page.Missed). What is not done stays; it
// is its sender that is told, by a *FullError, that no more are taken.
type Retention struct {
	// Count and Bytes bound those that are done, and of each sender those that are
	// not.
	Count int64 `yaml:"count"`
	Bytes int64 `yaml:"bytes"`
	// Age is how long they are kept that are done.
	Age time.Duration `yaml:"age"`
}

// OrDefaults returns the bounds with their defaults. Nil has all of them.
func (r *Retention) OrDefaults() Retention {
	var out Retention
	if r != nil {
		out = *r
	}
	if out.Count == 0 {
		out.Count = DefaultKeepCount
	}
	if out.Bytes == 0 {
		out.Bytes = DefaultKeepBytes
	}
	if out.Age == 0 {
		out.Age = DefaultKeepAge
	}
	return out
}

// Fits reports whether so many signals of so many bytes are within Count and Bytes.
func (r Retention) Fits(count, bytes int64) bool {
	return (r.Count < 0 || count <= r.Count) && (r.Bytes < 0 || bytes <= r.Bytes)
}

// Old reports whether a signal of a time that is done has been kept long enough.
func (r Retention) Old(at, now time.Time) bool { return r.Age >= 0 && now.Sub(at) >= r.Age }

// Full is the error for a sender of whom no more signals are kept.
func (r Retention) Full() error {
	return &FullError{
		Action: "send signal", What: "signals of yours that not everybody has acknowledged", Limit: max(0, r.Count), Bytes: max(0, r.Bytes),
		Remedy: "wait until they are acknowledged; read_signals with sent shows who has",
	}
}

// FullOfMembers is the error for one member too many.
func FullOfMembers() error {
	return &FullError{Action: "register agent", What: "members", Limit: MaxMembers, Remedy: "take an id that is free, or begin another session"}
}

// FullOfEntries is the error for one entry of the whiteboard too many.
func FullOfEntries() error {
	return &FullError{Action: "write whiteboard", What: "entries", Limit: MaxEntries, Remedy: "overwrite one"}
}

// Size is what a signal counts for, in bytes.
func (s *Signal) Size() int64 { return int64(len(s.Content) + len(s.Metadata)) }
