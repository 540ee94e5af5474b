package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/postgres"
)

func newPG(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pg",
		Short: "Make events of the rows of PostgreSQL tables",
		Long: `Have changes of tables captured by a trigger, which writes them to an outbox in
the transaction that makes them. 'ossicle serve' on the same store moves them into
the feed.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPGInstall(e), newPGUninstall(e), newPGStatus(e))
	return cmd
}

// withPostgres runs do with the database of the store, whose schema is made if there is
// none, but for those who only look. Error: app.ErrNoLog.
func (f *storeFlags) withPostgres(ctx context.Context, e *env, looks bool, do func(*postgres.DB) error) error {
	c, err := e.load()
	if err != nil {
		return err
	}
	db, err := app.OpenPostgres(ctx, c, &app.FeedOptions{Store: f.store, Data: f.data, Existing: looks, Logger: e.log})
	if errors.Is(err, app.ErrNoPostgres) {
		return &usageError{err}
	}
	if err != nil {
		return err
	}
	defer db.Close()
	return pgError(do(db))
}

// pgError marks what the person can mend on the command line.
func pgError(err error) error {
	if errors.Is(err, postgres.ErrNoTable) || errors.Is(err, postgres.ErrNotInstalled) || errors.As(err, new(*feed.InvalidError)) {
		return &usageError{err}
	}
	return err
}

// pgInstallFlags are the flags of ossicle pg install.
type pgInstallFlags struct {
	store   storeFlags
	capture postgres.Capture
	print   bool
}

func newPGInstall(e *env) *cobra.Command {
	f := &pgInstallFlags{}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Have the changes of a table captured, or change how",
		Long: `Install a trigger on a table, and the outbox if there is none yet. It takes a
short moment in which nobody writes to the table, and the role must own it. A
writer's transaction never fails because of the trigger.

The data of an event is {"op","table","new","old"}; its type is the operation.`,
		Example: `  ossicle pg install --store postgres://localhost/shop --table incidents --columns id,severity,status
  ossicle pg install --table orders --columns id,state --on update --topic order-states --print`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), e) },
	}
	f.store.register(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&f.capture.Table, "table", "", "the table, with its schema where there is need")
	flags.StringSliceVar(&f.capture.Columns, "columns", nil, "the columns to tell")
	flags.StringSliceVar(&f.capture.On, "on", nil, "the changes to tell: insert, update, delete (default all)")
	flags.StringVar(&f.capture.Topic, "topic", "", "topic of the events (default the table's name in lower case)")
	flags.StringSliceVar(&f.capture.Key, "key", nil, "columns that the key of an event is made of (default the primary key)")
	flags.BoolVar(&f.capture.Silent, "silent", false, "do not ring: for writers that use PREPARE TRANSACTION; their events come later")
	flags.BoolVar(&f.print, "print", false, "print the SQL and change nothing")
	return cmd
}

func (f *pgInstallFlags) run(ctx context.Context, e *env) error {
	if f.capture.Table == "" || len(f.capture.Columns) == 0 {
		return &usageError{errors.New("give --table and --columns")}
	}
	if f.print {
		c, err := e.load()
		if err != nil {
			return err
		}
		script, err := app.CaptureScript(ctx, c, &app.FeedOptions{Store: f.store.store, Data: f.store.data, Logger: e.log}, f.capture)
		if errors.Is(err, app.ErrNoPostgres) {
			return &usageError{err}
		}
		if err != nil {
			return pgError(err)
		}
		_, err = fmt.Fprintln(e.Out, strings.TrimRight(script, "\n"))
		return err
	}
	return f.store.withPostgres(ctx, e, false, func(db *postgres.DB) error {
		got, err := db.Install(ctx, f.capture)
		if err != nil {
			return err
		}
		return e.printCaptures(got)
	})
}

func newPGUninstall(e *env) *cobra.Command {
	f, table, all := &storeFlags{}, "", false
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "End the capture of a table; its events stay",
		Long: `End the capture of a table: its events, and rows that wait, stay. With --all take
everything out of the database that ossicle has put there: triggers, outbox, the
log, tokens, signals and the records of sandboxes, which are the schema "ossicle".`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (table == "") != all {
				return &usageError{errors.New("give --table, or --all")}
			}
			// Where there is nothing, nothing is made; what is of an older version is
			// brought up to date.
			end := func(db *postgres.DB) error { return e.uninstall(cmd.Context(), db, table) }
			err := f.withPostgres(cmd.Context(), e, true, end)
			if errors.Is(err, postgres.ErrOlder) {
				err = f.withPostgres(cmd.Context(), e, false, end)
			}
			if errors.Is(err, app.ErrNoLog) {
				return &usageError{fmt.Errorf("nothing is captured: %w", err)}
			}
			return err
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVar(&table, "table", "", "the table, with its schema where there is need")
	cmd.Flags().BoolVar(&all, "all", false, "everything, the log with its events included")
	return cmd
}

// uninstall ends the capture of a table, or without one removes everything.
func (e *env) uninstall(ctx context.Context, db *postgres.DB, table string) error {
	if table == "" {
		if err := db.Remove(ctx); err != nil {
			return err
		}
		return e.printUninstalled("the log and all captures")
	}
	if err := db.Uninstall(ctx, table); err != nil {
		return err
	}
	return e.printUninstalled(table)
}

func (e *env) printUninstalled(what string) error {
	if e.json {
		return writeJSON(e.Out, map[string]string{"uninstalled": what})
	}
	_, err := fmt.Fprintf(e.Out, "removed: %s\n", printable(what))
	return err
}

// pgStatus is what ossicle pg status prints.
type pgStatus struct {
	Tables     []postgres.Captured `json:"tables"`
	LagRows    int64               `json:"lag_rows"`
	LagSeconds float64             `json:"lag_seconds"`
	// Estimated: there are many rows, about as many as LagRows.
	Estimated bool  `json:"lag_estimated,omitzero"`
	Bytes     int64 `json:"outbox_bytes"` // on disk
}

func newPGStatus(e *env) *cobra.Command {
	f := &storeFlags{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List the captured tables, and what waits in the outbox",
		Long: `List the captured tables, and how many rows wait in the outbox, for how long, and
what it takes on disk. More than 10,000 rows are estimated.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := f.withPostgres(cmd.Context(), e, true, func(db *postgres.DB) error {
				tables, err := db.Captures(cmd.Context())
				if err != nil {
					return err
				}
				lag, err := db.Outbox(nil).Lag(cmd.Context())
				if err != nil {
					return err
				}
				return e.printPGStatus(tables, lag)
			})
			if errors.Is(err, app.ErrNoLog) {
				return e.printPGStatus([]postgres.Captured{}, postgres.Lag{})
			}
			return err
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (e *env) printPGStatus(tables []postgres.Captured, lag postgres.Lag) error {
	if e.json {
		return writeJSON(e.Out, pgStatus{tables, lag.Rows, lag.Age.Seconds(), lag.Estimated, lag.Bytes})
	}
	if err := e.printCaptures(tables...); err != nil {
		return err
	}
	about := ""
	if lag.Estimated {
		about = "about "
	}
	_, err := fmt.Fprintf(e.Out, "outbox: %s%s, the oldest for %.1f s; it takes %.1f MiB on disk\n",
		about, counted(lag.Rows, "row", "waits", "wait"), lag.Age.Seconds(), float64(lag.Bytes)/(1<<20))
	return err
}

func (e *env) printCaptures(all ...postgres.Captured) error {
	if e.json {
		return writeJSON(e.Out, all)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(e.Out, "no tables are captured")
		return err
	}
	table := newTable(e.Out)
	_, _ = fmt.Fprintln(table, "TABLE\tTOPIC\tON\tCOLUMNS\tKEY\tPROBLEM")
	for _, c := range all {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", printable(c.Table), c.Topic, strings.Join(c.On, ","),
			printable(strings.Join(c.Columns, ",")), printable(strings.Join(c.Key, "/")), printable(c.Problem))
	}
	return table.Flush()
}
