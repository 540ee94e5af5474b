package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
)

// defaultObserve is how long an agent has to list the sentinel's tools. The
// slowest that we know takes 1.4 s after its answer; some attach later.
const defaultObserve = 10 * time.Second

// probeACPFlags are the flags of ossicle probe acp.
type probeACPFlags struct {
	prompt  string
	observe time.Duration
	out     string
	mode    string
	env     []string
}

func newProbeACP(e *env) *cobra.Command {
	f := &probeACPFlags{}
	cmd := &cobra.Command{
		Use:   "acp -- AGENT [ARG...]",
		Short: "Start an agent, hand it an MCP server, and tell what it does with it",
		Long: fmt.Sprintf(`Start an agent that speaks the Agent Client Protocol, as a session would, in an
empty directory; hand it a temporary MCP server, the sentinel, on a loopback
address; and tell apart what was seen: which transports the agent advertises,
whether the sentinel was delivered, whether the agent connected to it
(initialize, or server/discover), whether it listed the tools, and, with
--prompt, whether its model called one. The sentinel has one tool, %s;
say in the prompt that it shall be called. The agent may call it without being
asked for permission, and nothing else.

What was not seen in --observe is no failure of the agent: it may attach later,
or when its model first wants a tool. The exit code is then 3.

--out keeps the conversation byte for byte, and what the sentinel saw, one JSON
object a line. It holds whatever the agent says.`, app.SentinelTool),
		Example: `  ossicle probe acp -- ossicle mock-agent
  ossicle probe acp --prompt 'Call sentinel_echo with the text "hi".' --out frames.jsonl -- codex-acp`,
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, e, args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.prompt, "prompt", "", "prompt to send after that, to see the tool used")
	flags.DurationVar(&f.observe, "observe", defaultObserve, "how long to wait for the list of the tools")
	flags.StringVar(&f.out, "out", "", "file for the frames; it must not exist")
	flags.StringVar(&f.mode, "mode", "", "session mode of the agent")
	flags.StringArrayVar(&f.env, "env", nil, "'KEY=value' for the agent (repeatable)")
	return cmd
}

func (f *probeACPFlags) run(cmd *cobra.Command, e *env, args []string) (err error) {
	switch {
	case cmd.ArgsLenAtDash() > 0:
		return &usageError{errors.New("give the agent's command after --")}
	case f.observe < 0:
		return &usageError{errors.New("--observe: the time is negative")}
	}
	if _, err := e.load(); err != nil {
		return err
	}
	o := app.ProbeACPOptions{Command: args, Env: f.env, Mode: f.mode, Prompt: f.prompt, Observe: f.observe}
	if e.verbose {
		o.Logger = e.log
	}
	if f.out != "" {
		// What it holds is for its owner only, and never another file's place.
		file, ferr := os.OpenFile(f.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if ferr != nil {
			return &usageError{fmt.Errorf("--out: %w", ferr)}
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		o.Frames = file
	}
	report, err := app.ProbeACP(cmd.Context(), o)
	if perr := e.printProbeACP(&report); perr != nil {
		return errors.Join(err, perr)
	}
	switch {
	case err != nil:
		return fmt.Errorf("probe agent: %w", err) // a plain failure: the codes of a probe are 0, 1 and 3
	case report.Observed:
		return nil
	case !report.Delivered.OK:
		return fmt.Errorf("delivery of the sentinel: %w: %s", errUnobserved, report.Delivered.Reason)
	case !report.ToolsList.OK:
		return fmt.Errorf("tools/list of the sentinel: %w within %s; this is no failure of the agent, which may attach later", errUnobserved, f.observe)
	}
	return fmt.Errorf("a call of %s: %w; the model may not have been told of the tool, or not to call it", app.SentinelTool, errUnobserved)
}

func (e *env) printProbeACP(r *app.ACPReport) error {
	if e.json {
		return writeJSON(e.Out, r)
	}
	table := newTable(e.Out)
	row := func(what, found string, ms float64) {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", what, milliseconds(ms), printable(found))
	}
	row("agent", strings.TrimSpace(fmt.Sprintf("%s %s (%s)", r.AgentName, r.AgentVersion, r.Command)), 0)
	row("initialized", yes(r.Initialized.OK, "yes"), r.Initialized.MS)
	row("advertised", advertised(r), 0)
	row("delivered", delivered(r), 0)
	row("session", yes(r.Session.OK, "opened"), r.Session.MS)
	row("discover", observed(r.Discover), r.Discover.MS)
	row("initialize", observed(r.Initialize), r.Initialize.MS)
	list := observed(r.ToolsList)
	if r.ToolsList.ToolCount != nil {
		list = fmt.Sprintf("observed  tools: %d", *r.ToolsList.ToolCount)
	}
	row("tools/list", list, r.ToolsList.MS)
	row("tool call", called(r.ToolCall), r.ToolCall.MS)
	switch {
	case r.BlockedOnMCP:
		row("order", "the agent reached the sentinel and never answered session/new", 0)
	case r.BeforeSession:
		row("order", "the agent reached the sentinel before it answered session/new; one that waits there is held up by a server that hangs", 0)
	}
	var asked []string
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		asked = append(asked, fmt.Sprintf("%s %d", name, r.Requests[name]))
	}
	row("requests", strings.Join(asked, ", "), 0)
	if r.Server != nil {
		row("report", r.Server.Status.Label(), 0)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if r.Stderr == "" {
		return nil
	}
	_, err := io.WriteString(e.Out, "its standard error ends with:\n"+printable(r.Stderr)+"\n")
	return err
}

func yes(ok bool, word string) string {
	if ok {
		return word
	}
	return "no"
}

func advertised(r *app.ACPReport) string {
	var all []string
	if r.Advertised.HTTP {
		all = append(all, "http")
	}
	if r.Advertised.SSE {
		all = append(all, "sse")
	}
	if len(all) == 0 {
		return "neither http nor sse"
	}
	return strings.Join(all, ", ")
}

func delivered(r *app.ACPReport) string {
	if r.Delivered.OK {
		return "in session/new, over " + string(r.Delivered.Transport)
	}
	return strings.TrimSpace("no " + r.Delivered.Reason)
}

func observed(o app.ACPObservation) string {
	if !o.OK {
		return "not observed"
	}
	text := "observed"
	if o.ProtocolVersion != "" {
		text += "  MCP " + o.ProtocolVersion
	}
	if o.Era != "" {
		text += fmt.Sprintf(" (%s)", o.Era)
	}
	if o.ClientName != "" {
		text += strings.TrimRight(fmt.Sprintf(", client %s %s", o.ClientName, o.ClientVersion), " ")
	}
	return text
}

func called(o app.ACPObservation) string {
	switch {
	case o.OK:
		return "observed  " + o.Tool
	case o.Asked != nil && !*o.Asked:
		return "not asked for; give --prompt"
	}
	return "not observed"
}
