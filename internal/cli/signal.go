package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/mailbox"
)

// Environment variables of an agent's identity.
const (
	EnvSession = "OSSICLE_SESSION" // id of its collaboration session
	EnvAgent   = "OSSICLE_AGENT"   // its own id
)

// signalsGroup heads the commands of signals in the help text.
const signalsGroup = "Exchange signals with other agents of a session. No daemon is needed; the first use of a session or an agent id registers it."

// signalFlags say which agent of which session calls.
type signalFlags struct {
	data    string
	session string
	agent   string
}

func (f *signalFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.data, "data", "", "data directory (default $OSSICLE_HOME)")
	flags.StringVar(&f.session, "session", "", "collaboration session (default $OSSICLE_SESSION, else the only one that is known)")
	flags.StringVar(&f.agent, "agent", "", "id of the agent that calls (default $OSSICLE_AGENT, else the only one that is known)")
}

// fromEnvironment fills in what no flag has set.
func (e *env) fromEnvironment(to *string, name string) {
	if *to != "" {
		return
	}
	if v, ok := e.getenv(name); ok {
		*to = v
	}
}

// ambiguousError says that it cannot be told who calls.
type ambiguousError struct{ known []app.Seated }

// maxCandidates bounds the candidates that an error lists.
const maxCandidates = 20

func (e *ambiguousError) Error() string {
	if len(e.known) == 0 {
		return "whose signals? name --session and --agent, or set OSSICLE_SESSION and OSSICLE_AGENT; none is known here yet"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "whose signals? there is more than one candidate; name --session and --agent, or set OSSICLE_SESSION and OSSICLE_AGENT:")
	for i, k := range e.known {
		if i == maxCandidates {
			fmt.Fprintf(&b, "\n  and %d more", len(e.known)-i)
			break
		}
		fmt.Fprintf(&b, "\n  --session %s --agent %s", k.Session, k.Agent)
	}
	return b.String()
}

// resolve finds out who calls: flags, then the environment, then what is known in
// the data directory. More than one candidate is an error, never a guess.
func (f *signalFlags) resolve(e *env, all *app.Collaborations, needAgent bool) error {
	e.fromEnvironment(&f.session, EnvSession)
	e.fromEnvironment(&f.agent, EnvAgent)
	if f.session != "" && (f.agent != "" || !needAgent) {
		return nil
	}
	known, err := all.Known(f.session)
	if err != nil {
		return err
	}
	var fit []app.Seated
	sessions := map[string]bool{}
	for _, k := range known {
		if f.agent == "" || k.Agent == f.agent {
			fit = append(fit, k)
			sessions[k.Session] = true
		}
	}
	switch {
	case len(fit) == 1:
		f.session, f.agent = fit[0].Session, fit[0].Agent
		return nil
	case !needAgent && len(sessions) == 1:
		f.session = fit[0].Session
		return nil
	}
	return &usageError{&ambiguousError{fit}}
}

// withSession runs do in the session; member is nil where nobody in particular
// needs to call.
func (f *signalFlags) withSession(ctx context.Context, e *env, needAgent bool, do func(x *app.Collaboration, member *mailbox.Member) error) error {
	c, err := e.load()
	if err != nil {
		return err
	}
	all := app.NewCollaborations(c, f.data, mailbox.Limits{}, e.commandLog(c))
	if err := f.resolve(e, all, needAgent); err != nil {
		return err
	}
	x, err := all.Open(ctx, f.session)
	if err != nil {
		return err
	}
	var m *mailbox.Member
	if f.agent != "" {
		m, err = x.Enter(ctx, f.agent)
	}
	if err == nil {
		err = do(x, m)
	}
	return errors.Join(err, x.Close(context.WithoutCancel(ctx)))
}

// commandLog is the log of a command that is over at once: what went well is what
// it prints.
func (e *env) commandLog(c *config.Config) *slog.Logger {
	quiet := c.Log
	if quiet.Level == "info" {
		quiet.Level = "warn"
	}
	return e.logger(quiet)
}

// newSignalVerb makes a command of a member.
func newSignalVerb(e *env, cmd *cobra.Command, do func(cmd *cobra.Command, m *mailbox.Member, args []string) error) *cobra.Command {
	var f signalFlags
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.withSession(cmd.Context(), e, true, func(_ *app.Collaboration, m *mailbox.Member) error { return do(cmd, m, args) })
	}
	f.register(cmd)
	return cmd
}

func newSignal(e *env) *cobra.Command {
	var (
		d      mailbox.Draft
		typ    string
		urgent bool
		meta   string
	)
	cmd := newSignalVerb(e, &cobra.Command{
		Use:   "signal TO CONTENT",
		Short: "Send a signal to another agent",
		Long: `Send a signal to an agent of the session, to an agent and all below it (lead reaches
lead.critic), or to all (*). A delegate or urgent signal may wake its recipient.

` + signalsGroup,
		Example: `  ossicle signal lead.critic 'please look at the diff' --type delegate --session 20260821_011758_54e1cab9 --agent lead`,
		Args:    usage(cobra.ExactArgs(2)),
	}, func(cmd *cobra.Command, m *mailbox.Member, args []string) error {
		d.To, d.Content, d.Type = args[0], args[1], mailbox.Type(typ)
		if urgent {
			d.Priority = mailbox.Urgent
		}
		if meta != "" {
			d.Metadata = json.RawMessage(meta)
		}
		r, err := m.Send(cmd.Context(), d)
		if err != nil {
			return err
		}
		if e.json {
			return writeJSON(e.Out, r)
		}
		to := "nobody yet"
		if len(r.Recipients) > 0 {
			to = strings.Join(r.Recipients, ", ")
		}
		if _, err := fmt.Fprintf(e.Out, "%s sent to %s (sequence %d)\n", r.ID, to, r.Sequence); err != nil || len(r.Recipients) > 0 {
			return err
		}
		_, err = fmt.Fprintln(e.Err, mcpserver.UnheardNote(&r))
		return err
	})
	flags := cmd.Flags()
	flags.StringVar(&typ, "type", string(mailbox.Inform), "inform, query, delegate, ack, warn or urgent")
	flags.BoolVar(&urgent, "urgent", false, "make a signal of any type urgent")
	flags.StringVar(&d.ReplyTo, "reply-to", "", "id of the signal that this one answers")
	flags.StringVar(&meta, "metadata", "", "JSON object for programs")
	return cmd
}

