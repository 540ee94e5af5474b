package irc

import (
	"errors"
	"fmt"
)

// Errors of Publish and Run.
var (
	// ErrClosed says that Run has ended.
	ErrClosed = errors.New("irc: closed")
	// ErrNotConnected says that there is no registered connection.
	ErrNotConnected = errors.New("irc: not connected")
	// ErrQueueFull says that too many lines wait to be sent.
	ErrQueueFull = errors.New("irc: the queue is full")
	// ErrUnknownChannel says that a name is neither a configured channel nor a
	// nick.
	ErrUnknownChannel = errors.New("irc: unknown channel")

	errMalformed = errors.New("malformed line")
	errTooLong   = errors.New("line too long")
	errUnsafe    = errors.New("line that is empty, too long or of more than one line")
	errSilent    = errors.New("the server is silent")
	errNickInUse = errors.New("no free nick was found")
)

// RefusedError says that the server does not let us in, for a reason that time
// alone does not mend: a wrong password, an invalid nick, a ban.
type RefusedError struct {
	Code string // the numeric, or the command that was refused
	Text string // the server's words, or ours
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("register with the server: refused (%s): %s", e.Code, e.Text)
}

// JoinError says why nothing can be said in a channel.
type JoinError struct {
	Channel string
	Reason  string // for instance the server's words; empty: we are not in yet
}

func (e *JoinError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("irc: not in %s yet", e.Channel)
	}
	return fmt.Sprintf("irc: cannot speak in %s: %s", e.Channel, e.Reason)
}

// closedError is the server's goodbye.
type closedError struct{ reason string }

func (e *closedError) Error() string { return "the server closed the connection: " + e.reason }
