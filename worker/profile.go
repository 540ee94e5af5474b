package worker

import (
	"errors"
	"fmt"
	"time"
)

// DefaultDial is how long the profile Light waits for a new sandbox to dial.
const DefaultDial = 120 * time.Second

// Profile is a kind of sandbox: its deadlines and its tools.
type Profile struct {
	// Name travels in initialize, for instance "light".
	Name    string
	Budgets Budgets
	// Dial is how long a host waits from the creation of a sandbox to its first
	// connection: scheduling, pulling the image, starting. It never travels.
	Dial time.Duration
	// ActiveDeadline is the cluster's own insurance, counted from creation; zero if
	// there is none.
	ActiveDeadline time.Duration
	// TerminationGrace is how long a sandbox has between SIGTERM and SIGKILL; zero
	// if nobody sends them.
	TerminationGrace time.Duration
	// Tools are the names that the worker must offer. Others that it offers are
	// not registered.
	Tools []string
}

// Light is the profile of a shell and files.
func Light() Profile {
	b := DefaultBudgets()
	return Profile{
		Name: "light", Budgets: b, Dial: DefaultDial,
		ActiveDeadline:   DefaultDial + b.MaxExec + b.ReleaseGrace,
		TerminationGrace: b.ReleaseGrace + terminationMargin,
		Tools:            []string{"exec", "file"},
	}
}

// terminationMargin is what a sandbox needs after its last upload.
const terminationMargin = 5 * time.Second

// Outer is the single answer to "this session never became usable": it counts
// from the creation of the sandbox, and no dial extends it.
func (p Profile) Outer() time.Duration { return p.Dial + 2*p.Budgets.Handshake + p.Budgets.Ready }

// Validate returns every relation between deadlines that does not hold, joined.
// With one of them broken the contract does not work: a warm session would be
// killed within its promised window, a side that cannot act would give up
// first, or a flush would lose its time.
func (p Profile) Validate() error {
	b := p.Budgets
	var errs []error
	need := func(ok bool, rule string) {
		if !ok {
			errs = append(errs, fmt.Errorf("check profile %q: %s", p.Name, rule))
		}
	}
	for _, f := range b.fields() {
		need(*f.at > 0, f.name+" must be positive")
	}
	need(p.Name != "", "it has no name")
	need(p.Dial > 0, "dialSeconds must be positive")
	need(b.Idle < b.MaxExec, "idleSeconds must be less than maxExecSeconds")
	need(b.HeartbeatGrace >= 3*b.HeartbeatInterval, "heartbeatGraceSeconds must be at least three times heartbeatIntervalSeconds")
	need(b.ReadyAck < b.Ready, "readyAckSeconds must be less than readySeconds")
	need(2*b.Handshake < p.Dial, "dialSeconds must be more than twice handshakeSeconds")
	need(b.ReconnectWindow > b.HeartbeatGrace, "reconnectWindowSeconds must be more than heartbeatGraceSeconds")
	need(b.ReleaseGrace < b.MaxExec, "releaseGraceSeconds must be less than maxExecSeconds")
	if p.ActiveDeadline != 0 {
		need(p.ActiveDeadline >= p.Dial+b.MaxExec+b.ReleaseGrace, "activeDeadlineSeconds must be at least dialSeconds + maxExecSeconds + releaseGraceSeconds")
	}
	if p.TerminationGrace != 0 {
		need(p.TerminationGrace >= b.ReleaseGrace+terminationMargin, fmt.Sprintf("terminationGracePeriodSeconds must be at least releaseGraceSeconds + %d seconds", int(terminationMargin.Seconds())))
	}
	return errors.Join(errs...)
}

// TokenLife is how long a token must be valid, from the creation of the sandbox.
func (p Profile) TokenLife() time.Duration {
	return p.Outer() + p.Budgets.MaxExec + p.Budgets.ReconnectWindow + p.Budgets.ReleaseGrace
}
