// Package wake reaches agents that somebody else started: one adapter a file,
// each a [notice.Waker] for one kind of host, or a way to show what is pending
// inside a turn that runs anyway.
//
// What an adapter may claim is what it has proof of. A write that succeeded is
// notice.Notified, whatever the host does with it; a turn that the host says
// began is notice.Woken; only a turn that ended, a tool result that was returned
// or a hook that printed is notice.Seen.
//
//	exec            a command per delivery; its exit code is the proof
//	hook            prints what is pending, for the hooks of Claude Code, Codex, Gemini
//	piggyback       ends a tool's result with what is pending
//	claude-channel  a push into a running Claude Code; there is never proof
//	opencode        POST …/prompt_async, followed on the event stream
//	codex           a turn by an app-server of our own, or "codex queue"
//	agentapi        POST /message of a terminal wrapper, followed on its events
//	webhook         a signed POST to anywhere; 2xx is no proof of a turn
//
// Adapters of hosts that can be asked what they have are also notice.Checkers,
// and all say what keeps them from working as notice.Doctors.
package wake

import (
	"context"

	"github.com/ossicle/ossicle/notice"
)

// Examine asks every adapter that can tell what keeps it from working. The
// names of the checks begin with the adapter's.
func Examine(ctx context.Context, wakers ...notice.Waker) []notice.Check {
	var checks []notice.Check
	for _, w := range wakers {
		d, ok := w.(notice.Doctor)
		if !ok {
			continue
		}
		for _, c := range d.Doctor(ctx) {
			c.Name = w.Name() + ": " + c.Name
			checks = append(checks, c)
		}
	}
	return checks
}

// ok and bad are findings.

func ok(name string) notice.Check { return notice.Check{Name: name, OK: true} }

func bad(name, cause, fix string) notice.Check {
	return notice.Check{Name: name, Cause: notice.Plain(cause, 300), Fix: fix}
}
