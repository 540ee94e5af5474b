package cli

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/mcpserver"
)

// newBridge is what agents start that take MCP servers on their standard streams
// alone. Nobody else has a use for it.
func newBridge(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    "bridge",
		Short:  "Relay between an agent's standard streams and its session",
		Hidden: true,
		Args:   usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, _ := e.getenv(app.EnvBridge)
			if url == "" {
				return &usageError{errors.New(app.EnvBridge + " is not set: this command is for agents")}
			}
			out, err := mcpserver.GuardStdout()
			if err != nil {
				return err
			}
			defer func() { _ = out.Close() }()
			return app.Bridge(cmd.Context(), url, e.In, out)
		},
	}
}

// bridge is the command by which agents start it; nil if nobody knows where this
// program is.
func bridge() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, "bridge"}
}

// relay is the command that sees what agents do with servers that are commands;
// nil likewise.
func relay() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, "shim"}
}
