package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/shim"
)

// Exit codes of shells for a command that could not be run.
const (
	exitNotRun   = 126
	exitNotFound = 127
)

// shimFlags are the flags of ossicle shim.
type shimFlags struct {
	url, listen, name, evidence, dir string
}

func newShim(e *env) *cobra.Command {
	f := &shimFlags{}
	cmd := &cobra.Command{
		Use:   "shim -- COMMAND [ARG...] | --url URL",
		Short: "Stand between a host and an MCP server, and write down what the host does with it",
		Long: `Stand between any host and any MCP server, pass every frame unchanged, and append
to a file what the host does with the server: connects, lists its tools, calls one,
gets an error. Names, counts, codes and times are written; contents are not.

After -- give the command of a server on standard input and output, and put all of
this where the host's configuration has the command: standard error and the exit
code are passed on too. With --url the server is on HTTP: its URL, with this
address in place of the server's, is printed, and is for the host's
configuration.`,
		Example: `  ossicle shim --evidence github.jsonl -- npx -y some-mcp-server
  ossicle shim --evidence docs.jsonl --url https://mcp.example/mcp --listen 127.0.0.1:7790`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, e, args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "URL of a server on HTTP")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:0", "loopback address for --url")
	flags.StringVar(&f.name, "name", "", "name of the server in the evidence (default: its command or host)")
	flags.StringVar(&f.dir, "dir", "", "working directory of the command (default: this one)")
	flags.StringVar(&f.evidence, "evidence", "", "file to append to, one JSON object a line")
	return cmd
}

func (f *shimFlags) run(cmd *cobra.Command, e *env, args []string) (err error) {
	switch {
	case f.url == "" && (len(args) == 0 || cmd.ArgsLenAtDash() != 0):
		return &usageError{errors.New("give a command after --, or --url")}
	case f.url != "" && len(args) > 0:
		return &usageError{errors.New("give a command, or --url, not both")}
	}
	if _, err := e.load(); err != nil {
		return err
	}
	o := app.ShimOptions{Name: f.name, Dir: f.dir, Logger: e.log}
	if f.url == "" {
		o.To, _ = e.getenv(app.EnvShim)
	}
	if f.evidence != "" {
		file, ferr := os.OpenFile(f.evidence, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if ferr != nil {
			return &usageError{fmt.Errorf("--evidence: %w", ferr)}
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		o.Evidence = file
	}
	if f.url != "" {
		err := app.ShimHTTP(cmd.Context(), f.url, f.listen, e.shimReady, o)
		if errors.Is(err, shim.ErrTarget) || errors.Is(err, app.ErrNotLoopback) {
			return &usageError{err}
		}
		return err
	}
	return shimEnded(app.ShimStdio(cmd.Context(), args, e.In, e.Out, e.Err, o))
}

// shimEnded gives the exit code of the server, or that of a shell for one that could
// not be started.
func shimEnded(err error) error {
	code, ended := programCode(err)
	switch {
	case ended:
		return &codeError{code: code, reason: "the server failed", silent: true}
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return &codeError{code: exitNotFound, reason: err.Error()}
	case errors.Is(err, fs.ErrPermission):
		return &codeError{code: exitNotRun, reason: err.Error()}
	}
	return err
}

func (e *env) shimReady(url string) error {
	if e.json {
		return writeJSON(e.Out, struct {
			URL string `json:"url"`
		}{url})
	}
	_, err := io.WriteString(e.Out, printable(url)+"\n")
	return err
}
