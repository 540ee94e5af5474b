package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/mcpserver"
)

// sourceFlags say how a source server is reached: over stdio unless --http is
// given.
type sourceFlags struct {
	http   string
	noAuth bool
}

func (f *sourceFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.http, "http", "", "serve Streamable HTTP on this address, for instance 127.0.0.1:7718, instead of stdio")
	flags.BoolVar(&f.noAuth, "no-auth", false, "with --http on a loopback address: ask for no token")
}

// serve serves the host until the peer leaves or a signal comes.
func (f *sourceFlags) serve(ctx context.Context, e *env, h *app.Host) (err error) {
	defer func() { err = errors.Join(err, h.Close(context.WithoutCancel(ctx))) }()
	if f.http != "" {
		return f.serveHTTP(ctx, e, h)
	}
	out, err := mcpserver.GuardStdout()
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	err = h.ServeStdio(ctx, e.In, out)
	if ctx.Err() != nil {
		return nil // a signal is how a server is told to end
	}
	return err
}

func (f *sourceFlags) serveHTTP(ctx context.Context, e *env, h *app.Host) error {
	c, err := e.load()
	if err != nil {
		return err
	}
	token := filepath.Join(c.Home, "token")
	return h.ServeHTTP(ctx, app.HTTPOptions{
		Addr: f.http, NoAuth: f.noAuth, TokenFile: token, Logger: e.log,
		Ready: func(url string) error { return e.printReady(url, f.noAuth, token) },
	})
}

// printReady tells where the server is and how to get in.
func (e *env) printReady(url string, noAuth bool, tokenFile string) error {
	if noAuth {
		tokenFile = ""
	}
	if e.json {
		return writeJSON(e.Out, struct {
			URL       string `json:"url"`
			TokenFile string `json:"token_file,omitempty"`
		}{url, tokenFile})
	}
	flags := "--mcp-http " + url
	if tokenFile != "" {
		flags += " --mcp-token-file " + tokenFile
	}
	_, err := fmt.Fprintf(e.Out, "serving %s\ntry: ossicle resources %s\n", url, flags)
	return err
}
