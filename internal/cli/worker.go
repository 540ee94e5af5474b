package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/sandbox"
	"github.com/ossicle/ossicle/worker"
)

// codeError ends the program with a code that is somebody else's: that of a
// command, or of the contract of workers. A silent one has said what there is to
// say.
type codeError struct {
	code   int
	reason string
	silent bool
}

func (e *codeError) Error() string { return e.reason }

func newWorker(e *env) *cobra.Command {
	output := 0
	cmd := &cobra.Command{
		Use:    "worker",
		Short:  "Be the process in a sandbox that serves its tools to a gateway",
		Hidden: true, // a gateway starts it
		Long: `Read the environment of a sandbox (SESSION_ID, CONTROL_URL, WORKER_TOKEN_FILE), dial
the gateway and serve the tools exec and file until the gateway releases the
sandbox. The exit code says whether anybody should try again: 0 released, 75 the
gateway fell silent, 77 token or session refused, 78 version or configuration.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := "warn"
			if e.verbose {
				level = "debug"
			}
			exit := sandbox.RunWorker(cmd.Context(), e.getenv, &sandbox.WorkerOptions{
				Logger: e.logger(config.Log{Level: level, Format: e.logFormat}), Output: output,
			})
			if exit.Code == worker.ExitReleased {
				return nil
			}
			return &codeError{code: int(exit.Code), reason: fmt.Sprintf("worker ended: %.500s", printable(exit.Reason))}
		},
	}
	cmd.Flags().IntVar(&output, "output", 0, "bytes that are kept of a command's output")
	return cmd
}
