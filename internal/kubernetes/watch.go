package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/internal/supervise"
)

const (
	// A watch ends by itself after a time between the two, so that one whose
	// connection is dead does not stay for ever.
	leastWatch = 4 * time.Minute
	mostWatch  = 8 * time.Minute
	watchSlack = 30 * time.Second
	// shortWatch is how long a watch without an event must last to be none that the
	// server ends at once.
	shortWatch = time.Second

	maxEvent = 4 << 20 // bytes of one event
	pageSize = 500     // objects of a page of a list
	maxPages = 100
)

var errShort = errors.New("the API server ends watches at once")

// watcher keeps a list of one kind of objects current: it lists them once and then
// watches for changes from that version on. Where a watch breaks it goes on from
// the last version seen, and lists again only if the server has forgotten it.
type watcher struct {
	c        *client
	resource string
	selector url.Values
	// sink takes changes, in order. Its error is that of ctx.
	sink func(ctx context.Context, c change) error

	version string // empty: list
}

// try watches until something goes wrong. up is called when a watch is open.
func (w *watcher) try(ctx context.Context, up func()) error {
	for listed := false; ; {
		if w.version == "" {
			if listed { // the server forgot at once what it said a moment ago
				return errGone
			}
			if err := w.list(ctx); err != nil {
				return w.yield(ctx, err)
			}
			listed = true
		}
		start := time.Now()
		events, err := w.stream(ctx, up)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errGone):
			w.version = ""
			listed = listed && events == 0
		case err != nil:
			return w.yield(ctx, err)
		case events == 0 && time.Since(start) < shortWatch:
			return errShort
		default:
			listed = false
		}
	}
}

// yield waits as long as a server asks for; what is left of the pause is the
// caller's.
func (w *watcher) yield(ctx context.Context, err error) error {
	var refused *APIError
	if errors.As(err, &refused) && refused.RetryAfter > 0 {
		supervise.Sleep(ctx, refused.RetryAfter)
	}
	return err
}

func isRefusal(err error) bool {
	var refused *APIError
	return errors.As(err, &refused)
}

// page is a part of a list.
type page struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []object `json:"items"`
}

// list reads all objects, in pages.
func (w *watcher) list(ctx context.Context) error {
	var all []object
	query := maps.Clone(w.selector)
	query.Set("limit", strconv.Itoa(pageSize))
	for range maxPages {
		var p page
		if _, err := w.c.once(ctx, request{op: "list " + w.resource, method: "GET", resource: w.resource, query: query, most: maxList}, &p); err != nil {
			return err
		}
		all = append(all, p.Items...)
		if p.Metadata.Continue == "" {
			if p.Metadata.ResourceVersion == "" {
				return fmt.Errorf("list %s: the list has no version", w.resource)
			}
			if err := w.sink(ctx, change{resource: w.resource, all: all, listed: true}); err != nil {
				return err
			}
			w.version = p.Metadata.ResourceVersion
			return nil
		}
		query.Set("continue", p.Metadata.Continue)
	}
	return fmt.Errorf("list %s: there are more than %d", w.resource, maxPages*pageSize)
}

// stream is one watch. It returns how many events it had, bookmarks too, and why
// it ended; no error is the server's orderly end.
func (w *watcher) stream(ctx context.Context, up func()) (events int, err error) {
	life := leastWatch + rand.N(mostWatch-leastWatch)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := time.AfterFunc(w.c.timeout, func() { cancel(ErrTimeout) }) // for the answer's beginning
	defer stop.Stop()
	query := maps.Clone(w.selector)
	query.Set("watch", "1")
	query.Set("allowWatchBookmarks", "true")
	query.Set("resourceVersion", w.version)
	query.Set("timeoutSeconds", strconv.FormatInt(seconds(life), 10))
	op := "watch " + w.resource
	answer, err := w.c.open(ctx, request{op: op, method: "GET", resource: w.resource, query: query})
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	stop.Reset(life + watchSlack)
	up()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxEvent)
	lines.Split(wholeLines)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		kind, o, err := parseEvent(op, lines.Bytes())
		if err != nil {
			if !isRefusal(err) {
				w.version = "" // the same event would come again
			}
			return events, err
		}
		events++
		if kind != "BOOKMARK" {
			if err := w.sink(ctx, change{resource: w.resource, object: o, deleted: kind == "DELETED"}); err != nil {
				return events, err
			}
		}
		if v := o.Metadata.ResourceVersion; v != "" {
			w.version = v
		}
	}
	switch err := lines.Err(); {
	case err == nil:
		return events, nil
	case errors.Is(err, bufio.ErrTooLong):
		w.version = ""
		return events, fmt.Errorf("%s: an event has more than %d bytes", op, maxEvent)
	default:
		return events, failed(ctx, op, err)
	}
}

// wholeLines is bufio.ScanLines, but that a line which was cut off is none.
func wholeLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

// parseEvent reads one event of a watch. An event that is an error is returned as
// such.
func parseEvent(op string, line []byte) (kind string, o object, err error) {
	var e struct {
		Type   string         `json:"type"`
		Object jsontext.Value `json:"object"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return "", o, fmt.Errorf("%s: read event: %w", op, err)
	}
	switch e.Type {
	case "ADDED", "MODIFIED", "DELETED", "BOOKMARK":
		if err := json.Unmarshal(e.Object, &o); err != nil {
			return "", o, fmt.Errorf("%s: read event: %w", op, err)
		}
		return e.Type, o, nil
	case "ERROR":
		var s status
		if err := json.Unmarshal(e.Object, &s); err != nil {
			return "", o, fmt.Errorf("%s: read event: %w", op, err)
		}
		return "", o, refusal(op, s.Code, nil, e.Object)
	default:
		return "", o, fmt.Errorf("%s: an event is of the unknown type %.32q", op, e.Type)
	}
}
