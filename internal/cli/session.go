package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/watch"
)

func newSession(e *env) *cobra.Command {
	f := &daemonFlags{}
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Use the sessions of ossicle serve, and those of ossicle run --session",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.register(cmd.PersistentFlags())
	cmd.AddCommand(
		newSessionStart(e, f), newSessionList(e, f), newSessionShow(e, f), newSessionPrompt(e, f), newSessionAnswer(e, f),
		newSessionVerb(e, f, "cancel", "cancelled", "End the running turn of a session; its notices wait for the next prompt"),
		newSessionVerb(e, f, "reset", "reset", "End the conversation of a session: the next turn starts afresh"),
		newSessionVerb(e, f, "stop", "stopped", "Stop a session; started again under its name it goes on"),
		newSessionExport(e, f), newSessionReport(e, f), newSessionRemove(e, f),
	)
	return cmd
}

func sessionPath(id, verb string) string {
	path := "/v1/sessions/" + pathSegment(id)
	if verb != "" {
		path += "/" + verb
	}
	return path
}

// with runs do against the process that serves a session.
func (f *daemonFlags) with(ctx context.Context, e *env, id string, mayBeOffline bool, do func(*daemonClient) error) error {
	c, err := f.open(ctx, e, id, mayBeOffline)
	if err != nil {
		return err
	}
	return errors.Join(do(c), c.done())
}

func newSessionStart(e *env, f *daemonFlags) *cobra.Command {
	run := &runFlags{}
	cmd := &cobra.Command{
		Use:     "start NAME",
		Short:   "Start a session in ossicle serve",
		Example: `  ossicle session start home --agent codex-acp --mcp-config .mcp.json --watch memo://notes`,
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.load()
			if err != nil {
				return err
			}
			if run.session = args[0]; run.session == "" {
				return &usageError{errors.New("the name of the session is empty")}
			}
			spec, err := run.spec(e, c)
			if err != nil {
				return err
			}
			return f.with(cmd.Context(), e, "", false, func(client *daemonClient) error {
				var info app.SessionInfo
				if err := client.call(cmd.Context(), http.MethodPost, "/v1/sessions", startRequest(spec), &info); err != nil {
					return err
				}
				return e.printSession(&info)
			})
		},
	}
	run.agent.register(cmd)
	run.servers.register(cmd)
	cmd.Flags().StringArrayVar(&run.watches, "watch", nil, "URI to watch for the agent (repeatable)")
	cmd.Flags().StringVar(&run.watch.onEvent, "on-event", "", "filter of --watch: Python source, or @FILE")
	return cmd
}

// startRequest is a specification as the API takes it: profiles are resolved
// here, by the configuration of the person who asks.
func startRequest(spec *app.AgentSpec) *app.StartRequest {
	p := &spec.Profile
	req := &app.StartRequest{
		ID: spec.ID, Agent: p.Command, Env: p.Env, Dir: p.Dir, Mode: spec.Mode, Policy: string(p.Policy), System: p.System, OnStart: p.OnStart, MidTurn: p.MidTurn,
	}
	if spec.Model.URL != "" {
		req.Model = &app.StartModel{URL: spec.Model.URL, Name: spec.Model.Name, Key: spec.Model.Key}
	}
	for _, s := range spec.Servers {
		req.Servers = append(req.Servers, app.StartServer{
			Name: s.Name, Transport: string(s.Transport), Command: s.Command, Args: s.Args, Env: s.Env, Dir: s.Dir, URL: s.URL, Headers: s.Headers, Attach: string(s.Attach),
		})
	}
	req.Signals, req.Sandbox, req.Passthrough, req.Kind = spec.Signals, spec.Sandbox, spec.Passthrough, spec.Kind
	for _, t := range spec.Topics {
		req.Topics = append(req.Topics, t.Topic+"="+string(t.Policy))
	}
	for _, w := range spec.Watches {
		req.Watches = append(req.Watches, app.StartedWatch(w))
	}
	return req
}

