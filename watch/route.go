package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/ossicle/ossicle/internal/logattr"
)

// maxKnown bounds the URIs and templates that an error lists.
const maxKnown = 20

// target is where a URI leads.
type target struct {
	server Server
	entry  *Entry // that lists it or whose template it matches, else nil
}

// listing is what one server offers, or why that is not known.
type listing struct {
	server  Server
	entries []Entry
	err     error
}

// route finds the server of a URI (W-045, WA-07): the one that lists it, else the
// one with a matching template, else the first that can be watched and knows
// the scheme. A scheme that nobody knows goes to a server only if there is no
// other choice: a clear error beats a misrouted watch.
func (m *Manager) route(ctx context.Context, uri string) (target, error) {
	return m.find(ctx, uri, func(ctx context.Context, s Server) bool {
		info, err := m.info(ctx, s)
		return err == nil && info.Subscribable
	})
}

// info asks a server what it can do; one that is silent costs ReadTime.
func (m *Manager) info(ctx context.Context, s Server) (ServerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, m.limits.ReadTime)
	defer cancel()
	return s.Info(ctx)
}

func (m *Manager) find(ctx context.Context, uri string, fallback func(context.Context, Server) bool) (target, error) {
	listings, found := m.listings(ctx, func(l listing) *Entry {
		return findEntry(l.entries, func(e Entry) bool { return !e.Template && e.URI == uri })
	})
	if found != nil {
		return *found, nil
	}
	for _, l := range listings {
		if e := findEntry(l.entries, func(e Entry) bool { return e.Template && matchTemplate(e.URI, uri) }); e != nil {
			return target{l.server, e}, nil
		}
	}
	scheme := schemeOf(uri)
	var able, knowing []Server
	for _, l := range listings {
		if !fallback(ctx, l.server) {
			continue
		}
		able = append(able, l.server)
		if findEntry(l.entries, func(e Entry) bool { return schemeOf(e.URI) == scheme }) != nil {
			knowing = append(knowing, l.server)
		}
	}
	switch {
	case len(knowing) > 0:
		return target{server: knowing[0]}, nil
	case len(able) == 1:
		return target{server: able[0]}, nil
	}
	return target{}, routeError(uri, listings, len(able))
}

// listings asks all servers at once what they offer. It returns early with the
// first, in order, in whose listing pick finds an entry.
func (m *Manager) listings(ctx context.Context, pick func(listing) *Entry) ([]listing, *target) {
	ctx, cancel := context.WithTimeout(ctx, m.limits.ReadTime)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	answers := make([]chan listing, len(m.servers))
	for i, server := range m.servers {
		answers[i] = make(chan listing, 1)
		wg.Go(func() {
			entries, err := server.Entries(ctx)
			answers[i] <- listing{server, entries, err}
		})
	}
	all := make([]listing, 0, len(answers))
	for _, answer := range answers {
		l := <-answer
		if e := pick(l); e != nil {
			return nil, &target{l.server, e}
		}
		all = append(all, l)
	}
	return all, nil
}

func findEntry(entries []Entry, match func(Entry) bool) *Entry {
	if i := slices.IndexFunc(entries, match); i >= 0 {
		return &entries[i]
	}
	return nil
}

func schemeOf(uri string) string {
	scheme, _, _ := strings.Cut(uri, ":")
	return strings.ToLower(scheme)
}

func routeError(uri string, listings []listing, able int) *RouteError {
	e := &RouteError{URI: uri, Reason: fmt.Sprintf("no server lists it, no template matches it, and no server knows the scheme %q", schemeOf(uri))}
	if len(listings) == 0 {
		e.Reason = "no MCP server is configured"
	} else if able > 1 {
		e.Reason += fmt.Sprintf(" (%d servers could be asked)", able)
	}
	var near []string
	best := len(uri)/3 + 1
	for _, l := range listings {
		if l.err != nil {
			e.Err = errors.Join(e.Err, fmt.Errorf("server %q: %w", l.server.Name(), l.err))
			e.silent = append(e.silent, l.server.Name())
		}
		for _, entry := range l.entries {
			if len(e.Known) < maxKnown {
				e.Known = append(e.Known, bound(entry.URI, DefaultLineRunes))
			}
			d := likeness(uri, entry)
			if d < best {
				near, best = nil, d
			}
			if d <= best && len(near) < maxKnown {
				near = append(near, bound(entry.URI, DefaultLineRunes))
			}
		}
	}
	e.DidYouMean = near
	return e
}

// likeness is how many edits lead from a URI to an entry: to all of a fixed
// one, to the literal beginning of a template.
func likeness(uri string, e Entry) int {
	if e.Template {
		literal, _, _ := strings.Cut(e.URI, "{")
		return distance(uri[:min(len(uri), len(literal))], literal)
	}
	return distance(uri, e.URI)
}

// maxCompared bounds the texts that are compared, in bytes: the work grows with
// their product.
const maxCompared = 256

// distance is the edit distance of two texts, by their first maxCompared bytes.
func distance(a, b string) int {
	a, b = a[:min(len(a), maxCompared)], b[:min(len(b), maxCompared)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// watchable asks whether a watch can work there, before anything is opened.
func (m *Manager) watchable(ctx context.Context, t target, uri string) error {
	if t.entry != nil && t.entry.Static {
		return &RefusedError{Server: t.server.Name(), URI: uri, Reason: "its entry says that it can be read and not watched"}
	}
	info, err := m.info(ctx, t.server)
	if err != nil {
		return fmt.Errorf("connect server %q: %w", t.server.Name(), err)
	}
	if !info.Listens {
		return &VersionError{Server: t.server.Name(), Version: info.ProtocolVersion}
	}
	if !info.Subscribable {
		return &RefusedError{Server: t.server.Name(), URI: uri, Reason: "it does not advertise resources.subscribe, so its resources can be read and not watched"}
	}
	return nil
}

// compareShape logs a listing whose media type the read does not have: the read
// decides (WA-02).
func (t target) compareShape(ctx context.Context, log *slog.Logger, w *runningWatch) {
	if t.entry != nil && t.entry.MIMEType != "" && shapeOf(t.entry.MIMEType) != w.shape {
		log.LogAttrs(ctx, levelDetail, "watch.shape_differs", logattr.Watch(w.spec.Name), logattr.URI(w.spec.URI), logattr.Reason(string(w.shape)))
	}
}