func newReadSignals(e *env) *cobra.Command {
	var q mailbox.Selection
	cmd := newSignalVerb(e, &cobra.Command{
		Use:   "read-signals",
		Short: "Print the unread signals of an agent; nothing is marked",
		Args:  usage(cobra.NoArgs),
	}, func(cmd *cobra.Command, m *mailbox.Member, _ []string) error {
		p, err := m.Read(cmd.Context(), q)
		if err != nil {
			return err
		}
		return e.printSignals(&p)
	})
	flags := cmd.Flags()
	flags.BoolVar(&q.All, "all", false, "also those that were acknowledged")
	flags.BoolVar(&q.Sent, "sent", false, "what the agent has sent, with who has read it, instead")
	flags.Int64Var(&q.After, "after", 0, "sequence after which to go on")
	flags.IntVar(&q.Limit, "limit", mailbox.DefaultPage, "signals of a page, 500 at most")
	return cmd
}

func (e *env) printSignals(p *mailbox.Page) error {
	if e.json {
		return writeJSON(e.Out, p)
	}
	var b strings.Builder
	for i := range p.Signals {
		s := &p.Signals[i]
		fmt.Fprintf(&b, "%s  %s\n", s.Time.Local().Format(time.DateTime), printable(signalHead(s)))
		for line := range strings.Lines(s.Content) {
			b.WriteString("  " + printable(strings.TrimSuffix(line, "\n")) + "\n")
		}
	}
	fmt.Fprintf(&b, "%d unread\n", p.Unread)
	if p.Missed > 0 {
		fmt.Fprintf(&b, "%d were removed while the agent was away, unread\n", p.Missed)
	}
	if p.Next > 0 {
		fmt.Fprintf(&b, "more: --after %d\n", p.Next)
	}
	_, err := fmt.Fprint(e.Out, b.String())
	return err
}

// signalHead is all of a signal but what it says.
func signalHead(s *mailbox.Signal) string {
	parts := []string{fmt.Sprintf("%d %s %s %s -> %s", s.Sequence, s.ID, s.Type, s.Sender, s.Recipient)}
	if s.Priority != "" {
		parts = append(parts, string(s.Priority))
	}
	if s.ReplyTo != "" {
		parts = append(parts, "reply to "+s.ReplyTo)
	}
	if s.Read {
		parts = append(parts, "(read)")
	}
	if len(s.ReadBy) > 0 {
		parts = append(parts, "read by "+strings.Join(s.ReadBy, ", "))
	}
	return strings.Join(parts, " ")
}

func newAckSignals(e *env) *cobra.Command {
	return newSignalVerb(e, &cobra.Command{
		Use:   "ack-signals ID...",
		Short: "Mark signals as read: all of them or, if one is not the agent's, none",
		Args:  usage(cobra.MinimumNArgs(1)),
	}, func(cmd *cobra.Command, m *mailbox.Member, ids []string) error {
		fresh, err := m.Ack(cmd.Context(), ids)
		if err != nil {
			return err
		}
		if e.json {
			return writeJSON(e.Out, map[string][]string{"acknowledged": fresh})
		}
		_, err = fmt.Fprintf(e.Out, "%d acknowledged\n", len(fresh))
		return err
	})
}

// errNoSignal ends a wait in which none came.
var errNoSignal = errors.New("no signal came in the time of --timeout")

func newWaitSignals(e *env) *cobra.Command {
	var (
		timeout time.Duration
		after   int64
	)
	cmd := newSignalVerb(e, &cobra.Command{
		Use:   "wait-signals",
		Short: "Wait until there is an unread signal, and print what is unread",
		Long: `Wait until there is an unread signal, and print what is unread; nothing is marked.
It ends with 124 if none comes in the time of --timeout. Nothing is asked for
meanwhile: the kernel tells.`,
		Args: usage(cobra.NoArgs),
	}, func(cmd *cobra.Command, m *mailbox.Member, _ []string) error {
		ctx := cmd.Context()
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, timeout, errNoSignal)
			defer cancel()
		}
		p, err := m.Wait(ctx, after)
		switch {
		case err != nil && cmd.Context().Err() != nil:
			return errInterrupted
		case err != nil && ctx.Err() != nil:
			return errNoSignal
		case err != nil:
			return err
		}
		return e.printSignals(&p)
	})
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait (default: for ever)")
	cmd.Flags().Int64Var(&after, "after", 0, "only signals with a greater sequence")
	return cmd
}
