package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/app"
)

// storeFlags say which log a command uses.
type storeFlags struct {
	store string
	data  string
}

func (f *storeFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.store, "store", "", "the log: sqlite:PATH or a postgres:// URL (default $OSSICLE_STORE, else feed.db in the data directory)")
	flags.StringVar(&f.data, "data", "", "data directory (default $OSSICLE_HOME)")
}

func newToken(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Give others access to ossicle serve, and take it back",
		Long: `Tokens let programs and people on other machines in, with the rights that they
need and no others. They are kept as hashes beside the log, so that every process
on the same log knows them.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenCreate(e), newTokenList(e), newTokenRevoke(e))
	return cmd
}

// with runs do with the store of tokens, which is made if there is none, but for those
// who only look. Error: app.ErrNoLog.
func (f *storeFlags) with(ctx context.Context, e *env, looks bool, do func(access.Store) error) error {
	c, err := e.load()
	if err != nil {
		return err
	}
	tokens, done, err := app.OpenTokens(ctx, c, &app.FeedOptions{Store: f.store, Data: f.data, Existing: looks, Logger: e.log})
	if err != nil {
		return err
	}
	return errors.Join(do(tokens), done())
}

// tokenFlags are the flags of ossicle token create.
type tokenFlags struct {
	store    storeFlags
	read     []string
	write    []string
	sessions []string
	uris     []string
	tools    []string
	expires  time.Duration
}

func newTokenCreate(e *env) *cobra.Command {
	f := &tokenFlags{}
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token and print it; it cannot be shown again",
		Example: `  ossicle token create dashboard --read 'incidents*' --expires 720h
  ossicle token create ci --write builds`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.create(cmd.Context(), e, args[0]) },
	}
	f.store.register(cmd.Flags())
	flags := cmd.Flags()
	flags.StringArrayVar(&f.read, "read", nil, "topic that may be read, or a beginning: 'build*'; '*' is all (repeatable)")
	flags.StringArrayVar(&f.write, "write", nil, "topic that may be published to, likewise (repeatable)")
	flags.StringArrayVar(&f.sessions, "session", nil, "session that may be used, likewise (repeatable)")
	flags.StringArrayVar(&f.uris, "uri", nil, "further resource that may be read over MCP, likewise (repeatable)")
	flags.StringArrayVar(&f.tools, "tool", nil, "tool that may be called over MCP, likewise (repeatable)")
	flags.DurationVar(&f.expires, "expires", 0, "how long it is good; 0 is until it is revoked")
	return cmd
}

// rights turns patterns of topics into those of what a token may read: a topic is
// read with its state.
func (f *tokenFlags) rights() (access.Rights, error) {
	r := access.Rights{Publish: f.write, Sessions: f.sessions, Tools: f.tools, Topics: f.uris}
	for _, topic := range append(append([]string{}, f.read...), f.write...) {
		if _, err := feed.ParseFilter(topic); err != nil {
			return r, fmt.Errorf("topic %.80q: %w", topic, err)
		}
	}
	for _, topic := range f.read {
		r.Topics = append(r.Topics, feed.TopicURI(topic))
		if topic[len(topic)-1] != '*' {
			r.Topics = append(r.Topics, feed.TopicURI(topic)+feed.StateSuffix)
		}
	}
	return r, r.Check()
}

func (f *tokenFlags) create(ctx context.Context, e *env, name string) error {
	rights, err := f.rights()
	if err != nil {
		return &usageError{err}
	}
	if len(rights.Topics)+len(rights.Publish)+len(rights.Sessions)+len(rights.Tools) == 0 {
		return &usageError{errors.New("the token would be good for nothing: give --read, --write, --session, --uri or --tool")}
	}
	if f.expires < 0 {
		return &usageError{errors.New("--expires takes a positive duration, for instance 720h")}
	}
	var expires time.Time
	if f.expires > 0 {
		expires = time.Now().Add(f.expires)
	}
	record, secret, err := access.New(name, rights, expires)
	if err != nil {
		return &usageError{err}
	}
	return f.store.with(ctx, e, false, func(tokens access.Store) error {
		if err := tokens.Add(ctx, record); err != nil {
			return err
		}
		if e.json {
			return writeJSON(e.Out, struct {
				tokenLine

				Token string `json:"token"`
			}{tokenLineOf(record, time.Now()), secret})
		}
		_, err := fmt.Fprintf(e.Out, "%s\n", secret)
		return err
	})
}

// tokenLine is a record as it is printed.
type tokenLine struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"`
	State   string        `json:"state"` // good, expired, revoked
	Created time.Time     `json:"created"`
	Expires time.Time     `json:"expires,omitzero"`
	Revoked time.Time     `json:"revoked,omitzero"`
	Rights  access.Rights `json:"rights"`
}

func tokenLineOf(t access.Token, now time.Time) tokenLine {
	line := tokenLine{t.ID, t.Name, "good", t.Created, t.Expires, t.Revoked, t.Rights}
	switch {
	case !t.Revoked.IsZero():
		line.State = "revoked"
	case !t.Expires.IsZero() && !now.Before(t.Expires):
		line.State = "expired"
	}
	return line
}

func newTokenList(e *env) *cobra.Command {
	f := &storeFlags{}
	cmd := &cobra.Command{
		Use: "list", Short: "List the tokens that were given out", Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := f.with(cmd.Context(), e, true, func(tokens access.Store) error {
				all, err := tokens.List(cmd.Context())
				if err != nil {
					return err
				}
				return e.printTokens(all)
			})
			if errors.Is(err, app.ErrNoLog) {
				return e.printTokens(nil)
			}
			return err
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (e *env) printTokens(all []access.Token) error {
	lines := []tokenLine{}
	for _, t := range all {
		lines = append(lines, tokenLineOf(t, time.Now()))
	}
	if e.json {
		return writeJSON(e.Out, lines)
	}
	if len(lines) == 0 {
		_, err := fmt.Fprintln(e.Out, "no tokens")
		return err
	}
	table := newTable(e.Out)
	_, _ = fmt.Fprintln(table, "ID\tNAME\tSTATE\tCREATED\tEXPIRES\tREADS\tPUBLISHES")
	for _, l := range lines {
		expires := "never"
		if !l.Expires.IsZero() {
			expires = l.Expires.Local().Format(time.DateTime)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			l.ID, printable(l.Name), l.State, l.Created.Local().Format(time.DateTime), expires, counted(len(l.Rights.Topics), "pattern"), counted(len(l.Rights.Publish), "pattern"))
	}
	return table.Flush()
}

func newTokenRevoke(e *env) *cobra.Command {
	f := &storeFlags{}
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a token; what it has open ends within a minute",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), e, false, func(tokens access.Store) error {
				err := tokens.Revoke(cmd.Context(), args[0], access.Moment(time.Now()))
				if errors.Is(err, access.ErrNotFound) {
					return &usageError{fmt.Errorf("token %.80q: %w; see 'ossicle token list'", args[0], err)}
				}
				if err != nil {
					return err
				}
				if e.json {
					return writeJSON(e.Out, map[string]string{"revoked": args[0]})
				}
				_, err = fmt.Fprintf(e.Out, "revoked %s\n", args[0])
				return err
			})
		},
	}
	f.register(cmd.Flags())
	return cmd
}
