package app

import (
	"context"
	"time"

	"github.com/ossicle/ossicle/mailbox"
)

// hostedTurn is how long an escalated turn of an agent that we host is taken to
// last if nobody notices its end.
const hostedTurn = 15 * time.Minute

// sit makes the place of an agent that takes part in a collaboration session. Its
// signals come into its inbox like everything else; those that the gate lets
// through begin a turn there (specification S-18).
func (o *Agent) sit(ctx context.Context, spec *AgentSpec) {
	if spec.Signals == "" {
		return
	}
	a, p := o.agents, &spec.Profile
	o.seat = newSeat(ctx, a.signals, a.Inbox, a.log, seatOptions{
		agent: spec.ID, harness: p.Name, turn: hostedTurn,
		means: func() bool {
			select {
			case <-o.Session.Done():
				return false
			default:
				return true
			}
		},
		idle: func() bool { return o.Session.Idle() },
	})
	// What it runs in a shell is the same agent.
	p.Env = append(p.Env, "OSSICLE_SESSION="+spec.Signals, "OSSICLE_AGENT="+spec.ID, "OSSICLE_HOME="+a.data)
	if p.System != "" {
		p.System += "\n\n"
	}
	p.System += signalsBriefing + " Your session is " + spec.Signals + ", and there you are " + spec.ID + "."
	o.down.Push("signals", mailboxBudget, o.seat.close)
}

// join makes the agent a member once everything is there that its signals need.
func (o *Agent) join(ctx context.Context, spec *AgentSpec) error {
	if o.seat == nil {
		return nil
	}
	if err := mailbox.CheckAgent(spec.ID); err != nil {
		return err
	}
	return o.seat.join(ctx, spec.Signals)
}
