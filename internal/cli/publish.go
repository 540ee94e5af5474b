package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/jsonx"
)

// publishFlags are the flags of ossicle publish.
type publishFlags struct {
	daemon      daemonFlags
	kind        string
	key         string
	idempotency string
}

func newPublish(e *env) *cobra.Command {
	f := &publishFlags{}
	cmd := &cobra.Command{
		Use:   "publish TOPIC JSON|-",
		Short: "Publish events to the feed of ossicle serve",
		Long: `Publish one event with the given data, or with "-" one event for each JSON value
on standard input, as they come. The ids are printed when the events are on disk.

A repetition with the same --idempotency-key publishes nothing and prints the ids
of the first.`,
		Example: `  ossicle publish incidents --type opened --key INC-7 '{"severity":"high"}'
  tail -F app.jsonl | ossicle publish app-log -`,
		Args: usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), e, args[0], args[1]) },
	}
	f.daemon.register(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&f.kind, "type", "", "type of the event (default "+feed.DefaultType+")")
	flags.StringVar(&f.key, "key", "", "what the event is about; the topic's state keeps the latest event of each key")
	flags.StringVar(&f.idempotency, "idempotency-key", "", "publish only once, however often this is repeated")
	return cmd
}

// published is an event on its way to the API.
type published struct {
	Type string          `json:"type,omitempty"`
	Key  string          `json:"key,omitempty"`
	Data json.RawMessage `json:"data"`
}

func (f *publishFlags) run(ctx context.Context, e *env, topic, data string) error {
	if err := feed.CheckTopic(topic); err != nil {
		return &usageError{fmt.Errorf("topic %.80q: %w", topic, err)}
	}
	if err := f.check(); err != nil {
		return &usageError{err}
	}
	client, err := f.daemon.client(ctx, e)
	if err != nil {
		return err
	}
	path := "/v1/topics/" + url.PathEscape(topic) + "/events"
	var body io.Reader
	kind := "application/json"
	bad := func() error { return nil }
	if data == "-" {
		pipe, found, stop := f.stream(ctx, e.In)
		bad = found
		defer stop()
		body, kind = pipe, "application/x-ndjson"
	} else {
		line, err := f.event(jsontext.Value(data))
		if err != nil {
			return err
		}
		body = bytes.NewReader(line)
	}
	header := http.Header{"Content-Type": {kind}}
	if f.idempotency != "" {
		header.Set("Idempotency-Key", f.idempotency)
	}
	answer, err := client.sendBody(ctx, http.MethodPost, path, header, body)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	return errors.Join(e.printReceipts(ctx, answer), bad())
}

// check refuses what would arrive as something else: JSON mends broken UTF-8, and a
// header has no blanks around its value.
func (f *publishFlags) check() error {
	for _, flag := range [][2]string{{"--type", f.kind}, {"--key", f.key}, {"--idempotency-key", f.idempotency}} {
		if !utf8.ValidString(flag[1]) {
			return fmt.Errorf("%s %.80q: it is no UTF-8", flag[0], flag[1])
		}
	}
	if k := f.idempotency; strings.TrimSpace(k) != k || strings.ContainsFunc(k, unicode.IsControl) {
		return fmt.Errorf("--idempotency-key %.80q: control characters, and blanks around it, are not allowed", k)
	}
	return nil
}

// event is the line of one event.
func (f *publishFlags) event(data jsontext.Value) ([]byte, error) {
	if err := data.Compact(); err != nil {
		return nil, &usageError{fmt.Errorf("read event: %s", jsonx.Explain(err))}
	}
	line, err := json.Marshal(published{f.kind, f.key, json.RawMessage(data)})
	if err != nil {
		return nil, fmt.Errorf("write event: %w", err)
	}
	return append(line, '\n'), nil
}

// stream turns the JSON values of in into lines as they come. bad is what was
// wrong with a value, once the lines have ended: those before it are published.
// stop ends the stream where the request ended first, as ctx does, for whose end the
// request would wait; what reads in ends with its next value or its end.
func (f *publishFlags) stream(ctx context.Context, in io.Reader) (lines io.Reader, bad func() error, stop func()) {
	r, w := io.Pipe()
	found := make(chan error, 1)
	go func() {
		err := f.lines(in, w)
		found <- err
		_ = w.Close()
	}()
	bad = func() error {
		select {
		case err := <-found:
			return err
		default:
			return nil
		}
	}
	release := context.AfterFunc(ctx, func() { _ = r.CloseWithError(ctx.Err()) })
	return r, bad, func() {
		release()
		_ = r.Close()
	}
}

// lines writes an event for each value, until their end or the first that is none.
func (f *publishFlags) lines(in io.Reader, to io.Writer) error {
	values := jsontext.NewDecoder(in)
	for {
		v, err := values.ReadValue()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &usageError{fmt.Errorf("read standard input: %s", jsonx.Explain(err))}
		}
		line, err := f.event(v.Clone())
		if err != nil {
			return err
		}
		if _, err := to.Write(line); err != nil {
			return nil //nolint:nilerr // the request has ended, and says why
		}
	}
}

// printReceipts prints where the events stand, until the answer or ctx ends.
func (e *env) printReceipts(ctx context.Context, answer io.Reader) error {
	dec := json.NewDecoder(answer)
	for {
		var got struct {
			Epoch    string              `json:"epoch"`
			Receipts []feed.Receipt      `json:"receipts"`
			Error    *httpserver.Problem `json:"error,omitempty"`
		}
		err := dec.Decode(&got)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil:
			return errInterrupted
		case err != nil:
			return fmt.Errorf("%w: the answer was cut short, and nobody can know of the events without an id here; send them again, with --idempotency-key if none may be there twice: %w", errUnreachable, err)
		case got.Error != nil:
			return got.Error
		}
		if e.json {
			if err := writeJSON(e.Out, got); err != nil {
				return err
			}
			continue
		}
		for _, r := range got.Receipts {
			note := ""
			if r.Repeated {
				note = "  repeated"
			}
			if _, err := fmt.Fprintf(e.Out, "%s%s\n", feed.Position{Epoch: got.Epoch, ID: r.ID}, note); err != nil {
				return err
			}
		}
	}
}

func newTopics(e *env) *cobra.Command {
	f := &daemonFlags{}
	cmd := &cobra.Command{
		Use:   "topics",
		Short: "List the topics of the feed and what is kept of them",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := f.client(cmd.Context(), e)
			if err != nil {
				return err
			}
			var got struct {
				Topics []feed.Topic `json:"topics"`
			}
			if err := client.call(cmd.Context(), http.MethodGet, "/v1/topics", nil, &got); err != nil {
				return err
			}
			return e.printTopics(got.Topics)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (e *env) printTopics(all []feed.Topic) error {
	if e.json {
		return writeJSON(e.Out, all)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(e.Out, "no topics")
		return err
	}
	table := newTable(e.Out)
	_, _ = fmt.Fprintln(table, "TOPIC\tEVENTS\tBYTES\tLAST\tOLDEST")
	for _, t := range all {
		oldest := ""
		if !t.Oldest.IsZero() {
			oldest = t.Oldest.Local().Format(time.DateTime)
		}
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\n", t.Name, t.Count, t.Bytes, t.Last, oldest)
	}
	return table.Flush()
}
