package app

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/feedserver"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/telemetry"
	"github.com/ossicle/ossicle/internal/version"
)

// serveFeed adds the feed to what the daemon serves: the HTTP API, and its topics
// over MCP.
func (d *daemon) serveFeed(ctx context.Context, a *Agents, o *ServeOptions, tokens httpserver.StaticTokens) error {
	secret, err := ticketSecret(o.Data)
	if err != nil {
		return err
	}
	if d.tickets, err = access.NewTickets(secret, nil); err != nil {
		return err
	}
	hooks, err := newHooks(ctx, a.config, os.Getenv, o.Feed.publisher, a.Inbox, o.Logger)
	if err != nil {
		return err
	}
	stored := httpserver.NewStoredTokens(o.Feed.Tokens, nil)
	d.auth = httpserver.AnyOf(tokens, stored)
	opts := &feedserver.Options{Tickets: d.tickets, Recheck: stored.Recheck, Logger: o.Logger}
	tel := o.Feed.telemetry
	if tel != nil {
		opts.Latency = tel.ObserveDelivery
	}
	if d.stream, err = feedserver.New(o.Feed.Hub, o.Feed.publisher, o.Feed.Store, opts); err != nil {
		return err
	}
	d.routes = append(append(d.routes, d.stream.Routes()...), hooks.routes()...)
	if tel != nil {
		tel.Streams(func() telemetry.Streams { return telemetry.Streams(d.stream.Stats()) })
		tel.Inbox(a.notices)
		tel.Signals(a.signals.Stats)
		for i, r := range d.routes {
			if strings.HasPrefix(r.Pattern, http.MethodPost) {
				d.routes[i].Handler = tel.Middleware(r.Handler)
			}
		}
		d.routes = append(d.routes, httpserver.Route{Pattern: "GET /metrics", Handler: forReaders(tel.Handler())})
	}
	if d.host, err = NewHost(o.Feed.Resources, nil, &HostOptions{
		Name: version.Name, Instructions: feedInstructions, More: o.Feed.files, Logger: o.Logger,
	}); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), apiBudget)
		defer cancel()
		return errors.Join(err, d.stream.Shutdown(ctx))
	}
	return nil
}

// notices counts the notices of all agents by state.
func (a *Agents) notices(ctx context.Context) (map[string]int, error) {
	agents, err := a.Inbox.Agents(ctx)
	if err != nil {
		return nil, err
	}
	total := map[string]int{}
	for _, id := range agents {
		status, err := a.Inbox.Status(ctx, id)
		if err != nil {
			return nil, err
		}
		for state, n := range status.Counts {
			total[string(state)] += n
		}
	}
	return total, nil
}

// forReaders lets in who may read every topic: metrics name topics.
func forReaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, known := httpserver.PrincipalOf(r.Context()); known && !p.Rights.MayReadAll("*") {
			httpserver.WriteProblem(w, http.StatusForbidden, "metrics name topics: they take a token that may read all topics, --read '*'")
			return
		}
		next.ServeHTTP(w, r)
	})
}

const feedInstructions = "Topics of an event feed: each is an event log, and the state of its keys. Watch what you need to hear of."

// ticketSecret is the key of tickets: of this data directory, or the one that
// several processes are given to take each other's.
func ticketSecret(data string) ([]byte, error) {
	if secret := os.Getenv(EnvTicketSecret); secret != "" {
		return []byte(secret), nil
	}
	tokens, err := httpserver.TokenFile(filepath.Join(data, "tickets"))
	if err != nil {
		return nil, err
	}
	return tokens[0].SHA256[:], nil
}

// EnvTicketSecret is the key of tickets where several processes serve one log.
const EnvTicketSecret = "OSSICLE_TICKET_SECRET" //nolint:gosec // a name
