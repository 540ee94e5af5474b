package notice

import (
	"strconv"
	"strings"
)

// Bounds of what a model is shown. A watch's notice of twenty lines fits.
const (
	maxFrames    = 5 // more notices than these are a digest
	maxMessage   = 8 << 10
	maxLines     = 24
	maxLine      = 500 // runes
	maxElement   = 4 << 10
	maxName      = 128 // runes of an attribute
	maxURI       = 512
	digestRecent = 5
	digestLine   = 160 // runes
	digestKinds  = 8
)

// The sentences that follow a message. The first is fixed word for word
// (specification W-145); those for a turn of its own allow the agent to say
// nothing, those for an aside must not, or a person's question would go
// unanswered.
const (
	watchTurn  = "This is a watch notification, not a user message. Tell the channel only if the change matters to what was asked; otherwise reply exactly NO_REPLY."
	manyTurn   = "These are notifications, not user messages. Tell the channel only if they matter to what was asked; otherwise reply exactly NO_REPLY."
	signalTurn = "This is a signal from another agent, not a user message. Act on it if it fits what you were asked to do, then acknowledge it; if there is nothing to tell the channel, reply exactly NO_REPLY."
	oneAside   = "This is a notification, not a user message. Mention it only if it matters to what was asked."
	manyAside  = "These are notifications, not user messages. Mention them only if they matter to what was asked."
	digestHead = "Since your last message: "
)

// Frame renders notices as the message of a turn of their own: an element for
// each, or a digest of many, then a sentence that says what they are and what
// to do. Nothing that a notice contains can end its element, look like another
// speaker or hide from the reader, and the whole is bounded (specification
// N-11, D-17, D-18). No notices are the empty string.
func Frame(notices ...Notice) string {
	if len(notices) == 0 {
		return ""
	}
	return body(notices) + "\n" + sentence(notices)
}

// Aside renders notices for a place inside somebody else's turn: the end of a
// tool's result, or beside a person's prompt.
func Aside(notices ...Notice) string {
	switch len(notices) {
	case 0:
		return ""
	case 1:
		return body(notices) + "\n" + oneAside
	}
	return body(notices) + "\n" + manyAside
}

func sentence(notices []Notice) string {
	source := notices[0].Source
	for _, n := range notices[1:] {
		if n.Source != source {
			return manyTurn
		}
	}
	switch {
	case source == SourceWatch && len(notices) <= maxFrames:
		return watchTurn
	case source == SourceSignal && len(notices) == 1:
		return signalTurn
	case len(notices) > 1:
		return manyTurn
	}
	return "This is a " + string(source) + " notification, not a user message. Tell the channel only if it matters to what was asked; otherwise reply exactly NO_REPLY."
}

func body(notices []Notice) string {
	if len(notices) > maxFrames {
		return digestElement(notices)
	}
	elements := make([]string, len(notices))
	size := 0
	for i, n := range notices {
		elements[i] = Element(n)
		size += len(elements[i]) + 1
	}
	if size > maxMessage {
		return digestElement(notices)
	}
	return strings.Join(elements, "\n")
}

func digestElement(notices []Notice) string {
	return `<notices count="` + itoa(len(notices)) + "\">\n" + Digest(notices) + "\n</notices>"
}

// Element renders one notice as data: <watch-event name="…" uri="…">, its
// lines, </watch-event>, and likewise for the other sources.
func Element(n Notice) string {
	tag := string(n.Source) + "-event"
	var b strings.Builder
	b.WriteString("<" + tag)
	for _, a := range []struct {
		name, value string
		limit       int
	}{{"name", n.Title, maxName}, {"from", n.Meta[MetaFrom], maxName}, {"uri", n.Meta[MetaURI], maxURI}} {
		if v := attribute(a.value, a.limit); v != "" {
			b.WriteString(" " + a.name + `="` + v + `"`)
		}
	}
	b.WriteString(">\n")
	if text := lines(n.Text, maxLines, maxLine, maxElement); text != "" {
		b.WriteString(text + "\n")
	}
	b.WriteString("</" + tag + ">")
	return b.String()
}

// Digest renders notices, oldest first, as counts by title and the last five
// lines (the form of specification F-29). It is safe as the content of an
// element. No notices are the empty string.
func Digest(notices []Notice) string {
	if len(notices) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(digestHead)
	kinds, counts := countKinds(notices)
	others := 0
	for i, kind := range kinds {
		if i >= digestKinds {
			others += counts[kind]
			continue
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(itoa(counts[kind]) + " x " + kind)
	}
	if others > 0 {
		b.WriteString(", " + itoa(others) + " x others")
	}
	b.WriteString(".\nMost recent:")
	for _, n := range notices[max(0, len(notices)-digestRecent):] {
		b.WriteString("\n" + kindOf(n) + ": " + safeLine(clip(oneLine(n.Text), digestLine)))
	}
	return b.String()
}

// countKinds returns the kinds in the order of their first notice.
func countKinds(notices []Notice) (kinds []string, counts map[string]int) {
	counts = map[string]int{}
	for _, n := range notices {
		kind := kindOf(n)
		if counts[kind] == 0 {
			kinds = append(kinds, kind)
		}
		counts[kind]++
	}
	return kinds, counts
}

func kindOf(n Notice) string {
	kind := string(n.Source)
	if n.Source == SourceSystem { // "system: …" would be a speaker
		kind = "ossicle"
	}
	if name := attribute(n.Title, 40); name != "" {
		kind += " " + name
	}
	if from := attribute(n.Meta[MetaFrom], 40); from != "" {
		kind += " from " + from
	}
	return kind
}

// oneLine joins the lines of s with "; ".
func oneLine(s string) string {
	var out []string
	for line := range strings.SplitSeq(plain(s), "\n") {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			out = append(out, line)
		}
	}
	return strings.Join(out, "; ")
}

// EstimateTokens guesses how many tokens a model makes of s: one in four bytes.
func EstimateTokens(s string) int { return (len(s) + 3) / 4 }

func itoa(n int) string { return strconv.Itoa(n) }
