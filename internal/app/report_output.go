package app

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is shown of an agent's standard error (specification A-23).
const (
	outputLines = 50
	outputBytes = 16 << 10
)

// AgentOutput is the end of what an agent wrote to its standard error. It may hold
// secrets: it is shown to whoever asks for it, and kept nowhere.
type AgentOutput struct {
	// Live: the agent runs. Of one that has ended these are its last words, as long
	// as this process knows them.
	Live  bool     `json:"live"`
	Lines []string `json:"lines"` // never nil; the newest last
	// Truncated: there was more.
	Truncated bool `json:"truncated"`
}

// RecentOutput returns the smaller of 50 lines and 16 KiB from the end of the
// standard error of the newest agent of a session. A session that does not run
// here, and an agent without such output, has none and is not live.
func (a *Agents) RecentOutput(session string) AgentOutput {
	r := a.reports.find(session)
	if r == nil {
		return AgentOutput{Lines: []string{}}
	}
	return r.output()
}

// Output is RecentOutput of this agent.
func (o *Agent) Output() AgentOutput { return o.report.output() }

func (r *sessionReport) output() AgentOutput {
	out := AgentOutput{Lines: []string{}}
	r.mu.Lock()
	engine := r.engine
	r.mu.Unlock()
	e, ok := engine.(interface {
		Stderr() (text string, live bool)
	})
	if !ok {
		return out
	}
	text, live := e.Stderr()
	out.Live = live
	out.Lines, out.Truncated = lastLines(text)
	return out
}

// lastLines are the last lines of a text that fit, as printable text.
func lastLines(text string) (lines []string, cut bool) {
	lines = []string{}
	if text = strings.TrimRight(text, "\r\n"); text == "" {
		return lines, false
	}
	if over := len(text) - outputBytes; over > 0 {
		cut = true
		text = text[over:]
		if i := strings.IndexByte(text, '\n'); i >= 0 {
			text = text[i+1:] // the first of them was not whole
		}
		for text != "" && !utf8.RuneStart(text[0]) {
			text = text[1:]
		}
	}
	all := strings.Split(text, "\n")
	if over := len(all) - outputLines; over > 0 {
		all, cut = all[over:], true
	}
	for _, l := range all {
		lines = append(lines, plain(l))
	}
	return lines, cut
}

// escapes are what a terminal would act on, whole, so that nothing of it stays behind
// as noise.
var escapes = regexp.MustCompile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b.?")

// plain takes out of a line what a terminal would act on.
func plain(line string) string {
	if strings.IndexByte(line, 0x1b) >= 0 {
		line = escapes.ReplaceAllString(line, "")
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return -1
	}, strings.ToValidUTF8(line, "\uFFFD"))
}
