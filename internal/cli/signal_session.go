package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/mailbox"
)

func newStartSession(e *env) *cobra.Command {
	var f signalFlags
	cmd := &cobra.Command{
		Use:   "start-session",
		Short: "Begin a collaboration session of agents, or join one, and print its id",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.load()
			if err != nil {
				return err
			}
			if f.session == "" {
				f.session = mailbox.NewSessionID(time.Now())
			}
			e.fromEnvironment(&f.agent, EnvAgent)
			if f.agent == "" {
				f.agent = mailbox.NewAgentID("cli", mailbox.NewRunToken())
			}
			x, err := app.NewCollaborations(c, f.data, mailbox.Limits{}, e.commandLog(c)).Open(cmd.Context(), f.session)
			if err != nil {
				return err
			}
			_, err = x.Enter(cmd.Context(), f.agent)
			if err = errors.Join(err, x.Close(context.WithoutCancel(cmd.Context()))); err != nil {
				return err
			}
			if e.json {
				return writeJSON(e.Out, app.Seated{Session: f.session, Agent: f.agent})
			}
			_, err = fmt.Fprintf(e.Out, "export %s=%s %s=%s\n", EnvSession, f.session, EnvAgent, f.agent)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.data, "data", "", "data directory (default $OSSICLE_HOME)")
	flags.StringVar(&f.session, "session", "", "session to join (default: a new one)")
	flags.StringVar(&f.agent, "agent", "", "id of the agent (default $OSSICLE_AGENT, else one that is made)")
	return cmd
}

// newSharedVerb makes a command that reads what all members share: it needs a
// session, and nobody in particular.
func newSharedVerb(e *env, cmd *cobra.Command, do func(cmd *cobra.Command, x *app.Collaboration, args []string) error) *cobra.Command {
	var f signalFlags
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.withSession(cmd.Context(), e, false, func(x *app.Collaboration, _ *mailbox.Member) error { return do(cmd, x, args) })
	}
	f.register(cmd)
	return cmd
}

func newListAgents(e *env) *cobra.Command {
	return newSharedVerb(e, &cobra.Command{
		Use:   "list-agents",
		Short: "List the agents of a session, and how each is",
		Args:  usage(cobra.NoArgs),
	}, func(cmd *cobra.Command, x *app.Collaboration, _ []string) error {
		agents, err := x.Agents(cmd.Context())
		if err != nil {
			return err
		}
		if e.json {
			if agents == nil {
				agents = []mailbox.Agent{}
			}
			return writeJSON(e.Out, agents)
		}
		table := newTable(e.Out)
		for _, a := range agents {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", a.ID, a.Status, a.LastSeen.Local().Format(time.DateTime), printable(strings.TrimSpace(a.Harness+" "+a.Substrate)))
		}
		return table.Flush()
	})
}

func newNote(e *env) *cobra.Command {
	return newSignalVerb(e, &cobra.Command{
		Use:   "note TEXT",
		Short: "Append a note to the log that all agents of a session share",
		Args:  usage(cobra.ExactArgs(1)),
	}, func(cmd *cobra.Command, m *mailbox.Member, args []string) error {
		n, err := m.Note(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if e.json {
			return writeJSON(e.Out, n)
		}
		_, err = fmt.Fprintf(e.Out, "note %d\n", n.Sequence)
		return err
	})
}

func newReadNotes(e *env) *cobra.Command {
	var (
		after int64
		limit int
	)
	cmd := newSharedVerb(e, &cobra.Command{
		Use:   "read-notes",
		Short: "Print the notes of a session",
		Args:  usage(cobra.NoArgs),
	}, func(cmd *cobra.Command, x *app.Collaboration, _ []string) error {
		notes, next, err := x.Notes(cmd.Context(), after, limit)
		if err != nil {
			return err
		}
		if e.json {
			return writeJSON(e.Out, struct {
				Notes []mailbox.Note `json:"notes"`
				Next  int64          `json:"next,omitempty"`
			}{notes, next})
		}
		for _, n := range notes {
			if _, err := fmt.Fprintf(e.Out, "%d %s %s: %s\n", n.Sequence, n.Time.Local().Format(time.DateTime), n.Author, printable(n.Text)); err != nil {
				return err
			}
		}
		if next > 0 {
			_, err = fmt.Fprintf(e.Out, "more: --after %d\n", next)
		}
		return err
	})
	cmd.Flags().Int64Var(&after, "after", 0, "sequence after which to go on")
	cmd.Flags().IntVar(&limit, "limit", mailbox.DefaultPage, "notes of a page, 500 at most")
	return cmd
}

func newWhiteboard(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "whiteboard",
		Short: "Share values with the agents of a session",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newSharedVerb(e, &cobra.Command{
			Use: "get KEY", Short: "Print the value of a key", Args: usage(cobra.ExactArgs(1)),
		}, func(cmd *cobra.Command, x *app.Collaboration, args []string) error {
			entries, err := x.Whiteboard(cmd.Context(), args[0])
			switch {
			case err != nil:
				return err
			case len(entries) == 0 || args[0] == "":
				return fmt.Errorf("read whiteboard: there is nothing under %q; 'ossicle whiteboard list' shows what there is", args[0])
			case e.json:
				return writeJSON(e.Out, entries[0])
			}
			_, err = fmt.Fprintln(e.Out, printable(entries[0].Value))
			return err
		}),
		newSignalVerb(e, &cobra.Command{
			Use: "set KEY VALUE", Short: "Set the value of a key", Args: usage(cobra.ExactArgs(2)),
		}, func(cmd *cobra.Command, m *mailbox.Member, args []string) error {
			entry, err := m.Write(cmd.Context(), args[0], args[1])
			if err == nil && e.json {
				return writeJSON(e.Out, entry)
			}
			return err
		}),
		newSharedVerb(e, &cobra.Command{
			Use: "list", Short: "Print all values, with who set each and when", Args: usage(cobra.NoArgs),
		}, func(cmd *cobra.Command, x *app.Collaboration, _ []string) error {
			entries, err := x.Whiteboard(cmd.Context(), "")
			if err != nil {
				return err
			}
			if e.json {
				return writeJSON(e.Out, entries)
			}
			table := newTable(e.Out)
			for _, v := range entries {
				_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", printable(v.Key), printable(firstLine(v.Value, 80)), v.UpdatedBy, v.UpdatedAt.Local().Format(time.DateTime))
			}
			return table.Flush()
		}),
	)
	return cmd
}

// signalCommands are the commands of signals between agents.
func signalCommands(e *env) []*cobra.Command {
	return []*cobra.Command{
		newStartSession(e), newSignal(e), newReadSignals(e), newAckSignals(e), newWaitSignals(e), newListAgents(e), newNote(e), newReadNotes(e), newWhiteboard(e),
	}
}
