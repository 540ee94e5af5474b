package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/teardown"
	"github.com/ossicle/ossicle/internal/wake"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/watch"
)

// Environment variables of adapters, for what must not stand on a command line.
const (
	EnvOpenCodePassword = "OPENCODE_SERVER_PASSWORD"
	EnvWebhookSecret    = "OSSICLE_WEBHOOK_SECRET" //nolint:gosec // a name
)

// WakerKinds are the forms that ParseWaker reads, for help texts.
const WakerKinds = "exec:COMMAND, codex:THREAD, codex-queue:THREAD, opencode:URL/SESSION, agentapi:URL, webhook:URL"

// ParseWaker reads the name of an adapter with its target, as a person writes
// it. split takes a command line apart.
func ParseWaker(text string, split func(string) ([]string, error), getenv func(string) (string, bool)) (notice.Waker, error) {
	kind, target, _ := strings.Cut(text, ":")
	if target == "" {
		return nil, fmt.Errorf("read adapter %q: the forms are %s", text, WakerKinds)
	}
	switch kind {
	case "exec":
		words, err := split(target)
		if err != nil || len(words) == 0 {
			return nil, fmt.Errorf("read adapter %q: it is no command line", text)
		}
		return wake.NewExec(words, nil), nil
	case "codex":
		return wake.NewCodex(target, nil), nil
	case "codex-queue":
		return wake.NewCodex(target, &wake.CodexOptions{Queue: true}), nil
	case "opencode":
		return parseOpenCode(text, target, getenv)
	case "agentapi":
		return wake.NewAgentAPI(target)
	case "webhook":
		secret, _ := getenv(EnvWebhookSecret)
		if secret == "" {
			return nil, fmt.Errorf("read adapter %q: set %s to the secret that signs", text, EnvWebhookSecret)
		}
		return wake.NewWebhook(target, strings.Fields(secret), nil)
	}
	return nil, fmt.Errorf("read adapter %q: the forms are %s", text, WakerKinds)
}

func parseOpenCode(text, target string, getenv func(string) (string, bool)) (notice.Waker, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("read adapter %q: the form is opencode:http://HOST:PORT/SESSION", text)
	}
	session := strings.Trim(u.Path, "/")
	if session == "" || strings.Contains(session, "/") {
		return nil, fmt.Errorf("read adapter %q: the form is opencode:http://HOST:PORT/SESSION", text)
	}
	u.Path = ""
	password, _ := getenv(EnvOpenCodePassword)
	return wake.NewOpenCode(u.String(), session, &wake.OpenCodeOptions{Password: password})
}

// Delivery is the inbox of one agent that somebody else started, with the
// adapters that reach it.
type Delivery struct {
	Inbox *notice.Inbox

	sink *inboxSink
	down teardown.Stack
}

// NewDelivery opens the store, makes the agent known, and delivers to it by the
// adapters, in their order. Without adapters notices wait for a hook or a tool
// that fetches them. The caller closes it.
func NewDelivery(ctx context.Context, c *config.Config, data, agent string, wakers []notice.Waker, log *slog.Logger) (*Delivery, error) {
	if err := notice.CheckAgent(agent); err != nil {
		return nil, err
	}
	db, err := openStore(ctx, c, data)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Delivery{Inbox: notice.New(db.Notices(), &notice.Options{Logger: log})}
	d.sink = &inboxSink{inbox: d.Inbox, agent: agent, log: log}
	d.down.Push("store", storeBudget, func(context.Context) error { return db.Close() })
	routes := make([]notice.Route, len(wakers))
	for i, w := range wakers {
		routes[i] = notice.Route{Waker: w}
	}
	attach := d.Inbox.Register
	if len(routes) > 0 {
		attach = func(ctx context.Context, agent string) error { return d.Inbox.Attach(ctx, agent, routes...) }
	}
	if err := attach(ctx, agent); err != nil {
		return nil, errors.Join(err, d.down.Run(context.WithoutCancel(ctx)))
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- d.Inbox.Run(run) }()
	d.down.Push("delivery", serverBudget, func(context.Context) error {
		stop()
		return <-ended
	})
	return d, nil
}

// Notify implements watch.Sink: what a watch says is on disk when it returns.
func (d *Delivery) Notify(ctx context.Context, n watch.Notice) error { return d.sink.Notify(ctx, n) }

// Close ends the delivery. What was not shown stays in the inbox.
func (d *Delivery) Close(ctx context.Context) error { return d.down.Run(ctx) }
