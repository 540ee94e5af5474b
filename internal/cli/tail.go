package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/sse"
)

const eventsPath = "/v1/events"

// tailFlags are the flags of ossicle tail.
type tailFlags struct {
	daemon   daemonFlags
	topics   []string
	since    string
	cursor   string
	exec     string
	execTime time.Duration
	count    int
}

func newTail(e *env) *cobra.Command {
	f := &tailFlags{}
	cmd := &cobra.Command{
		Use:   "tail [URL]",
		Short: "Follow the event feed, or any stream of server-sent events",
		Long: `Follow the feed of ossicle serve, or the event stream at a URL, across lost
connections: each event is handled at least once, in order. Where events were
lost on the way, an event of the type "gap" says so.

An id of ossicle names the log and the place in it. --since begins behind an id,
and --cursor keeps the id of the last event that was handled in a file, to go on
from there the next time. The command of --exec gets the data of each event on
its standard input, and $OSSICLE_ID and $OSSICLE_TYPE; the next event waits for
it, and if it fails, tail ends, with that event not handled. It goes without --json.

An address that is given as URL gets a token only by --token-file, for it may be
anybody's; one that is given by --url gets $OSSICLE_TOKEN too.`,
		Example: `  ossicle tail --topic incidents
  ossicle tail --topic 'deploy*' --cursor deploys.id --exec ./handle
  ossicle tail https://stream.example/events --json`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			address := ""
			if len(args) > 0 {
				if address = args[0]; address == "" {
					return &usageError{errors.New("the address is empty")}
				}
			}
			return f.run(cmd.Context(), e, address)
		},
	}
	f.daemon.register(cmd.Flags())
	flags := cmd.Flags()
	flags.StringArrayVar(&f.topics, "topic", nil, "only this topic, or those with this beginning: 'build*' (repeatable)")
	flags.StringVar(&f.since, "since", "", "begin behind the event with this id; without it, with what comes next")
	flags.IntVar(&f.count, "count", 0, "end after this many events; 0 goes on until a signal")
	flags.StringVar(&f.cursor, "cursor", "", "file that keeps the id of the last event handled")
	flags.StringVar(&f.exec, "exec", "", "run this shell command for each event, its data on standard input")
	flags.DurationVar(&f.execTime, "exec-time", DefaultExecTime, "end the command after this long")
	return cmd
}

func (f *tailFlags) run(ctx context.Context, e *env, address string) error {
	switch {
	case f.count < 0 || f.execTime <= 0:
		return &usageError{errors.New("--count and --exec-time take positive values")}
	case f.exec != "" && e.json:
		return &usageError{errors.New("--exec and --json exclude each other")}
	}
	for _, topic := range f.topics {
		if _, err := feed.ParseFilter(topic); err != nil {
			return &usageError{fmt.Errorf("--topic %.80q: %w", topic, err)}
		}
	}
	target, token, err := f.daemon.find(ctx, e, address, "")
	if err != nil {
		return err
	}
	if target, err = f.streamURL(target); err != nil {
		return &usageError{err}
	}
	t := &tail{env: e, cursor: f.cursor, left: f.count, address: target, given: token != ""}
	if f.exec != "" {
		t.command = &command{line: f.exec, limit: f.execTime, out: e.Out, err: e.Err}
	}
	from := f.since
	kept, err := readCursor(f.cursor)
	if err == nil {
		err = checkCursor(f.cursor)
	}
	if err != nil {
		return err
	}
	if kept != "" {
		from = kept
	}
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	client, err := sse.NewClient(target, t.handle, &sse.Options{Header: header, LastID: from, Lost: t.lost, HTTP: &http.Client{}})
	if err != nil {
		return &usageError{err}
	}
	t.client = client
	return t.follow(ctx)
}

