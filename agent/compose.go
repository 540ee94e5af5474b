package agent

import (
	"fmt"
	"strings"
)

// compose makes the prompt of a run: what ossicle has to say, then the notices,
// then what people said, each in the order of arrival. The last word is the
// person's, so that the instruction of a notice, to answer NO_REPLY if nothing
// matters, is never taken for theirs.
//
// It returns what ossicle itself says beside the prompt, for the record.
func (s *Session) compose(items []*item) (p Prompt, contexts []string) {
	for _, text := range s.contexts() {
		contexts = append(contexts, text)
		p.Parts = append(p.Parts, Part{Kind: PartContext, Text: text})
	}
	var notices []Notice
	for _, it := range items {
		if it.notice != nil {
			notices = append(notices, *it.notice)
		}
	}
	for _, text := range s.frames(notices) {
		p.Parts = append(p.Parts, Part{Kind: PartNotice, Text: text})
	}
	for _, it := range items {
		if it.input != nil {
			p.Parts = append(p.Parts, Part{Kind: PartUser, Text: it.input.Text})
		}
	}
	return p, contexts
}

// contexts returns what ossicle itself has to say before this turn: the
// standing instruction, if the agent has no other place for it and no turn has
// carried it yet, and the note, if it has changed.
func (s *Session) contexts() []string {
	note := ""
	if s.opts.Context != nil {
		note = s.opts.Context()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var texts []string
	if !s.engine.primed && s.opts.System != "" {
		texts = append(texts, s.opts.System)
	}
	if note != "" && note != s.told {
		texts = append(texts, note)
	}
	s.told = note
	return texts
}

// frames renders notices: each in its frame, or, when they are too many or too
// long for that, one digest of all (N-10). What people said is never digested.
func (s *Session) frames(notices []Notice) []string {
	framed := make([]string, 0, len(notices))
	size := 0
	for i, n := range notices {
		framed = append(framed, s.frame(n))
		size += len(framed[i])
		if i >= s.opts.DigestOver || size > s.opts.DigestBytes && i > 0 {
			if s.opts.Digest != nil {
				return []string{s.opts.Digest(notices)}
			}
			return append(framed[:i], leftOut(notices[i:]))
		}
	}
	return framed
}

// leftOut says what is not shown, for sessions without a digest. Names come
// from our own configuration or the model, never from watched content; they are
// quoted all the same.
func leftOut(notices []Notice) string {
	counts := map[string]int{}
	var order []string
	for _, n := range notices {
		if counts[n.TaskID()] == 0 {
			order = append(order, n.TaskID())
		}
		counts[n.TaskID()]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s not shown:", plural(len(notices), "more notice is", "more notices are"))
	for i, id := range order {
		if i == 10 {
			fmt.Fprintf(&b, " and %d other sources", len(order)-i)
			break
		}
		fmt.Fprintf(&b, " %d x %q", counts[id], cut(id, 80))
	}
	return b.String()
}

// plural counts things: "1 entry", "2 entries".
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
