package agent

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// Notice is what a background source reports: a watch, a signal, a feed, a
// worker, or ossicle itself (specification N-9, W-141). It is data from
// outside; only the frame makes it a message.
type Notice struct {
	ID     string // stable over retries and restarts; required
	Source string // "watch", "signal", "feed", "worker", "system"; empty means watch
	Name   string // name of the watch or the like
	URI    string // what was watched; may be empty
	Text   string // the lines
	Time   time.Time
}

func (n Notice) source() string {
	if n.Source == "" {
		return "watch"
	}
	return n.Source
}

// TaskID names the source in the transcript: "watch-<name>" (W-146).
func (n Notice) TaskID() string { return n.source() + "-" + n.Name }

// Description says in the transcript what the source is: "watch <name> <uri>".
func (n Notice) Description() string {
	return strings.Join(slices.DeleteFunc([]string{n.source(), n.Name, n.URI}, func(s string) bool { return s == "" }), " ")
}

// AckState is how far a notice has come in a session. It only moves forward.
type AckState string

// States of a notice. Exactly one of AckSeen, AckWritten and AckUndelivered comes
// last.
const (
	// AckWoken: the agent has shown that a turn with the notice began.
	AckWoken AckState = "woken"
	// AckSeen: the turn with the notice has completed.
	AckSeen AckState = "seen"
	// AckWritten: the agent was handed the notice, and nothing will tell whether its
	// model has read it (Outcome.Unproven).
	AckWritten AckState = "written"
	// AckUndelivered: no turn with the notice completed, and this session will
	// not try again by itself.
	AckUndelivered AckState = "undelivered"
)

// Ack tells the owner of a notice how far it has come.
type Ack struct {
	State AckState
	Run   string // the run that carried it; may be empty
	Err   error  // why it is undelivered
}

// Waiting is a notice that Options.Pull hands over, and who hears of it.
type Waiting struct {
	Notice Notice
	Ack    func(Ack)
}

// Framer makes the message for the model of all notices of one run, at most a
// few kilobytes whatever they are (specification N-10, N-11): it escapes what
// comes from outside. Aside says that a person speaks in the same turn, so that
// the message must not tell the model to answer NO_REPLY.
type Framer func(notices []Notice, aside bool) string

// Input is what somebody says to the agent.
type Input struct {
	Text string
	From string // who says it; may be empty
	// Channel is where the reply goes; nil means nowhere.
	Channel Channel
	// Chatter marks text that is not addressed to the agent: it may be answered
	// with NO_REPLY, and it never decides where replies to notices go.
	Chatter bool
}

// Channel is a place where replies are published: a terminal, a chat, IRC.
type Channel interface {
	// Name identifies the channel in events and transcripts.
	Name() string
	// Publish takes a reply. The session waits for it, within its bound.
	Publish(ctx context.Context, r Reply) error
}

// Reply is what a run says to its channel.
type Reply struct {
	Run  string
	Text string
	Err  error // the run failed: there is no text
}

// Ticket follows one input to the end of its run.
type Ticket struct {
	ID     string
	done   chan struct{}
	once   sync.Once
	result Result
	err    error
}

// Result is how the run of an input ended.
type Result struct {
	Run        string
	Text       string // the reply, also a suppressed one
	Suppressed bool
	Channel    string // where the reply went; empty: nowhere
	Stop       StopReason
}

func newTicket() *Ticket { return &Ticket{ID: newID("in"), done: make(chan struct{})} }

// Done is closed when the run has ended.
func (t *Ticket) Done() <-chan struct{} { return t.done }

// Wait waits for the end of the run. Errors: ctx's, ErrCancelled, ErrClosed, or
// what broke the run.
func (t *Ticket) Wait(ctx context.Context) (Result, error) {
	select {
	case <-t.done:
		return t.result, t.err
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
}

func (t *Ticket) settle(r Result, err error) {
	t.once.Do(func() {
		t.result, t.err = r, err
		close(t.done)
	})
}
