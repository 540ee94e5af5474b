package agent

import "fmt"

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
	parts := s.parts(items, false)
	return Prompt{Parts: append(p.Parts, parts...)}, contexts
}

// parts are the items as messages: one for all notices, one for each input,
// which nobody shortens. Aside says that the turn is somebody else's already.
func (s *Session) parts(items []*item, aside bool) []Part {
	var notices []Notice
	var inputs []Part
	for _, it := range items {
		if it.notice != nil {
			notices = append(notices, *it.notice)
		} else {
			inputs = append(inputs, Part{Kind: PartUser, Text: it.input.Text})
		}
	}
	if len(notices) == 0 {
		return inputs
	}
	return append([]Part{{Kind: PartNotice, Text: s.frame(notices, aside || len(inputs) > 0)}}, inputs...)
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

// plural counts things: "1 entry", "2 entries".
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
