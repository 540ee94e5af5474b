package agent

import "time"

// busy follows what the agent does on its own account, outside of any turn. A
// prompt would abort it in some agents, so turns wait until it has been quiet
// (specification N-22). The wait is bounded: an agent that never falls silent
// gets its prompt in the end.
type busy struct {
	since, last time.Time // zero: quiet
	text        reply     // what it says meanwhile
}

func (b *busy) active() bool { return !b.since.IsZero() }

func (b *busy) touch(now time.Time) (began bool) {
	began = !b.active()
	if began {
		b.since = now
	}
	b.last = now
	return began
}

// until says when the agent counts as quiet if nothing more comes.
func (b *busy) until(quiet, most time.Duration) time.Time {
	end, limit := b.last.Add(quiet), b.since.Add(most)
	if limit.Before(end) {
		return limit
	}
	return end
}
