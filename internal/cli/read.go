package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
)

func newRead(e *env) *cobra.Command {
	var servers serverFlags
	cmd := &cobra.Command{
		Use:     "read URI",
		Short:   "Read a resource",
		Example: `  ossicle read memo://notes --mcp-stdio 'ossicle memo'`,
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return servers.withClient(cmd.Context(), e, app.ClientOptions{}, nil, func(client *app.Client) error {
				value, err := client.Watches.Read(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return e.printValue(value)
			})
		},
	}
	servers.register(cmd)
	return cmd
}

// printValue prints JSON as it is, exact to the digit, and a JSON string as its
// text unless JSON was asked for.
func (e *env) printValue(value json.RawMessage) error {
	text := string(value)
	var s string
	if !e.json && json.Unmarshal(value, &s) == nil {
		text = printable(s)
	}
	_, err := fmt.Fprintln(e.Out, text)
	return err
}
