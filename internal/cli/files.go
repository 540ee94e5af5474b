package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/files"
)

func newFiles(e *env) *cobra.Command {
	var f sourceFlags
	cmd := &cobra.Command{
		Use:   "files PATH...",
		Short: "Serve files and directories as resources that can be watched",
		Long: `Serve the files below the given directories as MCP resources: file:///path for
the contents of a file, or with a slash at the end the entries of a directory,
and files://ROOT/GLOB for the entries below a directory that match a glob. The
kernel tells of changes; nothing outside the given paths can be read.`,
		Example: `  ossicle files notes src
  ossicle watch 'files://src/**/*.go' --mcp-stdio 'ossicle files src'`,
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := e.load(); err != nil {
				return err
			}
			var roots []files.Root
			for _, path := range args {
				roots = append(roots, files.Root{Path: path})
			}
			source, err := files.New(roots, &files.Options{Logger: e.log})
			if err != nil {
				return &usageError{err}
			}
			h, err := app.NewHost(source, nil, &app.HostOptions{Name: "ossicle-files", Instructions: filesInstructions, Logger: e.log})
			if err != nil {
				return errors.Join(err, source.Close())
			}
			return errors.Join(f.serve(cmd.Context(), e, h), source.Close())
		},
	}
	f.register(cmd)
	return cmd
}

const filesInstructions = "Files of this machine, to read and to watch. resources/list names the directories, resources/templates/list the families."
