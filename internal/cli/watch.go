package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/watch"
)

// watchFlags are the flags of ossicle watch.
type watchFlags struct {
	servers  serverFlags
	name     string
	onEvent  string
	state    string
	quiet    time.Duration
	maxWait  time.Duration
	count    int
	exec     string
	execTime time.Duration
	legacy   bool
	inbox    string
	data     string
	wake     wakeFlags
}

func newWatch(e *env) *cobra.Command {
	f := &watchFlags{}
	cmd := &cobra.Command{
		Use:   "watch URI...",
		Short: "Watch resources and print, or run a command for, each notice",
		Long: `Watch resources of MCP servers and print a notice for each burst of changes,
until a signal. The servers push; nothing polls.

A filter is Python that runs once per event, with the event in "event". What it
evaluates to (or prints) is one line of the notice; None drops the event.`,
		Example: `  ossicle watch memo://notes --mcp-stdio 'ossicle memo'
  ossicle watch memo://notes --mcp-http http://127.0.0.1:7718/mcp \
    --on-event 'f"todo is now {event["new"]}" if event["key"] == "todo" else None'
  ossicle watch memo://notes --mcp-config .mcp.json --exec 'claude -p "$(cat)"'`,
		Args: usage(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, uris []string) error { return f.run(cmd.Context(), e, uris) },
	}
	f.servers.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "name of the watch (default: from the URI)")
	flags.StringVar(&f.onEvent, "on-event", "", "filter: Python source, or @FILE")
	flags.StringVar(&f.state, "watch-state", "", "file that keeps the watches; they are restarted from it")
	flags.DurationVar(&f.quiet, "quiet", 0, "a notice leaves this long after its last change (default 3s)")
	flags.DurationVar(&f.maxWait, "max-wait", 0, "or this long after its first, if that is sooner (default 15s)")
	flags.IntVar(&f.count, "count", 0, "end after so many notices")
	flags.StringVar(&f.exec, "exec", "", "run this shell command for each notice, its lines on standard input, $OSSICLE_WATCH and $OSSICLE_URI set")
	flags.DurationVar(&f.execTime, "exec-time", DefaultExecTime, "end the command after this long")
	flags.BoolVar(&f.legacy, "legacy-watch", false, "also watch servers older than MCP 2026-07-28, by resources/subscribe")
	flags.StringVar(&f.inbox, "inbox", "", "keep the notices in the inbox of this agent, for its hook or for --wake, and print them too")
	flags.StringVar(&f.data, "data", "", "data directory of --inbox (default $OSSICLE_HOME)")
	f.wake.register(cmd)
	return cmd
}

func (f *watchFlags) run(ctx context.Context, e *env, uris []string) (err error) {
	requests, err := f.requests(uris)
	if err != nil {
		return &usageError{err}
	}
	if f.quiet < 0 || f.maxWait < 0 || f.count < 0 || f.execTime <= 0 {
		return &usageError{errors.New("--quiet, --max-wait, --count and --exec-time take positive values")}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	out := &noticePrinter{env: e, saved: len(requests) == 0, left: f.count, done: func() { stop(errEnough) }, failed: make(chan struct{})}
	if f.exec != "" {
		out.command = &command{line: f.exec, limit: f.execTime, out: e.Out, err: e.Err}
	}
	done, err := f.deliver(ctx, e, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done(context.WithoutCancel(ctx))) }()
	adjust := func(c *config.Config) { f.adjust(c, len(requests)) }
	return f.servers.withClient(ctx, e, app.ClientOptions{Sink: out, StatePath: f.state, Toolless: true}, adjust, func(client *app.Client) error {
		out.watches = client.Watches
		if err := f.start(ctx, client.Watches, requests); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-out.failed:
			return errWatchesFailed
		}
		if errors.Is(context.Cause(ctx), errEnough) || f.count == 0 {
			return nil
		}
		return errInterrupted
	})
}

// deliver opens the inbox of --inbox and its adapters.
func (f *watchFlags) deliver(ctx context.Context, e *env, out *noticePrinter) (done func(context.Context) error, err error) {
	if f.inbox == "" {
		if len(f.wake.specs) > 0 || f.data != "" {
			return nil, &usageError{errors.New("--wake and --data go with --inbox")}
		}
		return func(context.Context) error { return nil }, nil
	}
	wakers, err := f.wake.wakers(e)
	if err != nil {
		return nil, err
	}
	c, err := e.load()
	if err != nil {
		return nil, err
	}
	d, err := app.NewDelivery(ctx, c, f.data, f.inbox, wakers, e.log)
	if err != nil {
		return nil, err
	}
	out.inbox = d
	return d.Close, nil
}

// errEnough ends a watch that has printed its --count notices.
var errEnough = errors.New("enough notices")

// adjust lays the flags over the configuration. A person who names more
// watches than the limit of an agent means it.
func (f *watchFlags) adjust(c *config.Config, watches int) {
	if f.quiet > 0 {
		c.Watch.Quiet = f.quiet
	}
	if f.maxWait > 0 {
		c.Watch.MaxWait = f.maxWait
	}
	if f.legacy {
		c.Watch.LegacyWatch = true
	}
	if limit := max(c.Watch.Watches, watch.DefaultWatches); watches > limit {
		c.Watch.Watches = watches
	}
}

