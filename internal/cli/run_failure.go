package cli

import (
	"errors"
	"io/fs"
	"net/url"
	"os/exec"
	"strings"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/acp"
	"github.com/ossicle/ossicle/internal/app"
)

// failures see to it that a person is told once of an agent that failed. Its end and
// that of the turn tell the same, in either order: a turn may have its error before
// the session has taken note of the agent's.
type failures struct {
	ofExit, ofTurn string // told, and the other has not come yet
	last           string // that was told
}

// begin forgets what belongs to an agent that is being started anew.
func (f *failures) begin() { f.ofExit, f.ofTurn = "", "" }

// exit reports whether the end of an agent is to be told.
func (f *failures) exit(text string) bool {
	if f.ofTurn != "" && strings.Contains(f.ofTurn, text) {
		f.ofTurn = ""
		return false
	}
	f.ofExit, f.last = text, text
	return true
}

// reply reports whether the error of a turn is to be told.
func (f *failures) reply(text string) bool {
	if f.ofExit != "" && strings.Contains(text, f.ofExit) {
		f.ofExit = ""
		return false
	}
	f.ofTurn, f.last = text, text
	return true
}

// told reports whether it is the last that was told.
func (f *failures) told(text string) bool { return f.last != "" && strings.Contains(text, f.last) }

// failure is what a person is told of an agent that failed: what, why, the end of what
// it said itself, and what to do.
func (t *talk) failure(u *agent.Update) string {
	cause := agent.CauseOf(u.Cause())
	what := "the turn failed"
	switch {
	case cause == agent.CauseUnavailable:
		what = "the agent could not be started"
	case u.Event == agent.EventExited, cause == agent.CauseExited:
		what = "the agent ended"
	}
	b := what + ": " + shortened(agent.Why(u.Error)) + "\n"
	if u.Event == agent.EventExited || cause == agent.CauseUnavailable || cause == agent.CauseExited {
		b += said(lastWords(t.one))
	}
	if _, typed := t.one.Terminal(); cause == agent.CauseUnavailable && !typed {
		b += startAdvice(u.Cause())
	}
	return strings.TrimSuffix(b, "\n")
}

// startAdvice is what to do about an agent that could not be started.
func startAdvice(err error) string {
	const cli = "(a command line program with a screen of its own takes --passthrough)"
	switch {
	case errors.As(err, new(*agent.RestartError)):
		return "mend what ends it; /reset allows a start at once\n"
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "give --agent, or the profile, the command of a program that is installed here\n"
	case errors.As(err, new(*agent.ExitError)):
		return "run its command by itself to see more; it must speak the Agent Client Protocol " + cli + "\n"
	case errors.As(err, new(*url.Error)):
		return "give --model, or the profile, the URL of a model server that runs\n"
	case errors.Is(err, acp.ErrTimeout):
		return "does it speak the Agent Client Protocol? " + cli + "\n"
	}
	return ""
}

// Bounds of what a person sees of the words of an agent that failed.
const (
	maxLastWords = 10
	maxLastWord  = 300 // runes of a line
)

// lastWords are the last lines that an agent wrote to its standard error.
func lastWords(one *app.Agent) []string { return lastOf(one.Output().Lines) }

func lastOf(lines []string) []string {
	var words []string
	for _, l := range lines {
		if strings.TrimSpace(l) != "" {
			words = append(words, firstLine(l, maxLastWord))
		}
	}
	return words[max(0, len(words)-maxLastWords):]
}

// said are the words of an agent as a person is shown them: of its standard error, or
// of its terminal.
func said(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "its last words:\n  " + printable(strings.Join(words, "\n  ")) + "\n"
}
