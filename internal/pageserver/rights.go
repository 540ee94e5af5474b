package pageserver

import "github.com/ossicle/ossicle/internal/access"

// everything is the right to all sessions.
const everything = "*"

// mayOpen reports whether a principal may subscribe to a topic. Those of several
// sessions are open to all, and show each what is its own; what members of a
// collaboration wrote to each other, and what runs in sandboxes, is for whoever
// may see all sessions. Nil is where nobody is asked for a token.
func mayOpen(p *access.Principal, t Topic) bool {
	if p == nil {
		return true
	}
	switch t.Kind {
	case Sessions, Inbox:
		return true
	case Session, Terminal:
		return p.Rights.Session(t.ID)
	case Signals, Sandboxes:
	}
	return p.Rights.Session(everything)
}

// mayCall reports whether a principal may do what a call asks for.
func mayCall(p *access.Principal, c *Call) bool { return p == nil || p.Rights.Session(c.Session) }

// errForbidden tells nothing of whether there is such a thing.
func errForbidden() error {
	return Errorf(CodeForbidden, "the token gives no right to this; ask the operator for one that does")
}
