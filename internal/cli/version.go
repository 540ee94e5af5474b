package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/listen"
)

func newVersion(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version; so does ossicle --version",
		Args:  usage(cobra.NoArgs),
		RunE:  func(*cobra.Command, []string) error { return e.printVersion() },
	}
}

func (e *env) printVersion() error {
	v := struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		System  string `json:"system"`
		MCP     string `json:"mcp"`
	}{version.Number(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, listen.ProtocolVersion}
	if e.json {
		return writeJSON(e.Out, v)
	}
	_, err := fmt.Fprintf(e.Out, "ossicle %s (%s, %s, MCP %s)\n", v.Version, v.Go, v.System, v.MCP)
	return err
}
