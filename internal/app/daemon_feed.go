package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/feedserver"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/version"
)

// serveFeed adds the feed to what the daemon serves: the HTTP API, and its topics
// over MCP.
func (d *daemon) serveFeed(a *Agents, o *ServeOptions, tokens httpserver.StaticTokens) error {
	secret, err := ticketSecret(o.Data)
	if err != nil {
		return err
	}
	if d.tickets, err = access.NewTickets(secret, nil); err != nil {
		return err
	}
	hooks, err := newHooks(a.config, os.Getenv, o.Feed.Hub, a.Inbox, o.Logger)
	if err != nil {
		return err
	}
	stored := httpserver.NewStoredTokens(o.Feed.Tokens, nil)
	d.auth = httpserver.AnyOf(tokens, stored)
	d.stream, err = feedserver.New(o.Feed.Hub, o.Feed.Hub, o.Feed.Store, &feedserver.Options{
		Tickets: d.tickets, Recheck: stored.Recheck, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	d.routes = append(append(d.routes, d.stream.Routes()...), hooks.routes()...)
	if d.host, err = NewHost(o.Feed.Resources, nil, &HostOptions{
		Name: version.Name, Instructions: feedInstructions, More: o.Feed.files, Logger: o.Logger,
	}); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), apiBudget)
		defer cancel()
		return errors.Join(err, d.stream.Shutdown(ctx))
	}
	return nil
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
