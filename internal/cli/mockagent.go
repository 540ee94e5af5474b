package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/internal/mockagent"
)

func newMockAgent(e *env) *cobra.Command {
	var modes []string
	cmd := &cobra.Command{
		Use:   "mock-agent",
		Short: "Be an agent that follows a script, for tests and for trying ossicle without a model",
		Long: fmt.Sprintf(`Speak the Agent Client Protocol over stdio, as a coding agent does, and follow a
script instead of a model. It answers a notice by quoting it. Words in a prompt
make it act:

  SAY text             reply with the rest of the line
  CALL tool {json}     call the first MCP tool whose name contains "tool"
  SLEEP 2s             wait
  READ path, WRITE path text, RUN command line
                       use the files and terminals of the client
  QUIET, LOUD          answer notices with NO_REPLY from now on, or by quoting
  LATER 50ms text      say text after the end of the turn
  DIE                  die before answering

Modes imitate what real agents do differently, and what they do wrong:
%s.`, wrap(strings.Join(mockagent.Modes(), ", "), 78)),
		Example: `  ossicle run --agent 'ossicle mock-agent' --mcp-stdio 'ossicle memo' --watch memo://notes
  ossicle mock-agent --mode async --mode slow=2s`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := mockagent.ParseModes(modes)
			if err != nil {
				return &usageError{err}
			}
			out, err := mcpserver.GuardStdout() // a stray line would break the protocol
			if err != nil {
				return err
			}
			defer func() { _ = out.Close() }()
			return mockagent.Run(cmd.Context(), e.In, out, e.Err, o)
		},
	}
	cmd.Flags().StringSliceVar(&modes, "mode", nil, "behave like this; several by commas or by repeating the flag")
	return cmd
}

// wrap breaks text at spaces into lines of at most width bytes.
func wrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
