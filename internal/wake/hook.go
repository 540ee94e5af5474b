package wake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/notice"
)

// HookFormat says whose hook prints.
type HookFormat string

// Formats of hooks.
const (
	HookText   HookFormat = "text" // the text alone
	HookClaude HookFormat = "claude"
	HookCodex  HookFormat = "codex"
	HookGemini HookFormat = "gemini"
)

// maxHookInput bounds what a host may hand to a hook; it contains the prompt.
const maxHookInput = 32 << 20

// HookOptions adjust Digest.
type HookOptions struct {
	Format HookFormat // empty means HookText
	// Event overrides the event that the host names on standard input.
	Event string
	// Lease is how long a hook that died keeps its notices from being shown by
	// somebody else. Zero means DefaultHookLease.
	Lease time.Duration
}

// DefaultHookLease is ample for what takes milliseconds.
const DefaultHookLease = 10 * time.Second

// hookInput is what all three hosts put on a hook's standard input, as far as
// it matters here.
type hookInput struct {
	Event string `json:"hook_event_name"`
}

// hookOutput is what they take on its standard output. Codex rejects members
// that it does not know, so there is nothing else.
type hookOutput struct {
	Decision string       `json:"decision,omitzero"`
	Reason   string       `json:"reason,omitzero"`
	Specific *hookContext `json:"hookSpecificOutput,omitzero"`
}

type hookContext struct {
	Event   string `json:"hookEventName"`
	Context string `json:"additionalContext"`
}

// hookPower is what an event allows a hook to do.
type hookPower int

const (
	hookMute    hookPower = iota // nothing that it prints reaches the model
	hookAdds                     // it adds to a turn that runs
	hookPrompts                  // it adds to a turn that a person begins
	hookWakes                    // it makes the agent go on
)

// hookEvents says what the events of each host allow. Gemini's AfterAgent is
// not among them: making the agent go on there takes back its answer.
var hookEvents = map[HookFormat]map[string]hookPower{
	HookClaude: {"UserPromptSubmit": hookPrompts, "SessionStart": hookAdds, "PostToolUse": hookAdds, "Stop": hookWakes},
	HookCodex:  {"UserPromptSubmit": hookPrompts, "SessionStart": hookAdds, "PostToolUse": hookAdds, "Stop": hookWakes},
	HookGemini: {"BeforeAgent": hookPrompts, "SessionStart": hookAdds, "AfterTool": hookAdds},
}

// hookPrompt is the event of each host that a person's prompt causes.
var hookPrompt = map[HookFormat]string{HookClaude: "UserPromptSubmit", HookCodex: "UserPromptSubmit", HookGemini: "BeforeAgent"}

// Digest prints what is pending for an agent in the form that a host's hook
// takes, marks it as seen, and returns how many notices it was (specification
// D-13). With nothing pending, or at an event at which nothing printed would
// reach the model, it prints nothing and marks nothing. A stop hook makes the
// agent go on and is held to the agent's budget of wakes.
//
// The caller exits with code 0 right after a nil error, and with 1 (never 2,
// which would block the person's prompt) after another. The last thing that
// Digest does is to mark: a process that is killed before has shown nothing,
// because hosts take nothing from a hook that fails. Standard input may be nil
// if Event is set or the format is HookText.
func Digest(ctx context.Context, in *notice.Inbox, agent string, stdin io.Reader, stdout io.Writer, o *HookOptions) (int, error) {
	var opts HookOptions
	if o != nil {
		opts = *o
	}
	event, power, err := hookEvent(opts, stdin)
	if err != nil || power == hookMute {
		return 0, err
	}
	p, err := in.Pull(ctx, agent, "hook", &notice.PullOptions{User: power == hookPrompts, Lease: cmp.Or(opts.Lease, DefaultHookLease)})
	if err != nil || len(p.Notices) == 0 {
		return 0, err
	}
	if power == hookWakes {
		if may, err := in.MayWake(ctx, agent, notice.EstimateTokens(p.Text())); err != nil || !may {
			return 0, errors.Join(err, p.Release(ctx))
		}
	}
	text, err := hookText(opts.Format, event, power, p.Text())
	if err == nil {
		_, err = stdout.Write(text)
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("print digest: %w", err), p.Release(ctx))
	}
	return len(p.Notices), p.Seen(ctx)
}

func hookEvent(o HookOptions, stdin io.Reader) (string, hookPower, error) {
	if o.Format == "" || o.Format == HookText {
		return "", hookPrompts, nil
	}
	powers, known := hookEvents[o.Format]
	if !known {
		return "", hookMute, fmt.Errorf("print digest: %q is no format of hooks; there are text, claude, codex, gemini", o.Format)
	}
	event := o.Event
	if event == "" && stdin != nil {
		b, err := io.ReadAll(io.LimitReader(stdin, maxHookInput))
		if err != nil {
			return "", hookMute, fmt.Errorf("read hook input: %w", err)
		}
		var input hookInput
		if err := json.Unmarshal(b, &input); err != nil {
			return "", hookMute, errors.New("read hook input: it is not the JSON object that hosts give to hooks")
		}
		event = input.Event
	}
	if event == "" {
		event = hookPrompt[o.Format]
	}
	return event, powers[event], nil
}

func hookText(format HookFormat, event string, power hookPower, text string) ([]byte, error) {
	if format == "" || format == HookText {
		return []byte(text + "\n"), nil
	}
	out := hookOutput{Specific: &hookContext{Event: event, Context: text}}
	if power == hookWakes {
		out = hookOutput{Decision: "block", Reason: text}
	}
	b, err := json.Marshal(out)
	return append(b, '\n'), err
}
