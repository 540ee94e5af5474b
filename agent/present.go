package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxThought bounds the thoughts of a run that are kept, in bytes: the last ones.
const MaxThought = 64 << 10

// Live is what is going on in a session and is not in its transcript yet.
type Live struct {
	Run     string      `json:"run"`     // that is under way, or empty
	Text    string      `json:"text"`    // that is being said
	Thought string      `json:"thought"` // of this run, the last 64 KiB
	Tools   []LiveTool  `json:"tools"`   // calls that are not over; never nil, as Plan
	Plan    []PlanEntry `json:"plan"`
}

// LiveTool is a tool call that is not over.
type LiveTool struct {
	ID     string          `json:"id"`
	Title  string          `json:"title,omitempty"`
	Kind   string          `json:"kind,omitempty"`
	Status string          `json:"status,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`
}

// Present follows the updates of a session. Its zero value is one in which
// nothing goes on. It is not safe for concurrent use.
type Present struct {
	run      string
	messages []message
	thought  []byte
	tools    []LiveTool
	plan     []PlanEntry
}

// message is a message of the agent whose entry is not known yet.
type message struct {
	run    string
	number int64 // of Update.message
	text   []byte
}

func (m *message) blank() bool { return strings.TrimSpace(string(m.text)) == "" }

// Apply takes the next update.
func (p *Present) Apply(u Update) {
	switch u.Event {
	case EventRunStarted:
		p.run, p.thought, p.plan = u.Run, nil, nil
	case EventRunEnded:
		p.over(u.Run)
	case EventText:
		p.say(u)
	case EventThought:
		p.thought = append(p.thought, u.Text...)
		if over := len(p.thought) - MaxThought; over > 0 {
			for over < len(p.thought) && !utf8.RuneStart(p.thought[over]) {
				over++
			}
			p.thought = slices.Clone(p.thought[over:])
		}
	case EventTool:
		p.tool(u)
	case EventPlan:
		p.plan = u.Plan
	case EventExited, EventReset:
		p.tools = nil
	}
}

// over forgets the run. Its entries are written before its end is told.
func (p *Present) over(run string) {
	p.run, p.thought, p.plan, p.tools = "", nil, nil, nil
	p.messages = slices.DeleteFunc(p.messages, func(m message) bool { return m.run == run })
}

func (p *Present) say(u Update) {
	size := 0
	for i := range p.messages {
		size += len(p.messages[i].text)
	}
	text := cut(u.Text, max(0, MaxReply-size))
	if last := len(p.messages) - 1; last >= 0 && p.messages[last].run == u.Run && p.messages[last].number == u.message {
		p.messages[last].text = append(p.messages[last].text, text...)
		return
	}
	p.messages = append(p.messages, message{run: u.Run, number: u.message, text: []byte(text)})
}

func (p *Present) tool(u Update) {
	i := slices.IndexFunc(p.tools, func(t LiveTool) bool { return t.ID == u.ID })
	if ToolStatus(u.Status).Done() {
		if i >= 0 {
			p.tools = slices.Delete(p.tools, i, i+1)
		}
		return
	}
	if i < 0 {
		if len(p.tools) >= maxTools {
			return
		}
		i = len(p.tools)
		p.tools = append(p.tools, LiveTool{ID: u.ID})
	}
	t := &p.tools[i]
	t.Title, t.Kind, t.Status = u.Text, u.Kind, u.Status // updates tell the whole of these
	if u.Input != nil {
		t.Input = u.Input
	}
}

// Record takes note of an entry that the transcript has: what it holds is not
// being said any more. Entries come after the updates that they are made of.
func (p *Present) Record(e *Entry) {
	if e.Kind != EntryAssistant {
		return
	}
	at := -1
	for i := range p.messages {
		m := &p.messages[i]
		if m.run != e.Run || m.blank() {
			continue
		}
		if at < 0 {
			at = i // if none begins alike, for instance because one was too long to keep
		}
		if said := string(m.text); strings.HasPrefix(said, e.Text) || strings.HasPrefix(e.Text, said) {
			at = i
			break
		}
	}
	if at >= 0 {
		p.messages = slices.Delete(p.messages, 0, at+1)
	}
}

// recorded forgets the messages up to a number.
func (p *Present) recorded(number int64) {
	p.messages = slices.DeleteFunc(p.messages, func(m message) bool { return m.number <= number })
}

// Live returns what is going on.
func (p *Present) Live() Live {
	l := Live{Run: p.run, Thought: string(p.thought), Tools: append([]LiveTool{}, p.tools...), Plan: append([]PlanEntry{}, p.plan...)}
	var text strings.Builder
	for i := range p.messages {
		text.Write(p.messages[i].text)
	}
	l.Text = text.String()
	return l
}

// clone copies what Apply and Record change.
func (p *Present) clone() *Present {
	c := &Present{run: p.run, thought: slices.Clone(p.thought), tools: slices.Clone(p.tools), plan: p.plan}
	for _, m := range p.messages {
		m.text = slices.Clone(m.text)
		c.messages = append(c.messages, m)
	}
	return c
}
