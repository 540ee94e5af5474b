package app

import (
	"context"
	"errors"

	"github.com/ossicle/ossicle/internal/config"
)

// newCluster makes the driver of a profile in a cluster.
func (*WorkerGateway) newCluster(context.Context, *config.Sandbox) (*boxDriver, error) {
	return nil, errors.New("make sandbox driver: this build has no driver for clusters")
}