func newSessionList(e *env, f *daemonFlags) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List sessions, running or not", Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := f.sessions(cmd.Context(), e)
			if err != nil {
				return err
			}
			if e.json {
				return writeJSON(e.Out, all)
			}
			if len(all) == 0 {
				_, err := fmt.Fprintln(e.Out, "no sessions")
				return err
			}
			table := newTable(e.Out)
			_, _ = fmt.Fprintln(table, "SESSION\tSTATE\tAGENT\tWAITING\tLAST USED")
			for i := range all {
				s := &all[i]
				_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", s.Meta.ID, sessionState(s), printable(s.Meta.Agent), s.Inputs+s.Notices,
					s.Meta.UpdatedAt.Local().Format(time.DateTime))
			}
			return table.Flush()
		},
	}
}

// sessions asks every process that serves from the data directory, or the store
// where none does. A session that runs somewhere is shown as it is there.
func (f *daemonFlags) sessions(ctx context.Context, e *env) ([]app.SessionInfo, error) {
	c, err := e.load()
	if err != nil {
		return nil, err
	}
	urls := app.FindServers(ctx, f.home(c))
	if f.url != "" {
		urls = []string{f.url}
	}
	all, at := []app.SessionInfo{}, map[string]int{}
	ask := func(client *daemonClient) error {
		var answer struct {
			Sessions []app.SessionInfo `json:"sessions"`
		}
		if err := client.call(ctx, http.MethodGet, "/v1/sessions", nil, &answer); err != nil {
			return err
		}
		for _, s := range answer.Sessions {
			i, known := at[s.Meta.ID]
			switch {
			case !known:
				at[s.Meta.ID] = len(all)
				all = append(all, s)
			case s.Running:
				all[i] = s
			}
		}
		return nil
	}
	if len(urls) == 0 {
		err := f.with(ctx, e, "", true, ask)
		if errors.Is(err, errUnreachable) {
			return all, nil // no store: no sessions
		}
		return all, err
	}
	token, err := f.token(e, c, f.url == "")
	if err != nil {
		return nil, err
	}
	for _, u := range urls {
		if err := ask(newDaemonClient(u, token)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func newSessionShow(e *env, f *daemonFlags) *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show a session: its state, watches, questions and inbox", Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), e, args[0], true, func(c *daemonClient) error {
				var info app.SessionInfo
				if err := c.call(cmd.Context(), http.MethodGet, sessionPath(args[0], ""), nil, &info); err != nil {
					return err
				}
				return e.printSession(&info)
			})
		},
	}
}

// sessionState says how a session is: its state, and what is wrong with it where the
// state alone would hide that.
func sessionState(s *app.SessionInfo) string {
	switch s.State {
	case "starting", "running", "busy", "draining": // it is being tried again
		return s.State
	}
	if s.Trouble == nil {
		return s.State
	}
	word, known := troubleWords[s.Trouble.Kind]
	if !known {
		word = strings.ReplaceAll(printable(string(s.Trouble.Kind)), "_", " ")
	}
	return s.State + ", " + word
}

var troubleWords = map[agent.TroubleKind]string{
	agent.TroubleUnavailable: "agent unavailable",
	agent.TroubleExited:      "agent ended",
	agent.TroubleFailed:      "last turn failed",
	agent.TroubleCutOff:      "last turn cut off",
}

