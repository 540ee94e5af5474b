package cli

import (
	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/internal/memo"
)

func newMemo(e *env) *cobra.Command {
	var (
		f    sourceFlags
		path string
	)
	cmd := &cobra.Command{
		Use:   "memo",
		Short: "Serve notes: memo://notes, which tools change and clients watch",
		Long: `Serve a small JSON object as the MCP resource memo://notes, and the tools
memo_set, memo_get and memo_delete. It is the reference of a server that can be
watched, and a notebook that several agents can share.`,
		Example: `  ossicle memo                                    # over stdio
  ossicle memo --http 127.0.0.1:7718 --no-auth    # over HTTP, for whoever is on this machine`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := e.load(); err != nil {
				return err
			}
			store, err := memo.New(&memo.Options{Path: path})
			if err != nil {
				return err
			}
			h, err := app.NewHost(store, mcpserver.MemoTools(store), &app.HostOptions{
				Name: "ossicle-memo", Instructions: memoInstructions, Logger: e.log,
			})
			if err != nil {
				return err
			}
			return f.serve(cmd.Context(), e, h)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&path, "data", "", "file that keeps the notes between runs")
	return cmd
}

const memoInstructions = "Shared notes. Read the resource memo://notes, change it with memo_set and memo_delete, watch it to hear of changes."
