package cli

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/wake"
	"github.com/ossicle/ossicle/notice"
)

func newDigest(e *env) *cobra.Command {
	var (
		f      inboxFlags
		format = wake.HookText
		event  string
	)
	cmd := &cobra.Command{
		Use:   "digest",
		Short: "Print what is pending for an agent and mark it as seen: for hooks of agents",
		Long: `Print what waits in the inbox of an agent, framed for its model, and mark it as
seen. It is made for hooks: of Claude Code and Codex (UserPromptSubmit,
SessionStart, PostToolUse, Stop) and of Gemini (BeforeAgent, SessionStart,
AfterTool), whose JSON it reads from standard input and answers with --format.
With nothing pending it prints nothing. A Stop hook makes the agent go on, within
its budget of wakes.

Every failure is exit code 1, also a mistake on the command line: hosts take 2 as a
veto on what the person does.`,
		Example: `  ossicle digest --agent me
  ossicle digest --agent me --format claude    # as a command hook of Claude Code`,
		Args:              func(cmd *cobra.Command, args []string) error { return hookFailure(usage(cobra.NoArgs)(cmd, args)) },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return hookFailure(checkEmpty(cmd)) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.agent == "" {
				return hookFailure(errors.New("--agent is missing: whose digest?"))
			}
			var in io.Reader
			if event == "" && format != wake.HookText {
				in = e.In
			}
			o := &wake.HookOptions{Format: format, Event: event}
			return hookFailure(f.withInbox(cmd.Context(), e, func(inbox *notice.Inbox) error {
				if inbox == nil {
					return nil // nothing was ever posted
				}
				_, err := wake.Digest(cmd.Context(), inbox, f.agent, in, e.Out, o)
				return err
			}))
		},
	}
	f.register(cmd)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return hookFailure(flagError(cmd, err)) })
	choiceVar(cmd.Flags(), &format, "format", "form of the output: text, claude, codex or gemini", wake.HookText, wake.HookClaude, wake.HookCodex, wake.HookGemini)
	cmd.Flags().StringVar(&event, "event", "", "event of the hook (default: what standard input says)")
	return cmd
}

// hookFailure gives every failure of a hook exit code 1: hosts take 2 as a veto
// on what the person does.
func hookFailure(err error) error {
	if err == nil {
		return nil
	}
	return &hookError{err}
}

type hookError struct{ err error }

func (e *hookError) Error() string { return e.err.Error() }
