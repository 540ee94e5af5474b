package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/feedserver"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/telemetry"
)

// DefaultListen is where ossicle serve listens.
const DefaultListen = "127.0.0.1:7717"

// daemonServeFlags are the flags of ossicle serve.
type daemonServeFlags struct {
	store   storeFlags
	listen  string
	bus     string
	cert    string
	key     string
	hosts   []string
	origins []string
	gateway bool
}

func newServe(e *env) *cobra.Command {
	f := &daemonServeFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the event feed, and host sessions in the background",
		Long: `Serve the event feed over HTTP and MCP, and host sessions of agents, until a
signal. Commands on this machine find it by the data directory, whose token file
lets them in; others need a token of 'ossicle token create'.

Processes that share a log serve the same feed: give each the same --store and
--bus, and a --data directory of its own.

A session that is started again under its name goes on: its conversation where the
agent can, its watches, its inbox.`,
		Example: `  ossicle serve
  ossicle publish incidents '{"severity":"high"}'
  ossicle tail --topic incidents`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.serve(cmd.Context(), e) },
	}
	f.store.register(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", DefaultListen, "address to serve on")
	flags.StringVar(&f.bus, "bus", "", "how processes on one log hear of each other: memory, postgres, or a redis:// or nats:// URL (default $OSSICLE_BUS, else what goes with the store)")
	flags.StringVar(&f.cert, "tls-cert", "", "serve HTTPS with this certificate file (PEM)")
	flags.StringVar(&f.key, "tls-key", "", "its key file")
	flags.StringArrayVar(&f.hosts, "host", nil, "name under which others know this server (repeatable)")
	flags.BoolVar(&f.gateway, "worker-gateway", false, "take workers of sandboxes in, and start sandboxes; see 'ossicle sandbox'")
	flags.StringArrayVar(&f.origins, "origin", nil, "web origin whose pages may call it, for instance https://board.example (repeatable)")
	return cmd
}

func (f *daemonServeFlags) serve(ctx context.Context, e *env) (err error) {
	c, err := e.load()
	if err != nil {
		return err
	}
	certs, err := f.tls()
	if err != nil {
		return &usageError{err}
	}
	measured, err := telemetry.New(ctx, &telemetry.Options{Logger: e.log})
	if err != nil {
		return &usageError{err}
	}
	defer func() {
		// A collector that is away is no reason to have failed.
		if err := measured.Shutdown(context.WithoutCancel(ctx)); err != nil {
			e.log.LogAttrs(context.WithoutCancel(ctx), slog.LevelWarn, "the last traces are lost", logattr.Err(err))
		}
	}()
	feed, err := app.OpenFeed(ctx, c, &app.FeedOptions{
		Store: f.store.store, Bus: f.bus, Data: f.store.data, Encode: feedserver.Encode, Telemetry: measured, Logger: e.log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, feed.Close(context.WithoutCancel(ctx))) }()
	gateway, stop, err := f.openGateway(ctx, e, c, certs, measured)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	agents, err := app.NewAgents(ctx, c, &app.AgentsOptions{Data: f.store.data, Feed: feed, Sandboxes: gateway, Bridge: bridge(), Shim: relay(), Logger: e.log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agents.Close(context.WithoutCancel(ctx))) }()
	return agents.Serve(ctx, app.ServeOptions{
		Addr: f.listen, TLS: certs, Hosts: f.hosts, Origins: f.origins, Data: f.store.data, Feed: feed, Sandboxes: gateway, Logger: e.log,
		Ready: e.printServing(f.store.data),
	})
}

// openGateway opens the gateway for workers, if this process is to have one.
func (f *daemonServeFlags) openGateway(ctx context.Context, e *env, c *config.Config, certs *tls.Config, measured *telemetry.Telemetry) (*fleet.Fleet, func() error, error) {
	if !f.gateway && !c.Gateway.Enabled {
		return nil, func() error { return nil }, nil
	}
	g, err := app.OpenSandboxes(ctx, c, &fleet.Options{
		Data: f.store.data, TLS: certs, Logger: e.log,
	}, f.store.store, measured)
	if err != nil {
		return nil, nil, err
	}
	return g, func() error { return g.Close(context.WithoutCancel(ctx)) }, nil
}

func (f *daemonServeFlags) tls() (*tls.Config, error) {
	if f.cert == "" && f.key == "" {
		return nil, nil //nolint:nilnil // no TLS is a choice
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
