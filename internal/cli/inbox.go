package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/notice"
)

// inboxFlags say which inboxes a command looks into.
type inboxFlags struct {
	data  string
	agent string
}

func (f *inboxFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.data, "data", "", "data directory (default $OSSICLE_HOME)")
	flags.StringVar(&f.agent, "agent", "", "only this inbox: the name of a session or an agent")
}

func newInbox(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "Look into the inboxes of agents: what waits, and what became of it",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newInboxList(e), newInboxShow(e), newInboxAck(e), newInboxDelete(e), newInboxReset(e))
	return cmd
}

// withInbox runs do with the inboxes of a data directory. Where there is none
// it is empty-handed: in is nil.
func (f *inboxFlags) withInbox(ctx context.Context, e *env, do func(in *notice.Inbox) error) error {
	c, err := e.load()
	if err != nil {
		return err
	}
	in, done, err := app.OpenInbox(ctx, c, f.data, e.log)
	if errors.Is(err, fs.ErrNotExist) {
		return do(nil)
	}
	if err != nil {
		return err
	}
	return errors.Join(do(in), done())
}

// errNoInbox ends a command that names what cannot be there.
var errNoInbox = errors.New("there is no inbox yet in the data directory; --data names another one")

func newInboxList(e *env) *cobra.Command {
	var (
		f       inboxFlags
		pending bool
		limit   int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List notices, newest first, with how far each has come",
		Long: `List the inboxes with their state, and their notices, newest first.

persisted is on disk; notified: a host was written to, no proof of anything;
woken: a turn with it began; seen: the model's side showed it; acked: the agent,
or a person, said so; suppressed, expired, dead: it will not be shown.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > notice.MaxPage {
				return &usageError{fmt.Errorf("--limit takes 1 to %d", notice.MaxPage)}
			}
			return f.withInbox(cmd.Context(), e, func(in *notice.Inbox) error {
				return f.list(cmd.Context(), e, in, pending, limit)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&pending, "pending", false, "only notices that wait to be shown")
	cmd.Flags().IntVar(&limit, "limit", notice.DefaultPage, "notices of each inbox")
	return cmd
}

// inboxReport is one inbox as list prints it.
type inboxReport struct {
	notice.Status

	Notices []notice.Record `json:"notices"`
}

func (f *inboxFlags) list(ctx context.Context, e *env, in *notice.Inbox, pending bool, limit int) error {
	agents, err := f.agents(ctx, in)
	if err != nil {
		return err
	}
	if len(agents) == 0 && !e.json {
		_, err := fmt.Fprintln(e.Out, "no inboxes")
		return err
	}
	q := notice.Query{Newest: true, Limit: limit}
	if pending {
		q.States = []notice.State{notice.Persisted, notice.Notified, notice.Woken}
	}
	for _, name := range agents {
		q.Agent = name
		status, err := in.Status(ctx, name)
		if err != nil {
			return err
		}
		page, err := in.List(ctx, q)
		if err != nil {
			return err
		}
		if err := e.printInbox(inboxReport{status, page.Records}); err != nil {
			return err
		}
	}
	return nil
}

func (f *inboxFlags) agents(ctx context.Context, in *notice.Inbox) ([]string, error) {
	switch {
	case in == nil && f.agent != "":
		return nil, errNoInbox
	case in == nil:
		return nil, nil
	case f.agent != "":
		return []string{f.agent}, nil
	}
	return in.Agents(ctx)
}

func (e *env) printInbox(r inboxReport) error {
	if e.json {
		if r.Notices == nil {
			r.Notices = []notice.Record{}
		}
		return writeJSON(e.Out, r)
	}
	if _, err := fmt.Fprintf(e.Out, "%s: %s\n", r.Agent, printable(r.String())); err != nil {
		return err
	}
	table := newTable(e.Out)
	for i := range r.Notices {
		n := &r.Notices[i]
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", n.ID, n.State, n.CreatedAt.Local().Format(time.DateTime),
			printable(strings.TrimSpace(string(n.Source)+" "+firstLine(n.Title, 40))), printable(firstLine(n.Text, 60)))
	}
	return table.Flush()
}

func newInboxShow(e *env) *cobra.Command {
	var f inboxFlags
	cmd := &cobra.Command{
		Use:   "show ID...",
		Short: "Show notices in full, and every step of what became of them",
		Args:  usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return f.withInbox(cmd.Context(), e, func(in *notice.Inbox) error { return f.show(cmd.Context(), e, in, ids) })
		},
	}
	f.register(cmd)
	return cmd
}

func (f *inboxFlags) show(ctx context.Context, e *env, in *notice.Inbox, ids []string) error {
	if in == nil {
		return errNoInbox
	}
	for _, id := range ids {
		r, err := in.Get(ctx, f.agent, id)
		if err != nil {
			return fmt.Errorf("show notice %q: %w", id, err)
		}
		if err := e.printNoticeRecord(&r); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) printNoticeRecord(r *notice.Record) error {
	if e.json {
		return writeJSON(e.Out, r)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s for %s: %s\n", r.ID, r.Agent, printable(strings.TrimSpace(string(r.Source)+" "+r.Title+" "+r.Meta[notice.MetaURI])))
	for line := range strings.Lines(r.Text) {
		b.WriteString("  " + printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "%s  %s  %s %s\n", s.At.Local().Format("2006-01-02 15:04:05.000"), s.State, s.Adapter, printable(s.Reason))
	}
	if r.State.Pending() && !r.Due.IsZero() {
		fmt.Fprintf(&b, "due %s\n", r.Due.Local().Format(time.DateTime))
	}
	_, err := fmt.Fprint(e.Out, b.String())
	return err
}

func newInboxAck(e *env) *cobra.Command {
	return newInboxChange(e, "ack ID...", "Acknowledge notices: they are not offered any more", "acknowledged",
		func(ctx context.Context, in *notice.Inbox, agent string, ids []string) (int, error) {
			moved, err := in.Ack(ctx, agent, "cli", ids...)
			return len(moved), err
		})
}

func newInboxDelete(e *env) *cobra.Command {
	return newInboxChange(e, "delete ID...", "Delete notices for good", "deleted",
		func(ctx context.Context, in *notice.Inbox, agent string, ids []string) (int, error) {
			n := 0
			for _, id := range ids {
				r, err := in.Get(ctx, agent, id)
				if err != nil {
					return n, fmt.Errorf("delete notice %q: %w", id, err)
				}
				deleted, err := in.Delete(ctx, r.Agent, id)
				if n += deleted; err != nil {
					return n, err
				}
			}
			return n, nil
		})
}

// newInboxChange makes a command that does something to notices and counts.
func newInboxChange(e *env, use, short, done string, do func(context.Context, *notice.Inbox, string, []string) (int, error)) *cobra.Command {
	var f inboxFlags
	cmd := &cobra.Command{
		Use: use, Short: short, Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return f.withInbox(cmd.Context(), e, func(in *notice.Inbox) error {
				if in == nil {
					return errNoInbox
				}
				n, err := do(cmd.Context(), in, f.agent, ids)
				if err != nil {
					return err
				}
				if e.json {
					return writeJSON(e.Out, map[string]int{done: n})
				}
				_, err = fmt.Fprintf(e.Out, "%d %s\n", n, done)
				return err
			})
		},
	}
	f.register(cmd)
	return cmd
}

func newInboxReset(e *env) *cobra.Command {
	var f inboxFlags
	cmd := &cobra.Command{
		Use:   "reset AGENT",
		Short: "Let an agent be woken again that was over its budget",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withInbox(cmd.Context(), e, func(in *notice.Inbox) error {
				if in == nil {
					return errNoInbox
				}
				if err := in.Reset(cmd.Context(), args[0]); err != nil {
					return err
				}
				status, err := in.Status(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if e.json {
					return writeJSON(e.Out, status)
				}
				_, err = fmt.Fprintf(e.Out, "%s: %s\n", status.Agent, printable(status.String()))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&f.data, "data", "", "data directory (default $OSSICLE_HOME)")
	return cmd
}
