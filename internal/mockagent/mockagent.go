// Package mockagent is an ACP agent that follows a script: for tests, and for
// trying ossicle without a model. It speaks the protocol over two streams,
// attaches to the MCP servers that it is given, quotes the notices that reach
// it and does what script words in a prompt say (see [Run]). Its modes imitate
// what real agents do differently, and what they do wrong.
package mockagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Attach says when the agent connects to its MCP servers.
type Attach string

// Attachments.
const (
	Eager Attach = "eager" // before it answers session/new, like Gemini and OpenCode
	Async Attach = "async" // after its answer, like Codex and Qwen
	Lazy  Attach = "lazy"  // with the first call of a tool
	Never Attach = "nomcp" // never: the servers are ignored without a word
)

// Era is the MCP protocol family that the agent prefers.
type Era string

// Eras.
const (
	Modern Era = "modern" // 2026-07-28 by server/discover, where the server has it
	Legacy Era = "legacy" // 2025-11-25 by initialize
)

// Overlap says what happens to a turn when another prompt comes.
type Overlap string

// Overlaps.
const (
	Queue      Overlap = "queue"       // the second waits, like Codex and Claude
	Abort      Overlap = "abort"       // the first is cancelled, like Gemini
	AbortError Overlap = "abort-error" // the first fails, like Qwen
)

// DefaultSlow is the delay of mode "slow".
const DefaultSlow = 300 * time.Millisecond

// ErrDied is what Run returns when the script let the agent die.
var ErrDied = errors.New("mock agent died, as it was told")

// Options change the agent. The zero value is a well-behaved one.
type Options struct {
	Attach  Attach  // zero: Eager
	Era     Era     // zero: Modern
	Overlap Overlap // zero: Queue
	// HTTP and SSE are advertised unless their No is set.
	NoHTTP, NoSSE bool
	Slow          time.Duration // before every answer to initialize, session/new and a prompt
	Permission    bool          // ask before every tool call, and before telling of the call
	Unknown       bool          // send updates and requests that no client knows
	Unprompted    bool          // go on talking after the end of a turn
	Noise         bool          // write log lines to standard output
	Deaf          bool          // ignore session/cancel
	Steering      bool          // advertise and take _session/steering
	Drain         bool          // ask for queued messages after each tool call, like Qwen
	NoLoad        bool          // no session/load and session/resume
	Resume        bool          // session/resume besides session/load
	LateReplay    bool          // replay a loaded session after the answer, like Gemini
	Quiet         bool          // answer notices with NO_REPLY
	DieAt         int           // die in the n-th prompt, from 1; 0: never
}

// ParseModes reads mode names: eager, async, lazy, nomcp; modern, legacy;
// queue, abort, abort-error; nohttp, nosse; slow or slow=2s; permission,
// unknown, unprompted, noise, deaf, steering, drain, noload, resume, late-replay, quiet;
// dies or dies=3.
func ParseModes(modes []string) (*Options, error) {
	o := &Options{}
	for _, m := range modes {
		if err := o.set(m); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Modes lists the names that ParseModes knows.
func Modes() []string {
	var o Options
	names := append(
		slices.Collect(maps.Keys(o.flags())), string(Eager), string(Async), string(Lazy), string(Never), string(Modern), string(Legacy),
		string(Queue), string(Abort), string(AbortError), "slow", "dies",
	)
	slices.Sort(names)
	return names
}

func (o *Options) flags() map[string]*bool {
	return map[string]*bool{
		"nohttp": &o.NoHTTP, "nosse": &o.NoSSE, "permission": &o.Permission, "unknown": &o.Unknown,
		"unprompted": &o.Unprompted, "noise": &o.Noise, "deaf": &o.Deaf, "steering": &o.Steering, "drain": &o.Drain,
		"noload": &o.NoLoad, "resume": &o.Resume, "late-replay": &o.LateReplay, "quiet": &o.Quiet,
	}
}

func (o *Options) set(mode string) error {
	name, value, has := strings.Cut(mode, "=")
	if flag := o.flags()[name]; flag != nil && !has {
		*flag = true
		return nil
	}
	var err error
	switch {
	case name == "slow":
		o.Slow = DefaultSlow
		if has {
			o.Slow, err = time.ParseDuration(value)
		}
	case name == "dies":
		o.DieAt = 1
		if has {
			o.DieAt, err = strconv.Atoi(value)
		}
	case has:
		err = errors.New("it takes no value")
	case name == string(Eager), name == string(Async), name == string(Lazy), name == string(Never):
		o.Attach = Attach(name)
	case name == string(Modern), name == string(Legacy):
		o.Era = Era(name)
	case name == string(Queue), name == string(Abort), name == string(AbortError):
		o.Overlap = Overlap(name)
	default:
		err = errors.New("unknown mode")
	}
	if err != nil {
		return fmt.Errorf("parse mode %q: %w", mode, err)
	}
	return nil
}

// Run is an agent on in and out that logs to errw. It returns nil at the end
// of in, ErrDied when its script lets it die, or why it stopped. When ctx ends
// it closes in, if that is an io.Closer; a reader that this does not wake is
// left behind. It waits for what it has begun, so somebody must read out.
//
// Words of a prompt are done in this order, all that are there:
//
//	SLEEP 2s             wait
//	READ /path           read a file through the client (also WRITE /path text)
//	RUN command line     run a command in a terminal of the client
//	CALL tool {json}     call the first MCP tool whose name contains "tool"
//	QUIET, LOUD          answer notices with NO_REPLY from now on, or by quoting
//	LATER 50ms text      say text after the end of the turn
//	DIE                  die before answering
//	SAY text             reply with the rest of the line
//
// Without SAY the reply quotes: results ("tool said …"), the lines of notices
// ("heard: …") or the prompt itself ("you said …").
func Run(ctx context.Context, in io.Reader, out, errw io.Writer, o *Options) error {
	if o == nil {
		o = &Options{}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &agent{o: *o, out: out, errw: errw, pending: map[int]chan message{}, sessions: map[string]*session{}, die: cancel}
	stopped := context.AfterFunc(ctx, func() {
		if c, ok := in.(io.Closer); ok {
			_ = c.Close()
		}
	})
	defer stopped()
	read := make(chan error, 1)
	go func() { read <- a.read(ctx, in) }()
	var err error
	select {
	case err = <-read:
		cancel(nil)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	a.close()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
