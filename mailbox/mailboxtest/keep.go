package mailboxtest

import (
	"slices"
	"time"

	"github.com/ossicle/ossicle/mailbox"
)

// finish marks the signals of a selection as done that are.
func (m *Memory) finish(now time.Time, of func(*mailbox.Signal) bool) {
	for i := range m.signals {
		s := &m.signals[i]
		if m.done[s.Sequence] || !of(s) {
			continue
		}
		done := now.Sub(s.Time) > mailbox.AwayAfter
		for id, a := range m.agents {
			if !mailbox.Reaches(s.Recipient, s.Sender, id) {
				continue
			}
			if done = true; !a.read[s.Sequence] && now.Sub(a.LastSeen) <= mailbox.AwayAfter {
				done = false
				break
			}
		}
		if done {
			m.done[s.Sequence] = true
			m.wait(s, -1)
		}
	}
}

// wait counts a signal that is not done, or is so no more.
func (m *Memory) wait(s *mailbox.Signal, n int64) {
	w := m.waiting[s.Sender]
	m.waiting[s.Sender] = [2]int64{w[0] + n, w[1] + n*s.Size()}
}

// admits reports whether there is room for a signal.
func (m *Memory) admits(s *mailbox.Signal, now time.Time) bool {
	for looked := false; ; looked = true {
		w := m.waiting[s.Sender]
		if m.keep.Fits(w[0]+1, w[1]+s.Size()) {
			m.wait(s, 1)
			return true
		}
		if looked {
			return false
		}
		m.finish(now, func(o *mailbox.Signal) bool { return o.Sender == s.Sender })
	}
}

// trim removes the oldest of the signals that are done and not kept.
func (m *Memory) trim(now time.Time) {
	if len(m.done) == 0 {
		return
	}
	var count, bytes int64
	for i := range m.signals {
		if m.done[m.signals[i].Sequence] {
			count++
			bytes += m.signals[i].Size()
		}
	}
	steps, fits := 0, false
	m.signals = slices.DeleteFunc(m.signals, func(s mailbox.Signal) bool {
		if !m.done[s.Sequence] || fits || steps == mailbox.TrimStep {
			return false
		}
		if fits = m.keep.Fits(count, bytes) && !m.keep.Old(s.Time, now); fits {
			return false
		}
		steps++
		count--
		bytes -= s.Size()
		delete(m.done, s.Sequence)
		for id, a := range m.agents {
			if mailbox.Reaches(s.Recipient, s.Sender, id) && !a.read[s.Sequence] && !s.Time.Before(a.RegisteredAt) {
				a.missed++
			}
			delete(a.read, s.Sequence)
		}
		return true
	})
}

func (m *Memory) trimNotes() {
	size := 0
	for _, n := range m.notes {
		size += len(n.Text)
	}
	for len(m.notes) > mailbox.MaxNotes || size > mailbox.MaxNoteBytes {
		size -= len(m.notes[0].Text)
		m.notes = m.notes[1:]
	}
}

// seat makes room for one more member.
func (m *Memory) seat(now time.Time) error {
	if len(m.agents) < mailbox.MaxMembers {
		return nil
	}
	oldest := ""
	for id, a := range m.agents {
		if now.Sub(a.LastSeen) > mailbox.AwayAfter && (oldest == "" || a.LastSeen.Before(m.agents[oldest].LastSeen)) {
			oldest = id
		}
	}
	if oldest == "" {
		return mailbox.FullOfMembers()
	}
	delete(m.agents, oldest)
	return nil
}