func (f *watchFlags) requests(uris []string) ([]watch.StartRequest, error) {
	if len(uris) == 0 && f.state == "" {
		return nil, errors.New("give at least one URI; 'ossicle resources' lists what can be watched")
	}
	if f.name != "" && len(uris) != 1 {
		return nil, errors.New("--name goes with exactly one URI")
	}
	source := f.onEvent
	if path, ok := strings.CutPrefix(source, "@"); ok {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read --on-event: %w", err)
		}
		source = string(text)
	}
	var requests []watch.StartRequest
	taken := map[string]bool{}
	for _, uri := range uris {
		name := f.name
		if name == "" {
			name = nameOfURI(uri, taken)
		}
		requests = append(requests, watch.StartRequest{Name: name, URI: uri, OnEvent: source})
	}
	return requests, nil
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// nameOfURI makes a short name that is not taken from the end of a URI.
func nameOfURI(uri string, taken map[string]bool) string {
	last := uri
	if u, err := url.Parse(uri); err == nil {
		last = strings.Trim(u.Host+u.Path+u.Opaque, "/")
		last = last[strings.LastIndexByte(last, '/')+1:]
	}
	name := strings.Trim(notInName.ReplaceAllString(last, "-"), "-.")
	if name == "" {
		name = "watch"
	}
	if len(name) > 40 {
		name = name[:40]
	}
	free := name
	for n := 2; taken[free]; n++ {
		free = fmt.Sprintf("%s-%d", name, n)
	}
	taken[free] = true
	return free
}

func (f *watchFlags) start(ctx context.Context, m *watch.Manager, requests []watch.StartRequest) error {
	if f.state != "" {
		r := m.Restore(ctx)
		if found := len(r.Running) + len(r.Kept) + len(r.Dropped); found == 0 && r.Problem == "" && len(requests) == 0 {
			return &usageError{fmt.Errorf("nothing to watch: %s has no watches; give at least one URI", f.state)}
		}
	}
	for _, r := range requests {
		if _, err := m.Start(ctx, r); err != nil {
			return legacyHint(err)
		}
	}
	return nil
}

// legacyHint tells of the flag that opts in to what the error refuses.
func legacyHint(err error) error {
	if _, ok := errors.AsType[*watch.VersionError](err); ok {
		return fmt.Errorf("%w; --legacy-watch tries resources/subscribe instead", err)
	}
	return err
}

// noticePrinter is the sink of the command line. The engine calls it from one
// goroutine at a time, and not before there is a watch.
type noticePrinter struct {
	env     *env
	watches *watch.Manager
	command *command      // nil prints
	saved   bool          // there are no watches but those of the state file
	inbox   watch.Sink    // gets what happened first; may be nil
	left    int           // notices until done; 0 from the beginning is no limit
	done    func()        // called after the last of them
	failed  chan struct{} // closed when no watch runs any more
	over    bool
}

// Notify implements watch.Sink.
func (p *noticePrinter) Notify(ctx context.Context, n watch.Notice) error {
	if p.over {
		<-ctx.Done() // we are ending: what comes now goes to the log
		return ctx.Err()
	}
	err := p.deliver(ctx, n)
	// Also where that could not be told: a command that watches nothing ends.
	if p.last(n) && !p.running() {
		p.over = true
		close(p.failed)
	}
	if err != nil || n.Kind != watch.KindEvents || p.left == 0 {
		return err
	}
	if p.left--; p.left == 0 {
		p.over = true
		p.done()
	}
	return nil
}

// last reports whether there may be no watch after a notice.
func (p *noticePrinter) last(n watch.Notice) bool {
	return n.Kind == watch.KindFailed || n.Kind == watch.KindRestored && p.saved
}

func (p *noticePrinter) deliver(ctx context.Context, n watch.Notice) error {
	if p.inbox != nil {
		if err := p.inbox.Notify(ctx, n); err != nil {
			return err
		}
	}
	if p.command != nil && n.Kind == watch.KindEvents {
		err := p.command.run(ctx, noticeVariables(n), strings.Join(n.Lines, "\n")+"\n")
		if err != nil {
			p.env.log.LogAttrs(ctx, slog.LevelWarn, "exec failed", logattr.Watch(n.Watch), logattr.Err(err))
		}
		return nil // the notice was handed over; what became of it is the command's
	}
	return p.env.printOne(n)
}

// running reports whether a watch still runs.
func (p *noticePrinter) running() bool {
	for _, s := range p.watches.List() {
		if !s.Failed && !s.RestoreFailed {
			return true
		}
	}
	return false
}

// noticeVariables describe the notice to the command. Environment strings cannot
// hold NUL, which no notice has.
func noticeVariables(n watch.Notice) []string {
	return []string{
		"OSSICLE_WATCH=" + n.Watch,
		"OSSICLE_URI=" + n.URI,
		"OSSICLE_TIME=" + n.Time.UTC().Format(time.RFC3339Nano),
	}
}
