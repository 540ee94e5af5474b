package openai

import (
	"fmt"
	"strings"

	openaisdk "github.com/openai/openai-go/v3"

	"github.com/ossicle/ossicle/agent"
)

// history is the conversation as the model sees it. It belongs to one turn at a
// time.
type history struct {
	system   string
	messages []message
	budget   int // bytes
}

type role int

const (
	roleUser role = iota
	roleAssistant
	roleTool
)

// message is one message. User messages in a row are sent as one: some chat
// templates refuse two.
type message struct {
	turn   int
	role   role
	part   agent.Part // of a user message
	text   string     // of the others
	calls  []call     // of an assistant message
	callID string     // of a tool result
	cut    bool       // the result was removed
}

// overhead is what a message costs beside its text, in bytes.
const overhead = 32

func (m *message) size() int {
	n := overhead + len(m.part.Text) + len(m.text)
	for _, c := range m.calls {
		n += overhead + len(c.name) + len(c.args)
	}
	return n
}

func (h *history) size() int {
	n := len(h.system)
	for i := range h.messages {
		n += h.messages[i].size()
	}
	return n
}

// ask adds what a turn is about.
func (h *history) ask(turn int, parts []agent.Part) {
	for _, p := range parts {
		h.messages = append(h.messages, message{turn: turn, role: roleUser, part: p})
	}
}

// recall begins with what was said in an earlier life: turns that are numbered
// before the first, so that trimming drops them first.
func (h *history) recall(past []agent.Past) {
	for i, p := range past {
		turn := i - len(past)
		h.ask(turn, p.Parts)
		h.answer(turn, p.Reply, nil)
	}
}

// answer adds what the model said and returns the ids of its calls. An id that
// the conversation has already gets a new one: weak servers count from zero
// with every call.
func (h *history) answer(turn int, text string, calls []call) []string {
	if text == "" && len(calls) == 0 {
		return nil
	}
	m := message{turn: turn, role: roleAssistant, text: text}
	var ids []string
	for i, c := range calls {
		if c.id == "" || h.hasCall(c.id) || hasID(m.calls, c.id) {
			c.id = fmt.Sprintf("call_%d_%d", len(h.messages), i)
		}
		if !isObject(c.args) {
			c.args = "{}" // some servers parse what they once sent
		}
		m.calls = append(m.calls, c)
		ids = append(ids, c.id)
	}
	h.messages = append(h.messages, m)
	return ids
}

func (h *history) hasCall(id string) bool {
	for i := range h.messages {
		if hasID(h.messages[i].calls, id) {
			return true
		}
	}
	return false
}

func hasID(calls []call, id string) bool {
	for _, c := range calls {
		if c.id == id {
			return true
		}
	}
	return false
}

func (h *history) result(turn int, id, text string) {
	h.messages = append(h.messages, message{turn: turn, role: roleTool, callID: id, text: text})
}

// undelivered takes back what will be said again after a turn that was cut off:
// everything but the user's own words. They stay, with what the model did about
// them; without any, nothing stays.
func (h *history) undelivered(turn int) {
	first := len(h.messages)
	for first > 0 && h.messages[first-1].turn == turn {
		first--
	}
	tail := h.messages[first:]
	h.messages = h.messages[:first:first]
	asked := false
	for _, m := range tail {
		asked = asked || m.role == roleUser && m.part.Kind == agent.PartUser
	}
	if !asked {
		return
	}
	answered := map[string]bool{}
	for _, m := range tail {
		if m.role == roleTool {
			answered[m.callID] = true
		}
	}
	for _, m := range tail {
		if m.role == roleUser && m.part.Kind != agent.PartUser {
			continue
		}
		h.messages = append(h.messages, m)
		for _, c := range m.calls {
			if !answered[c.id] {
				h.result(turn, c.id, "The call was interrupted.")
			}
		}
	}
}

// trim brings the conversation below the budget: it removes the texts of tool
// results, the oldest first and the newest round never; if that is not enough,
// whole turns, the oldest first and the running one never.
func (h *history) trim() {
	over := h.size() - h.budget
	if over <= 0 {
		return
	}
	last := len(h.messages)
	for last > 0 && h.messages[last-1].role == roleTool {
		last--
	}
	for i := range h.messages[:last] {
		m := &h.messages[i]
		if over <= 0 {
			return
		}
		if m.role == roleTool && !m.cut {
			note := fmt.Sprintf("[result of %d bytes removed to save space]", len(m.text))
			if saved := len(m.text) - len(note); saved > 0 {
				over -= saved
				m.text, m.cut = note, true
			}
		}
	}
	for over > 0 {
		current := h.messages[len(h.messages)-1].turn
		n := 0
		for n < len(h.messages) && h.messages[n].turn == h.messages[0].turn {
			n++
		}
		if h.messages[0].turn == current {
			return
		}
		for i := range h.messages[:n] {
			over -= h.messages[i].size()
		}
		h.messages = append([]message(nil), h.messages[n:]...)
	}
}

// render makes the messages of a request.
func (h *history) render() []openaisdk.ChatCompletionMessageParamUnion {
	var out []openaisdk.ChatCompletionMessageParamUnion
	if h.system != "" {
		out = append(out, openaisdk.SystemMessage(h.system))
	}
	for i := 0; i < len(h.messages); i++ {
		switch m := &h.messages[i]; m.role {
		case roleUser:
			p := agent.Prompt{}
			for ; i < len(h.messages) && h.messages[i].role == roleUser; i++ {
				p.Parts = append(p.Parts, h.messages[i].part)
			}
			i--
			out = append(out, openaisdk.UserMessage(strings.ToValidUTF8(p.Text(), "\uFFFD")))
		case roleTool:
			out = append(out, openaisdk.ToolMessage(m.text, m.callID))
		case roleAssistant:
			out = append(out, m.assistant())
		}
	}
	return out
}

func (m *message) assistant() openaisdk.ChatCompletionMessageParamUnion {
	if len(m.calls) == 0 {
		return openaisdk.AssistantMessage(m.text)
	}
	p := openaisdk.ChatCompletionAssistantMessageParam{}
	if m.text != "" {
		p.Content.OfString = openaisdk.String(m.text)
	}
	for _, c := range m.calls {
		p.ToolCalls = append(p.ToolCalls, openaisdk.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &openaisdk.ChatCompletionMessageFunctionToolCallParam{
				ID:       c.id,
				Function: openaisdk.ChatCompletionMessageFunctionToolCallFunctionParam{Name: c.name, Arguments: c.args},
			},
		})
	}
	return openaisdk.ChatCompletionMessageParamUnion{OfAssistant: &p}
}
