package app

import (
	"context"
	"strings"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/telemetry"
	"github.com/ossicle/ossicle/worker"
)

// OpenDaemonGateway opens the gateway of a daemon: its records and its audit are in
// the data directory, or on the PostgreSQL server that the log is on, where other
// daemons share them. store is that of FeedOptions; a nil telemetry counts nothing.
func OpenDaemonGateway(ctx context.Context, c *config.Config, o *GatewayOptions, store string, measured *telemetry.Telemetry) (*WorkerGateway, error) {
	opts := *o
	if opts.Data == "" {
		opts.Data = c.Home
	}
	if measured != nil {
		opts.Observe = measured.ObserveChannel
	}
	records, err := openRecords(ctx, c, &opts, store)
	if err != nil {
		return nil, err
	}
	opts.Store, opts.Audit, opts.Shared, opts.done = records.store, records.audit, records.shared, records.close
	g, err := OpenGateway(ctx, c, &opts)
	if err == nil && measured != nil {
		measured.Sandboxes(g.States)
	}
	return g, err
}

// records are where a daemon keeps its sandboxes.
type records struct {
	store  worker.Store
	audit  worker.AuditStore
	shared bool // other daemons are there too
	close  func() error
}

func openRecords(ctx context.Context, c *config.Config, o *GatewayOptions, store string) (*records, error) {
	feed := (&FeedOptions{Store: store, Data: o.Data, Logger: o.Logger}).over(c)
	if strings.HasPrefix(feed.Store, "postgres") {
		db, err := openPostgres(ctx, &feed)
		if err != nil {
			return nil, err
		}
		return &records{db.Workers(), db.WorkerAudit(nil), true, func() error { db.Close(); return nil }}, nil
	}
	db, err := openStore(ctx, c, o.Data)
	if err != nil {
		return nil, err
	}
	return &records{db.Workers(), db.WorkerAudit(nil), false, db.Close}, nil
}

// closeRecords is the last step of the gateway's end.
func (g *WorkerGateway) closeRecords(context.Context) error {
	if g.o.done == nil {
		return nil
	}
	return g.o.done()
}
