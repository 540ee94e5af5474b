package agent

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"time"
)

// Default bounds of a session.
const (
	DefaultQuiet          = 3 * time.Second  // silence that ends out-of-turn activity
	DefaultMaxBusy        = 10 * time.Minute // longest wait for that silence
	DefaultGrace          = 5 * time.Second  // at shutdown, for the run to finish
	DefaultStopWait       = 2 * time.Second  // at shutdown, from cancel to kill
	DefaultCancelWait     = 10 * time.Second // after a cancel, for the agent to obey
	DefaultStartTime      = 3 * time.Minute  // one start of the agent
	DefaultTurnTime       = 2 * time.Hour    // one turn
	DefaultRestarts       = 3                // restarts of a dead agent in a window (N-2)
	DefaultRestartWindow  = 5 * time.Minute
	DefaultReadyWait      = 30 * time.Second // longest wait for Options.Ready
	DefaultAttachWait     = 10 * time.Second // longest wait for Options.Attached
	DefaultReplyTime      = 10 * time.Second // one publication
	DefaultPermissionWait = 10 * time.Minute // one question to a person
	DefaultInputs         = 100              // unclaimed inputs; more are refused
	DefaultNotices        = 200              // unclaimed notices; more are refused
)

// Bounds that cannot be changed.
const (
	MaxInput  = 1 << 20  // bytes of one input; a longer one is refused
	MaxNotice = 64 << 10 // bytes of one notice; a longer one is refused
	MaxReply  = 1 << 20  // bytes of one run's text; the rest is dropped and said so

	storeTime   = 5 * time.Second // one write to the store
	pullTime    = 2 * time.Second // one Options.Pull
	endTurnWait = 2 * time.Second // from NO_REPLY as code to the cancel, if no event tells
	seenIDs     = 4096            // ids of seen notices that are remembered
	recallLast  = 4000            // transcript entries looked at when a session starts again
)

// Options configure a session. The zero value of a field means its default.
type Options struct {
	Profile string   // name, for listings
	Dir     string   // working directory of the agent
	Env     []string // "KEY=value" for the agent
	// System is the standing instruction, see SystemPrompt.
	System string
	// OnStart is a prompt for the first turn. The restore notice joins it if it
	// comes before Ready (specification N-16).
	OnStart string
	// Ready holds back the first run until it is closed, at most for ReadyWait:
	// the application closes it when saved watches have been restored.
	Ready     <-chan struct{}
	ReadyWait time.Duration
	// Warm starts the agent with the session, and after a reset, and not with the
	// first turn.
	Warm bool

	// MCPServers is asked before every start of the agent, so that each attempt
	// has its own URLs.
	MCPServers func(ctx context.Context) ([]MCPServer, error)
	// Tools is asked before every start, for engines that call in process.
	Tools func(ctx context.Context) []Tool
	// Attached is asked after every start of an agent that was given MCP servers.
	// It returns once the agent knows their tools, or ctx ends. The first turn of
	// that life waits for it, at most for AttachWait: several agents answer that
	// they have started, and attach beside that.
	Attached   func(ctx context.Context) error
	AttachWait time.Duration
	// OnReset is called when somebody resets the session, and again right before
	// the agent is closed for it: what was known of the agent is over. It returns
	// quickly.
	OnReset func()
	// Channels are the configured places for replies. Replies to notices go to
	// the first one until somebody has addressed the agent elsewhere (N-13).
	Channels []Channel
	// Pull is asked before every run for notices that wait for the agent
	// elsewhere, so that they join it and cost no run of their own; user says that
	// the run has input of a person. It does not block for long, and every
	// notice that it returns is followed by its Ack.
	Pull func(ctx context.Context, user bool) []Waiting
	// OnIdle is called whenever the session has become idle and Idle says so:
	// whoever held notices back because it was not may now offer them. It does
	// not block.
	OnIdle func()
	// Note is the instruction that the frame carries, for the transcript; empty
	// means NoticeInstruction.
	Note string
	// Missing is why the agent cannot be started, where that is known without a start.
	// It is told until a start succeeds.
	Missing error
	// Scrub takes out of an error of the agent what must not leave the session; nil
	// keeps all. Transcripts have the error as it was.
	Scrub func(text string) string
	// Context is asked before every turn for a note of ours, for instance
	// CodeMode.ScopeNote; what has not changed since the last turn is left out.
	Context func() string

	Policy Policy // who answers permission requests; empty means PolicyAsk
	// Attended says that a person sees the updates where the log goes, too: what they
	// tell of an agent that ended is there at the level of debug.
	Attended bool
	// Asks says that a person can be asked. Without, PolicyAsk rejects.
	Asks           bool
	PermissionWait time.Duration
	// MidTurn offers what arrives during a turn to that turn, where the agent
	// has a way for it (N-24). Some agents abort what they are doing for it.
	MidTurn bool

	Quiet, MaxBusy      time.Duration
	Grace, StopWait     time.Duration
	CancelWait          time.Duration
	StartTime, TurnTime time.Duration
	ReplyTime           time.Duration
	Restarts            int
	RestartWindow       time.Duration
	Inputs, Notices     int
	Log                 *slog.Logger
}

func (o *Options) orDefaults() Options {
	var f Options
	if o != nil {
		f = *o
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&f.ReadyWait, DefaultReadyWait},
		{&f.AttachWait, DefaultAttachWait},
		{&f.PermissionWait, DefaultPermissionWait},
		{&f.Quiet, DefaultQuiet},
		{&f.MaxBusy, DefaultMaxBusy},
		{&f.Grace, DefaultGrace},
		{&f.StopWait, DefaultStopWait},
		{&f.CancelWait, DefaultCancelWait},
		{&f.StartTime, DefaultStartTime},
		{&f.TurnTime, DefaultTurnTime},
		{&f.ReplyTime, DefaultReplyTime},
		{&f.RestartWindow, DefaultRestartWindow},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	for _, d := range []struct {
		field *int
		value int
	}{
		{&f.Restarts, DefaultRestarts},
		{&f.Inputs, DefaultInputs},
		{&f.Notices, DefaultNotices},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if f.Policy == "" {
		f.Policy = PolicyAsk
	}
	if f.Note == "" {
		f.Note = NoticeInstruction
	}
	if f.Log == nil {
		f.Log = slog.New(slog.DiscardHandler)
	}
	return f
}

// newID makes an id that is unique over restarts.
func newID(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:16]) }