// streamURL is the address of the stream with the topics that are wanted.
func (f *tailFlags) streamURL(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("read address: %w", err)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = eventsPath
	}
	q := u.Query()
	for _, topic := range f.topics {
		q.Add("topic", topic)
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// tail handles events one after the other.
type tail struct {
	env     *env
	client  *sse.Client
	command *command
	cursor  string
	address string // as it was given or found
	given   bool   // a token was
	left    int    // events to go; 0 is no end
	enough  bool
	done    context.CancelFunc
}

// follow reads the stream until it has handled enough or a signal comes.
func (t *tail) follow(ctx context.Context) error {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	t.done = cancel
	counted := t.left > 0
	err := t.client.Run(run)
	if errors.Is(err, errEnough) {
		err = nil
	}
	err = t.refused(err)
	if refused, ok := errors.AsType[*sse.StatusError](err); ok && refused.Code == http.StatusNoContent {
		err = nil // the server says that nothing more will come
	}
	if err == nil {
		err = t.keep(t.client.LastID())
	}
	if err == nil && counted && t.left > 0 {
		return errInterrupted
	}
	return err
}

// refused says in words what the answer of a server of ours says.
func (t *tail) refused(err error) error {
	refused, ok := errors.AsType[*sse.StatusError](err)
	if !ok {
		return err
	}
	if refused.Code == http.StatusUnauthorized {
		return fmt.Errorf("open stream: %s", refusedToken(t.given, t.address))
	}
	var p httpserver.Problem
	if json.Unmarshal([]byte(refused.Message), &p) != nil || p.Detail == "" {
		return err
	}
	if refused.Code == http.StatusBadRequest {
		return &usageError{fmt.Errorf("open stream: %w", &p)}
	}
	return fmt.Errorf("open stream: %w", &p)
}

// handle prints or runs, and then keeps the id (specification F-25).
func (t *tail) handle(ctx context.Context, event sse.Event) error {
	if t.enough {
		return errEnough
	}
	var err error
	switch {
	case t.command != nil:
		err = t.command.run(ctx, []string{"OSSICLE_ID=" + event.ID, "OSSICLE_TYPE=" + event.Type}, string(event.Data))
	case t.env.json:
		err = t.env.printEventJSON(event)
	default:
		err = t.env.printEvent(event)
	}
	if err == nil {
		err = t.keep(event.ID)
	}
	if err == nil && t.left > 0 {
		if t.left--; t.left == 0 {
			t.enough = true
			t.done()
		}
	}
	return err
}

// eventLine is an event of a stream that is not ours, as --json prints it. Data
// that is JSON stays JSON.
type eventLine struct {
	ID   string          `json:"id,omitempty"`
	Type string          `json:"type"`
	Data json.RawMessage `json:"data,omitempty"`
	Text string          `json:"text,omitempty"` // data that is no JSON
}

// ofFeed reads an event of our own feed, whose data is the whole of it.
func ofFeed(event sse.Event) (feed.Event, bool) {
	var e feed.Event
	at, err := feed.ParsePosition(event.ID)
	if err != nil || event.Type == feed.GapType || json.Unmarshal(event.Data, &e) != nil {
		return e, false
	}
	return e, e.ID == at.ID && e.Epoch == at.Epoch && e.Topic != ""
}

func (e *env) printEventJSON(event sse.Event) error {
	if own, ok := ofFeed(event); ok {
		return writeJSON(e.Out, own)
	}
	line := eventLine{ID: event.ID, Type: event.Type}
	if json.Valid(event.Data) {
		line.Data = event.Data
	} else {
		line.Text = string(event.Data)
	}
	return writeJSON(e.Out, line)
}

// printEvent prints one line: id, topic, type, key, data.
func (e *env) printEvent(event sse.Event) error {
	words := []string{event.ID, event.Type, string(event.Data)}
	if own, ok := ofFeed(event); ok {
		words = []string{event.ID, own.Topic, own.Type, string(own.Data)}
		if own.Key != "" {
			words = slices.Insert(words, 3, own.Key)
		}
	}
	_, err := fmt.Fprintln(e.Out, strings.ReplaceAll(printable(strings.Join(words, "  ")), "\n", "\n    "))
	return err
}

func (t *tail) lost(cause error, wait time.Duration) {
	if request, ok := errors.AsType[*url.Error](cause); ok {
		cause = request.Err // the address may hold a ticket
	}
	t.env.log.LogAttrs(context.Background(), slog.LevelWarn, "no stream, trying again", logattr.Err(cause), logattr.Delay(wait.Round(time.Millisecond)))
}

// keep writes the id of an event that was handled, if one can go on from it.
func (t *tail) keep(id string) error {
	if t.cursor == "" || id == "" || !sse.Resumable(id) {
		return nil
	}
	return writeCursor(t.cursor, id)
}

// readCursor returns the id in a file, "" if there is no file.
func readCursor(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", &usageError{fmt.Errorf("read cursor: %w", err)}
	}
	id := strings.TrimSuffix(string(text), "\n")
	if id == "" || !sse.Resumable(id) {
		return "", &usageError{fmt.Errorf("read cursor: %s does not hold one id; remove it to begin anew", path)}
	}
	return id, nil
}

// checkCursor finds out whether the file can be written before anything happens
// that it should remember.
func checkCursor(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".cursor.*")
	if err != nil {
		return &usageError{fmt.Errorf("keep cursor: %w", err)}
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// writeCursor replaces the file as a whole: whoever reads it sees one id or the
// one before.
func writeCursor(path, id string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".cursor.*")
	if err != nil {
		return fmt.Errorf("keep cursor: %w", err)
	}
	_, err = f.WriteString(id + "\n")
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("keep cursor: %w", err)
	}
	return nil
}