func (e *env) printSession(s *app.SessionInfo) error {
	if e.json {
		return writeJSON(e.Out, s)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", s.Meta.ID, sessionState(s))
	if s.Meta.Agent != "" {
		fmt.Fprintf(&b, ", %s", printable(s.Meta.Agent))
	}
	b.WriteByte('\n')
	if s.Meta.Dir != "" {
		fmt.Fprintf(&b, "directory  %s\n", printable(s.Meta.Dir))
	}
	if t := s.Trouble; t != nil {
		since := ""
		if !t.Since.IsZero() { // it is not known where the beginning of a turn is too far back
			since = fmt.Sprintf(" (since %s)", t.Since.Local().Format(time.DateTime))
		}
		fmt.Fprintf(&b, "trouble    %s%s\n", printable(t.Text), since)
	}
	if s.Inbox != nil {
		fmt.Fprintf(&b, "inbox      %s\n", printable(s.Inbox.String()))
	}
	for _, w := range s.Watches {
		fmt.Fprintf(&b, "watch      %s\n", printable(watchLine(w)))
	}
	for _, q := range s.Asked {
		fmt.Fprintf(&b, "asks       %s: may it %s?\n", q.ID, printable(firstLine(q.Call.Title, 100)))
		for _, o := range q.Options {
			fmt.Fprintf(&b, "           %s  %s\n", printable(o.ID), printable(firstLine(o.Name, 60)))
		}
	}
	_, err := io.WriteString(e.Out, b.String())
	return err
}

// watchLine says in a line what a watch does.
func watchLine(w watch.Status) string {
	line := fmt.Sprintf("%s %s, %s, %s", w.Name, w.URI, counted(w.Events, "event"), counted(w.Notices, "notice"))
	if w.Failed || w.RestoreFailed {
		line += " (does not run: " + w.Error + ")"
	}
	return line
}

func newSessionPrompt(e *env, f *daemonFlags) *cobra.Command {
	var noWait bool
	cmd := &cobra.Command{
		Use: "prompt NAME TEXT", Short: "Say something to a session and print its answer", Args: usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), e, args[0], false, func(c *daemonClient) error {
				var r app.PromptResult
				req := app.PromptRequest{Text: args[1], From: "user", Wait: !noWait}
				if err := c.call(cmd.Context(), http.MethodPost, sessionPath(args[0], "prompt"), req, &r); err != nil {
					return promptError(err)
				}
				switch {
				case e.json:
					return writeJSON(e.Out, r)
				case noWait, r.Suppressed:
					return nil
				}
				_, err := fmt.Fprintln(e.Out, printable(r.Text))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the answer")
	return cmd
}

// promptError says what to do about an agent that could not be started, where its
// error does not.
func promptError(err error) error {
	failed, ok := errors.AsType[*agentError](err)
	if why, start := strings.CutPrefix(err.Error(), "start agent: "); ok && start && !strings.HasPrefix(why, "it was restarted ") {
		failed.advice = "mend that; the next prompt tries again\n"
	}
	return err
}

func newSessionAnswer(e *env, f *daemonFlags) *cobra.Command {
	return &cobra.Command{
		Use: "answer NAME QUESTION OPTION", Short: "Answer a permission request that session show lists", Args: usage(cobra.ExactArgs(3)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), e, args[0], false, func(c *daemonClient) error {
				in := map[string]string{"question": args[1], "option": args[2]}
				return e.printDone(c.call(cmd.Context(), http.MethodPost, sessionPath(args[0], "answer"), in, nil), args[0], "answered")
			})
		},
	}
}

// newSessionVerb makes a command that tells a session to do something.
func newSessionVerb(e *env, f *daemonFlags, verb, done, short string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), e, args[0], false, func(c *daemonClient) error {
				var answer map[string]bool
				err := c.call(cmd.Context(), http.MethodPost, sessionPath(args[0], verb), nil, &answer)
				if err == nil && !answer[done] {
					return e.printDone(nil, args[0], "had nothing to "+verb)
				}
				return e.printDone(err, args[0], done)
			})
		},
	}
}

// printDone says what was done, unless it was not.
func (e *env) printDone(err error, id, done string) error {
	switch {
	case err != nil:
		return err
	case e.json:
		return writeJSON(e.Out, map[string]string{"session": id, "result": done})
	}
	_, err = fmt.Fprintf(e.Out, "%s %s\n", id, done)
	return err
}

func newSessionExport(e *env, f *daemonFlags) *cobra.Command {
	return &cobra.Command{
		Use: "export NAME", Short: "Print the transcript of a session, one JSON object a line", Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), e, args[0], true, func(c *daemonClient) error {
				body, err := c.send(cmd.Context(), http.MethodGet, sessionPath(args[0], "transcript"), nil)
				if err != nil {
					return err
				}
				defer func() { _ = body.Close() }()
				_, err = io.Copy(e.Out, body)
				return err
			})
		},
	}
}

func newSessionRemove(e *env, f *daemonFlags) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Stop a session and forget it: transcript, inbox and watches", Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), e, args[0], true, func(c *daemonClient) error {
				return e.printDone(c.call(cmd.Context(), http.MethodDelete, sessionPath(args[0], ""), nil, nil), args[0], "removed")
			})
		},
	}
}
