package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/filelock"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/internal/teardown"
	"github.com/ossicle/ossicle/watch"
)

// connectTime bounds one connection: a server that is fetched when it is first
// run ("npx -y …") takes its time.
const connectTime = time.Minute

// Budgets of the teardown.
const (
	consentBudget = time.Second
	watchesBudget = 4 * time.Second
	pythonBudget  = 4 * time.Second
	serversBudget = 8 * time.Second
)

// Client is what listens: connections to MCP servers, and the watch engine over
// them.
type Client struct {
	Servers *mcpclient.Pool
	Watches *watch.Manager

	python *interpreter
	down   teardown.Stack
}

// ClientOptions refine a Client. The zero value is a client that lists, reads
// and calls.
type ClientOptions struct {
	// Sink receives the notices of watches. Nil discards them.
	Sink watch.Sink
	// StatePath is the file that keeps watches over restarts; empty keeps none.
	StatePath string
	// Toolless: whoever gets the notices cannot call watch_start and watch_stop.
	Toolless bool
	// Authorize shows a person the URL at which to authorize us at a server that
	// asks for OAuth. Nil means that such servers refuse us.
	Authorize func(server, url string)
	// Logger takes the log. Nil discards.
	Logger *slog.Logger
}

// NewClient builds a client of the given servers. It connects to none yet. The
// caller closes it.
func NewClient(c *config.Config, servers []mcpclient.Spec, o *ClientOptions) (*Client, error) {
	if o == nil {
		o = &ClientOptions{}
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	sink := o.Sink
	if sink == nil {
		sink = watch.SinkFunc(func(context.Context, watch.Notice) error { return nil })
	}
	client := &Client{}
	if err := client.hold(o.StatePath); err != nil {
		return nil, err
	}
	opts := &mcpclient.Options{LegacyWatch: c.Watch.LegacyWatch, ConnectTimeout: connectTime, Logger: log}
	if o.Authorize != nil {
		asking, err := newConsent(context.Background(), o.Authorize)
		if err != nil {
			return nil, errors.Join(err, client.down.Run(context.Background()))
		}
		client.down.Push("authorization", consentBudget, asking.close)
		opts.OAuth, opts.ConnectTimeout = asking.handler, personTime
	}
	pool, err := mcpclient.NewPool(servers, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("configure servers: %w", err), client.down.Run(context.Background()))
	}
	client.Servers = pool
	client.down.Push("servers", serversBudget, func(context.Context) error { pool.Close(); return nil })

	engine := &interpreter{c: c.Python, log: log}
	client.python = engine
	client.down.Push("python", pythonBudget, func(context.Context) error { return engine.Close() })

	client.Watches = watch.NewManager(ports(pool), engine, sink, &watch.Options{
		Logger:    log,
		Limits:    limits(c.Watch),
		StatePath: o.StatePath,
		ReadOnly:  readOnly(c.Watch.FilterTools),
		Toolless:  o.Toolless,
	})
	client.down.Push("watches", watchesBudget, func(context.Context) error { return client.Watches.Close() })
	return client, nil
}

// StateInUseError says that another process keeps its watches in a file. Each
// would write over what the other has.
type StateInUseError struct{ Path string }

func (e *StateInUseError) Error() string {
	return fmt.Sprintf("keep watches in %s: another process does; end it, or name another file", e.Path)
}

// hold keeps the file with the watches for this client alone.
func (c *Client) hold(path string) error {
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keep watches: %w", err)
	}
	release, err := filelock.Hold(path + ".lock")
	if errors.Is(err, filelock.ErrHeld) {
		return &StateInUseError{path}
	}
	if err != nil {
		return fmt.Errorf("keep watches: %w", err)
	}
	c.down.Push("state", consentBudget, func(context.Context) error { release(); return nil })
	return nil
}

// Close ends the watches, the interpreter and the connections, in this order,
// and waits for them within their budgets.
func (c *Client) Close(ctx context.Context) error { return c.down.Run(ctx) }

func limits(w config.Watch) watch.Limits {
	return watch.Limits{
		Watches: w.Watches, Quiet: w.Quiet, MaxWait: w.MaxWait, Lines: w.Lines, Events: w.Events,
		FilterTime: w.FilterTime, FilterCalls: w.FilterCalls,
	}
}

// ports are the servers as the watch engine sees them.
func ports(pool *mcpclient.Pool) []watch.Server {
	var servers []watch.Server
	for _, s := range pool.Servers() {
		servers = append(servers, s)
	}
	return servers
}

// readOnly decides what filters may call: tools that say that they only read,
// and those that a person has named as "server/tool".
func readOnly(named []string) func(string, watch.Tool) bool {
	return func(server string, t watch.Tool) bool {
		return t.ReadOnly || slices.Contains(named, server+"/"+t.Name)
	}
}
