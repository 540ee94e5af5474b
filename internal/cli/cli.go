// Package cli is the command line: flags, printing, exit codes. What a command
// does is done by the rooms; this package parses for them and prints for them.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/version"
)

// Streams are the standard streams of the process. They are files, because
// servers over stdio guard the descriptor and printing asks whether a person
// looks at a terminal.
type Streams struct {
	In, Out, Err *os.File
}

// env is what every command has: the streams and the global flags.
type env struct {
	Streams
	getenv     func(string) (string, bool)
	configFile string
	json       bool
	verbose    bool
	logFormat  string
	log        *slog.Logger // after load
	arg0       string       // how the person called us
}

// Run executes the command line and returns the exit code, see the table in
// exit.go. A cancelled ctx asks for a clean end.
func Run(ctx context.Context, args []string, s Streams, getenv func(string) (string, bool)) int {
	e := &env{Streams: s, getenv: getenv, arg0: os.Args[0]}
	root := newRoot(e)
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	var code *codeError // of a program that has said itself what there is to say, where it is silent
	said := errors.As(err, &code) && code.silent
	end := exitCode(ctx, err)
	// Of a command that a signal ended there is nothing to say, but what went wrong at
	// its end.
	if err != nil && !said && (ctx.Err() == nil || end != exitInterrupted) {
		e.report(err)
	}
	return end
}

func newRoot(e *env) *cobra.Command {
	showVersion := false
	root := &cobra.Command{
		Use:   "ossicle",
		Short: "Ears for LLM agents: changes in MCP servers become bounded, filtered notices",
		Long: `ossicle watches resources of MCP servers and says, by push, what changed:
filtered by your Python, deduplicated, debounced, in bounded words.

Try it:   ossicle demo`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return e.printVersion()
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&showVersion, "version", false, "print the version, as 'ossicle version' does")
	flags := root.PersistentFlags()
	flags.StringVar(&e.configFile, "config", "", "configuration file (default $OSSICLE_CONFIG, else ossicle/config.yaml in the configuration directory)")
	flags.BoolVar(&e.json, "json", false, "print JSON: one object, or one object a line for streams")
	flags.BoolVarP(&e.verbose, "verbose", "v", false, "log every step, not only notices and failures")
	choiceVar(flags, &e.logFormat, "log-format", "format of the log on standard error: text or json", "text", "json")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return checkEmpty(cmd) }
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		newWatch(e), newRun(e), newServe(e), newSession(e), newPublish(e), newTail(e), newTopics(e), newToken(e), newPG(e), newInbox(e), newDigest(e), newDoctor(e), newResources(e), newRead(e), newCall(e), newProbe(e), newShim(e),
		newMemo(e), newFiles(e), newMCP(e), newBridge(e), newMockAgent(e), newSandbox(e), newChannel(e), newWorker(e), newDemo(e), newVersion(e),
	)
	root.AddCommand(signalCommands(e)...)
	return root
}

// flagError is what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	return &usageError{fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
}

// namingFlags name a file, a directory, a process or somebody. An empty value is not
// their default: it is a variable of a script that is not set, and the command would do
// something else than was meant, say keep nothing, or use the data directory of somebody
// else.
var namingFlags = map[string]bool{
	"agent": true, "config": true, "cursor": true, "data": true, "dir": true, "evidence": true, "id": true, "inbox": true, "keep-artifacts": true,
	"listen": true, "mcp-token-file": true, "model": true, "out": true, "profile": true, "sandbox": true, "session": true, "store": true, "bus": true,
	"tls-cert": true, "tls-key": true, "token-file": true, "url": true, "watch-state": true,
}

// checkEmpty refuses an empty value for a flag that names something.
func checkEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && namingFlags[f.Name] && f.Value.String() == "" {
			err = &usageError{fmt.Errorf("--%s: the value is empty; give one, or leave the flag out", f.Name)}
		}
	})
	return err
}

// load reads the configuration and puts the global flags over it.
func (e *env) load() (*config.Config, error) {
	c, err := config.Load(e.configFile, e.getenv)
	if err != nil {
		return nil, &usageError{err}
	}
	if e.logFormat != "" {
		c.Log.Format = e.logFormat
	}
	if e.verbose {
		c.Log.Level = "debug"
	}
	if err := c.Validate(); err != nil {
		return nil, &usageError{err}
	}
	e.log = e.logger(c.Log)
	return c, nil
}

// logger writes to standard error, so that standard output stays the product.
func (e *env) logger(c config.Log) *slog.Logger { return loggerTo(e.Err, c) }

func loggerTo(w io.Writer, c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// usage marks the errors of an argument check as mistakes on the command line, and
// says which arguments there are to be.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		_, wanted, _ := strings.Cut(cmd.Use, " ")
		switch {
		case cmd.HasSubCommands(): // its error names the one that there is not
		case wanted == "":
			err = fmt.Errorf("%s takes no arguments, only flags, and got %.80q", cmd.CommandPath(), args[0])
		default:
			err = fmt.Errorf("%s takes %s, and got %d of these", cmd.CommandPath(), wanted, len(args))
		}
		return &usageError{fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
	}
}

// maxReport bounds the text of an error, in bytes: it may repeat what somebody wrote.
const maxReport = 16 << 10

// shortened is a text of at most maxReport bytes.
func shortened(text string) string {
	if len(text) <= maxReport {
		return text
	}
	return strings.ToValidUTF8(text[:maxReport], "") + "…"
}

// report prints the error that ends the command, in the form that was asked for.
func (e *env) report(err error) {
	var output []string
	advice := ""
	if failed, ok := errors.AsType[*agentError](err); ok {
		output, advice = failed.output, failed.advice
	}
	if e.json {
		_ = writeJSON(e.Err, struct {
			Error  string   `json:"error"`
			Code   int      `json:"code"`
			Output []string `json:"output,omitempty"` // of the agent
		}{shortened(err.Error()), exitCode(context.Background(), err), output})
		return
	}
	_, _ = fmt.Fprintf(e.Err, "%s: %s\n%s%s", version.Name, shortened(err.Error()), said(output), advice)
}

// terminal reports whether a person sees what is written to w.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
