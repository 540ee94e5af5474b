package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mcpclient"
)

// defaultProbeWait is how long a probe waits for an announcement.
const defaultProbeWait = 10 * time.Second

func newProbe(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Find out what a server or an agent really does",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newProbeMCP(e), newProbeACP(e))
	return cmd
}

// probeFlags are the flags of ossicle probe mcp.
type probeFlags struct {
	servers serverFlags
	uri     string
	wait    time.Duration
	legacy  bool
}

func newProbeMCP(e *env) *cobra.Command {
	f := &probeFlags{}
	cmd := &cobra.Command{
		Use:   "mcp URL | -- COMMAND [ARG...]",
		Short: "Connect to an MCP server and tell what it offers, and whether it announces changes",
		Long: `Connect to an MCP server and tell its protocol version and era, its capabilities,
tools, resources and templates, and whether subscriptions/listen works, with the
time that each took. With --uri it also waits for somebody to change that
resource, and ends with code 3 if no announcement came.`,
		Example: `  ossicle probe mcp -- ossicle memo
  ossicle probe mcp http://127.0.0.1:7718/mcp --uri memo://notes --wait 30s`,
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, e, args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.uri, "uri", "", "resource whose announcements to wait for")
	flags.DurationVar(&f.wait, "wait", defaultProbeWait, "how long to wait for an announcement")
	flags.StringArrayVar(&f.servers.headers, "mcp-header", nil, "'Name: value' for the server (repeatable)")
	flags.StringVar(&f.servers.tokenFile, "mcp-token-file", "", "file with the bearer token for the server")
	flags.BoolVar(&f.legacy, "legacy-watch", false, "also listen to servers older than MCP 2026-07-28")
	return cmd
}

func (f *probeFlags) run(cmd *cobra.Command, e *env, args []string) error {
	c, err := e.load()
	if err != nil {
		return err
	}
	spec, err := f.spec(cmd, args)
	if err != nil {
		return &usageError{err}
	}
	c.Watch.LegacyWatch = c.Watch.LegacyWatch || f.legacy
	return withSpec(cmd, e, c, spec, func(server *mcpclient.Server) error {
		report := server.Probe(cmd.Context(), mcpclient.ProbeOptions{URI: f.uri, Wait: f.wait})
		if err := e.printProbe(&report); err != nil {
			return err
		}
		return f.verdict(&report)
	})
}

// spec is the one server that is probed: a command after "--", or a URL.
func (f *probeFlags) spec(cmd *cobra.Command, args []string) (mcpclient.Spec, error) {
	if cmd.ArgsLenAtDash() == 0 {
		return mcpclient.Spec{Name: "server", Command: args[0], Args: args[1:]}, nil
	}
	if len(args) != 1 {
		return mcpclient.Spec{}, errors.New("give one URL, or a command after --")
	}
	headers, err := f.servers.httpHeaders()
	return mcpclient.Spec{Name: "server", URL: args[0], Headers: headers}, err
}

func withSpec(cmd *cobra.Command, e *env, c *config.Config, spec mcpclient.Spec, do func(*mcpclient.Server) error) error {
	client, err := app.NewClient(c, []mcpclient.Spec{spec}, &app.ClientOptions{Logger: e.log})
	if err != nil {
		return &usageError{err}
	}
	err = do(client.Servers.Server(spec.Name))
	return errors.Join(err, client.Close(cmd.Context()))
}

func (f *probeFlags) verdict(r *mcpclient.ProbeReport) error {
	switch {
	case !r.Connect.OK:
		return fmt.Errorf("%w: %s", errUnreachable, r.Connect.Error)
	case f.uri != "" && !r.Listen.OK:
		return fmt.Errorf("listen to %s: %w: %s", f.uri, errUnobserved, r.Listen.Error)
	case f.uri != "" && !r.Listen.Announced:
		return fmt.Errorf("a change of %s: %w within %s", f.uri, errUnobserved, f.wait)
	}
	return nil
}

func (e *env) printProbe(r *mcpclient.ProbeReport) error {
	if e.json {
		return writeJSON(e.Out, r)
	}
	table := newTable(e.Out)
	row := func(what, found string, ms float64) {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", what, milliseconds(ms), printable(found))
	}
	row("server", fmt.Sprintf("%s over %s", r.Target, r.Transport), 0)
	row("connect", found(r.Connect, fmt.Sprintf("%s %s, MCP %s (%s)", r.ServerName, r.ServerVersion, r.ProtocolVersion, r.Era)), r.Connect.MS)
	if r.Connect.OK {
		if len(r.Versions) > 0 {
			row("versions", strings.Join(r.Versions, ", "), 0)
		}
		row("capabilities", string(r.Capabilities), 0)
		for _, l := range []struct {
			what string
			list *mcpclient.ProbeList
		}{{"tools", r.Tools}, {"resources", r.Resources}, {"templates", r.Templates}} {
			row(l.what, found(l.list.ProbeStep, fmt.Sprintf("%d  %s", len(l.list.Names), strings.Join(l.list.Names, ", "))), l.list.MS)
		}
		row("listen", found(r.Listen.ProbeStep, "acknowledged"), r.Listen.MS)
		if r.Listen.URI != "" && r.Listen.OK {
			text := "nothing announced"
			if r.Listen.Announced {
				text = "announced"
			}
			row("change", text, r.Listen.AnnouncedMS)
		}
	}
	if r.NoiseLines > 0 {
		row("noise", fmt.Sprintf("lines on standard output that were no messages: %d", r.NoiseLines), 0)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if r.Stderr == "" || r.Connect.OK {
		return nil
	}
	_, err := io.WriteString(e.Out, "its standard error ends with:\n"+printable(r.Stderr))
	return err
}

func found(s mcpclient.ProbeStep, text string) string {
	if s.OK {
		return text
	}
	return "FAILED: " + s.Error
}

func milliseconds(ms float64) string {
	if ms == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f ms", ms)
}
