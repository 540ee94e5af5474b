package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Bounds of Past: the newest turns that fit, of so many entries.
const (
	MaxPast  = 128 << 10 // bytes of text
	pastLast = 4000      // transcript entries looked at
)

// Past is a turn that completed in an earlier life: what it was about, what
// ossicle itself said aside, and all that the agent answered. Tool calls are not
// part of it.
type Past struct {
	Parts []Part
	Reply string
}

func (p *Past) size() int {
	n := len(p.Reply)
	for _, part := range p.Parts {
		n += len(part.Text)
	}
	return n
}

// past reads the turns since the last reset from the transcript, oldest first.
// Notices are framed as they were: what they say is still data.
func (s *Session) past(ctx context.Context) ([]Past, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	_ = s.transcript.flush(ctx) // what it lacks, the past lacks
	entries, err := s.store.List(ctx, s.id, Query{Limit: pastLast, Last: true})
	if err != nil {
		return nil, fmt.Errorf("read the past of the session: %w", err)
	}
	inputs := map[string]string{}
	notices := map[string][]Notice{}
	said := map[string][]string{}
	var turns []Past
	for _, e := range entries {
		switch {
		case e.Kind == EntryAgent && e.Title == titleReset:
			turns = nil
		case e.Kind == EntryUser:
			inputs[e.ID] = e.Text
		case e.Kind == EntryMonitor:
			notices[e.Run] = append(notices[e.Run], e.notice())
		case e.Kind == EntryAssistant:
			said[e.Run] = append(said[e.Run], e.Text)
		case e.Kind == EntryRunEnd:
			if e.Delivered {
				turns = append(turns, s.turn(e, inputs, notices[e.Run], said[e.Run]))
			}
			delete(notices, e.Run)
			delete(said, e.Run)
		}
	}
	return newest(turns), nil
}

// turn puts a turn together from what its end and the entries before it say.
func (s *Session) turn(end Entry, inputs map[string]string, notices []Notice, said []string) Past {
	var p Past
	for _, id := range end.Inputs {
		if text := inputs[id]; text != "" {
			p.Parts = append(p.Parts, Part{Kind: PartUser, Text: text})
		}
	}
	if len(notices) > 0 {
		framed := Part{Kind: PartNotice, Text: s.frame(notices, len(p.Parts) > 0)}
		p.Parts = slices.Insert(p.Parts, 0, framed)
	}
	p.Reply = strings.Join(said, "\n")
	return p
}

// newest keeps the last turns that fit.
func newest(turns []Past) []Past {
	room := MaxPast
	for i := len(turns) - 1; i >= 0; i-- {
		if room -= turns[i].size(); room < 0 || len(turns[i].Parts) == 0 {
			return turns[i+1:]
		}
	}
	return turns
}

// notice is the notice of an EntryMonitor.
func (e *Entry) notice() Notice {
	source, name, _ := strings.Cut(e.TaskID, "-")
	n := Notice{ID: e.ID, Source: source, Name: name, Text: e.Text, Time: e.Time}
	n.URI = strings.TrimPrefix(strings.TrimPrefix(e.Description, n.Description()), " ")
	return n
}
