package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/notice"
)

func newChannel(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "channel",
		Short: "Look at the tool channel between sandboxes and their gateway",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newChannelDoctor(e))
	return cmd
}

// maxWorkerToken bounds a file with the token of a worker, in bytes.
const maxWorkerToken = 16 << 10

// workerToken reads a file that a driver has made: who may read it is its affair,
// and a group may where it is mounted.
func workerToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxWorkerToken))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("--token-file: %s holds no token", file)
	}
	return token, nil
}

func newChannelDoctor(e *env) *cobra.Command {
	var f daemonFlags
	cmd := &cobra.Command{
		Use:   "doctor [URL]",
		Short: "Find out what keeps sandboxes from working, or a worker from its gateway",
		Long: `Without a URL try what this machine can do: for each profile of the configuration
file a command in a sandbox of this machine, or the rights in the cluster; and say
what keeps the sandbox, and what it does not keep.

With the URL of a gateway dial it as a worker does, with the token of a sandbox, and
say what each level answers: name, TCP, TLS, the answer to the upgrade, subprotocol,
initialize, session. It answers nothing, so it takes no worker's place. Without a
token it ends where one is asked for.

The exit code is 1 if a check failed.`,
		Example: `  ossicle channel doctor
  ossicle channel doctor wss://gw.example/v1/worker
  ossicle channel doctor $CONTROL_URL --token-file $WORKER_TOKEN_FILE`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.load()
			if err != nil {
				return err
			}
			var checks []notice.Check
			if len(args) == 0 {
				checks = append(fleet.Doctor(cmd.Context(), c, nil), app.DoctorGateway(cmd.Context(), c, f.data))
			} else {
				token, err := workerToken(f.tokenFile)
				if err != nil {
					return &usageError{err}
				}
				checks = fleet.DialDoctor(cmd.Context(), args[0], token)
			}
			return e.printChecks(cmd.Context(), checks)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the token of a sandbox's worker")
	flags.StringVar(&f.data, "data", "", "data directory of a daemon to look for (default $OSSICLE_HOME)")
	return cmd
}
