package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
)

func newServe(e *env) *cobra.Command {
	var addr, data string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Host sessions in the background, for ossicle session",
		Long: `Host sessions of agents until a signal. ossicle session starts and uses them, on
this machine and by the token file in the data directory. A session that is
started again under its name goes on: its conversation where the agent can, its
watches, its inbox.`,
		Example: `  ossicle serve
  ossicle session start home --agent codex-acp --mcp-config .mcp.json`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return e.serveDaemon(cmd.Context(), addr, data) },
	}
	cmd.Flags().StringVar(&addr, "http", "127.0.0.1:0", "loopback address to serve on")
	cmd.Flags().StringVar(&data, "data", "", "data directory (default $OSSICLE_HOME)")
	return cmd
}

func (e *env) serveDaemon(ctx context.Context, addr, data string) (err error) {
	c, err := e.load()
	if err != nil {
		return err
	}
	agents, err := app.NewAgents(ctx, c, &app.AgentsOptions{Data: data, Logger: e.log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agents.Close(context.WithoutCancel(ctx))) }()
	return agents.Serve(ctx, app.ServeOptions{Addr: addr, Data: data, Logger: e.log, Ready: func(url string) error {
		if e.json {
			return writeJSON(e.Out, struct {
				URL string `json:"url"`
			}{url})
		}
		_, err := fmt.Fprintf(e.Out, "serving sessions at %s\n", url)
		return err
	}})
}
