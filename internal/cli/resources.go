package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/watch"
)

func newResources(e *env) *cobra.Command {
	var servers serverFlags
	cmd := &cobra.Command{
		Use:     "resources",
		Short:   "List what the servers offer to read and to watch",
		Example: `  ossicle resources --mcp-stdio 'ossicle memo'`,
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return servers.withClient(cmd.Context(), e, app.ClientOptions{}, nil, func(client *app.Client) error {
				list, err := client.Watches.Resources(cmd.Context())
				if cmd.Context().Err() != nil {
					return errInterrupted // nothing was found out
				}
				if printErr := e.printResources(list); printErr != nil {
					return printErr
				}
				return err
			})
		},
	}
	servers.register(cmd)
	return cmd
}

func (e *env) printResources(list []watch.Resource) error {
	if e.json {
		return writeJSON(e.Out, list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(e.Out, "no resources")
		return err
	}
	table := newTable(e.Out)
	_, _ = fmt.Fprintln(table, "URI\tWATCH\tSERVER\tDESCRIPTION")
	for _, r := range list {
		can := "no"
		if r.Subscribable {
			can = "yes"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", printable(r.URI), can, printable(r.Server), printable(firstLine(r.Description, 60)))
	}
	return table.Flush()
}
