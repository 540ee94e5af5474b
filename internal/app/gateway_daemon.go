package app

import (
	"context"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/telemetry"
)

// OpenDaemonGateway opens the gateway of a daemon: its records are in the data
// directory, or on the PostgreSQL server that the log is on, where other daemons
// share them. store is that of FeedOptions.
func OpenDaemonGateway(ctx context.Context, c *config.Config, o *GatewayOptions, store string, measured *telemetry.Telemetry) (*WorkerGateway, error) {
	opts := *o
	if opts.Data == "" {
		opts.Data = c.Home
	}
	_, _ = store, measured
	return OpenGateway(ctx, c, &opts)
}
