package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/agent"
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
		Short: "See it work: a memo server, an agent with a watch on it, a change, the notice, the agent's answer",
		Long: `Start a memo server and an agent that watches it, change a note, and show the
notice arrive and become a turn of the agent. The agent follows a script and needs
no model. In a terminal the demo goes on until Ctrl-C, so that more notes can be
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
	data, err := os.MkdirTemp("", "ossicle-demo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.Watch.Quiet = demoQuiet
	agents, err := app.NewAgents(ctx, c, &app.AgentsOptions{Data: data, Logger: e.log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agents.Close(context.WithoutCancel(ctx))) }()
	one, err := agents.Start(ctx, app.AgentSpec{
		ID: "demo", Profile: agent.Profile{Command: []string{self, "mock-agent"}, Dir: data},
		Servers: []mcpclient.Spec{{Name: "memo", URL: server.url, Headers: map[string]string{"Authorization": "Bearer " + token}}},
		Watches: []watch.StartRequest{{Name: "notes", URI: "memo://notes"}},
	})
	if err != nil {
		return err
	}
	return e.playDemo(ctx, one, server)
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
func (e *env) playDemo(ctx context.Context, one *app.Agent, server *demoServer) error {
	say := func(format string, args ...any) {
		if !e.json {
			_, _ = fmt.Fprintf(e.Out, format+"\n", args...)
		}
	}
	sub := one.Session.Subscribe()
	defer sub.Close()
	say("1. a memo server runs at %s", server.url)
	say("2. an agent, which follows a script, has a watch on memo://notes; nothing polls")
	if _, err := one.Client.Servers.Server("memo").CallTool(ctx, "memo_set", []byte(`{"key":"todo","value":"buy tea"}`)); err != nil {
		return err
	}
	changed := time.Now()
	say("3. somebody sets todo to \"buy tea\"")
	for said := false; !said || terminal(e.Out); {
		u, err := nextUpdate(ctx, sub)
		switch {
		case err != nil && said:
			return nil // Ctrl-C is how the demo ends
		case err != nil:
			return err
		case u.Event == agent.EventNoticeQueued:
			if !said {
				say("4. the notice came %s after the change, of which %s waited for more changes:\n", time.Since(changed).Round(time.Millisecond), demoQuiet)
			}
			err = e.printOne(watch.Notice{Watch: u.Name, URI: u.URI, Kind: watch.KindEvents, Lines: strings.Split(u.Text, "\n"), Time: u.Time.UTC()})
		case u.Event == agent.EventReply:
			if !said {
				say("\n5. it became a turn of the agent, which answers:\n")
			}
			err = e.printReply(u)
			if !said && terminal(e.Out) {
				say("\nNow change notes yourself, from a second terminal (Ctrl-C ends):\n\n  %s call memo_set key=todo value='drink tea' --mcp-http %s --mcp-token-file %s\n",
					e.program(), server.url, server.tokenFile)
			}
			said = true
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nextUpdate waits for what happens next in a session.
func nextUpdate(ctx context.Context, sub *agent.Subscription) (agent.Update, error) {
	select {
	case u, ok := <-sub.C:
		if !ok {
			return u, errSessionEnded
		}
		return u, nil
	case <-ctx.Done():
		return agent.Update{}, errInterrupted
	}
}

func (e *env) printReply(u agent.Update) error {
	if u.Error != "" {
		return &agentError{err: errors.New(u.Error)}
	}
	if e.json {
		return writeJSON(e.Out, struct {
			Reply string    `json:"reply"`
			Time  time.Time `json:"time"`
		}{u.Text, u.Time.UTC()})
	}
	_, err := fmt.Fprintf(e.Out, "  %s\n", printable(u.Text))
	return err
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
