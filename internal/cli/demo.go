package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/mcpserver"
	"github.com/ossicle/ossicle/internal/memo"
	"github.com/ossicle/ossicle/watch"
)

// demoQuiet is the debounce of the demo: short, for somebody looks on.
const demoQuiet = time.Second

func newDemo(e *env) *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: a memo server, a watch on it, a change, the notice",
		Long: `Start a memo server and a watch on it, change a note, and show the notice
arrive. In a terminal the demo goes on until Ctrl-C, so that more notes can be
changed from a second one.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return e.demo(cmd.Context(), addr) },
	}
	cmd.Flags().StringVar(&addr, "http", "127.0.0.1:0", "address of the memo server")
	return cmd
}

func (e *env) demo(ctx context.Context, addr string) (err error) {
	c, err := e.load()
	if err != nil {
		return err
	}
	// The notice itself is on the screen.
	if c.Log.Level == "info" {
		c.Log.Level = "warn"
		e.log = e.logger(c.Log)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server, err := e.startMemo(ctx, addr, filepath.Join(c.Home, "token"))
	if err != nil {
		return err
	}
	defer func() {
		stop()
		err = errors.Join(err, <-server.ended)
	}()
	token, err := httpserver.ReadTokenFile(server.tokenFile)
	if err != nil {
		return err
	}
	notices := make(chan watch.Notice, 1)
	c.Watch.Quiet = demoQuiet
	client, err := app.NewClient(c, []mcpclient.Spec{
		{Name: "memo", URL: server.url, Headers: map[string]string{"Authorization": "Bearer " + token}},
	}, &app.ClientOptions{Logger: e.log, Sink: watch.SinkFunc(func(ctx context.Context, n watch.Notice) error {
		select {
		case notices <- n:
		case <-ctx.Done():
		}
		return nil
	})})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
	return e.playDemo(ctx, client, server, notices)
}

// demoServer is the memo server of the demo.
type demoServer struct {
	url, tokenFile string
	ended          chan error // gets the one result of its Run
}

func (e *env) startMemo(ctx context.Context, addr, tokenFile string) (*demoServer, error) {
	store, err := memo.New(nil)
	if err != nil {
		return nil, err
	}
	h, err := app.NewHost(store, mcpserver.MemoTools(store), &app.HostOptions{Name: "ossicle-memo", Instructions: memoInstructions, Logger: e.log})
	if err != nil {
		return nil, err
	}
	s := &demoServer{tokenFile: tokenFile, ended: make(chan error, 1)}
	ready := make(chan string, 1)
	go func() {
		err := h.ServeHTTP(ctx, app.HTTPOptions{
			Addr: addr, TokenFile: tokenFile, Logger: e.log,
			Ready: func(url string) error { ready <- url; return nil },
		})
		s.ended <- errors.Join(err, h.Close(context.WithoutCancel(ctx)))
	}()
	select {
	case s.url = <-ready:
		return s, nil
	case err := <-s.ended:
		return nil, err
	}
}

// playDemo changes a note and shows what comes of it.
func (e *env) playDemo(ctx context.Context, client *app.Client, server *demoServer, notices <-chan watch.Notice) error {
	say := func(format string, args ...any) {
		if !e.json {
			_, _ = fmt.Fprintf(e.Out, format+"\n", args...)
		}
	}
	say("1. a memo server runs at %s", server.url)
	if _, err := client.Watches.Start(ctx, watch.StartRequest{Name: "notes", URI: "memo://notes"}); err != nil {
		return err
	}
	say("2. a watch listens to memo://notes; nothing polls")
	if _, err := client.Servers.Server("memo").CallTool(ctx, "memo_set", []byte(`{"key":"todo","value":"buy tea"}`)); err != nil {
		return err
	}
	changed := time.Now()
	say("3. somebody sets todo to \"buy tea\"")
	n, err := e.nextNotice(ctx, notices)
	if err != nil {
		return err
	}
	say("4. the notice came %s after the change, of which %s waited for more changes:\n", time.Since(changed).Round(time.Millisecond), demoQuiet)
	if err := e.printOne(n); err != nil || !terminal(e.Out) {
		return err
	}
	say("\nNow change notes yourself, from a second terminal (Ctrl-C ends):\n\n  %s call memo_set key=todo value='drink tea' --mcp-http %s --mcp-token-file %s\n",
		e.program(), server.url, server.tokenFile)
	for {
		select {
		case n := <-notices:
			if err := e.printOne(n); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil // Ctrl-C is how the demo ends
		}
	}
}

func (e *env) nextNotice(ctx context.Context, notices <-chan watch.Notice) (watch.Notice, error) {
	select {
	case n := <-notices:
		return n, nil
	case <-ctx.Done():
		return watch.Notice{}, errInterrupted
	}
}

func (e *env) printOne(n watch.Notice) error {
	if e.json {
		return writeJSON(e.Out, n)
	}
	return printNotice(e.Out, n)
}

// program is how the person called us, for commands to copy.
func (e *env) program() string {
	if len(e.arg0) > 0 && strings.ContainsRune(e.arg0, filepath.Separator) {
		return e.arg0
	}
	return "ossicle"
}
