package app

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/pty"
	"github.com/ossicle/ossicle/notice"
)

// typedPatience is how long a notice that was typed is left alone. Nothing proves
// that it was read; so it is typed once, and what is pending then rides on the
// result of the next tool of ours that the agent calls.
const typedPatience = 5 * time.Second

// terminalBudget bounds the end of a terminal, which waits for nobody.
const terminalBudget = time.Second

var errPassthrough = errors.New("start agent: passthrough needs the command of an agent")

// Terminal returns the terminal of an agent that is shown in one. It is false for
// all others.
func (o *Agent) Terminal() (agent.Terminal, bool) {
	if o.terminal == nil {
		return nil, false
	}
	return o.terminal, true
}

// openTerminal makes the terminal of a passthrough agent, which outlives each life
// of its program.
func (o *Agent) openTerminal(spec *AgentSpec) error {
	if !spec.Passthrough {
		return nil
	}
	if len(spec.Profile.Command) == 0 {
		return errPassthrough
	}
	if _, err := pty.ParseKind(spec.Kind); err != nil {
		return err
	}
	o.terminal = pty.NewTerminal(nil)
	o.down.Push("terminal", terminalBudget, func(context.Context) error { o.terminal.Close(); return nil })
	return nil
}

// standing is the instruction of an agent. One that is not known to get our tools is
// not told of them.
func (o *Agent) standing(spec *AgentSpec, b agent.Briefing) string {
	if toolless(spec) {
		return spec.Profile.System
	}
	return agent.SystemPrompt(b)
}

// toolless reports whether an agent is not known to get our tools.
func toolless(spec *AgentSpec) bool {
	return spec.Passthrough && pty.StrategyOf(cmp.Or(pty.Kind(spec.Kind), pty.KindOf(spec.Profile.Command))) == nil
}

// typed makes an engine that runs the agent in the terminal.
func (o *Agent) typed(spec *AgentSpec) agent.Engine {
	term := o.terminal
	if term == nil { // it is only tried
		term = pty.NewTerminal(nil)
	}
	return pty.New(term, spec.Profile.Command, &pty.Options{Kind: pty.Kind(spec.Kind), Logger: o.agents.log})
}

// route is how the agent's notices reach its session.
func (o *Agent) route(w notice.Waker) notice.Route {
	r := notice.Route{Waker: w, Timeout: sessionTimeout, Patience: attachedRoute}
	if o.terminal != nil {
		r.Patience, r.Tries = typedPatience, 1
	}
	return r
}

// pulls is what fetches notices for a run that is due anyway. Into a terminal they
// go by their own wake alone, which knows what became of them.
func (o *Agent) pulls() func(context.Context, bool) []agent.Waiting {
	if o.terminal != nil {
		return nil
	}
	return o.pull
}
