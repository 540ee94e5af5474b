package app

import (
	"context"
	"net/http"
	"strings"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/telemetry"
	"github.com/ossicle/ossicle/notice"
	"github.com/ossicle/ossicle/worker"
)

// OpenSandboxes opens the sandboxes of a daemon: its records and its audit are in
// the data directory, or on the PostgreSQL server that the log is on, where other
// daemons share them. store is that of FeedOptions; a nil telemetry counts nothing.
func OpenSandboxes(ctx context.Context, c *config.Config, o *fleet.Options, store string, measured *telemetry.Telemetry) (*fleet.Fleet, error) {
	opts := *o
	if opts.Data == "" {
		opts.Data = c.Home
	}
	if measured != nil {
		opts.Observe = measured.ObserveChannel
	}
	var err error
	if opts.Records, err = openRecords(ctx, c, &opts, store); err != nil {
		return nil, err
	}
	f, err := fleet.Open(ctx, c, &opts)
	if err == nil && measured != nil {
		measured.Sandboxes(f.States)
	}
	return f, err
}

// openRecords opens where a daemon keeps its sandboxes.
func openRecords(ctx context.Context, c *config.Config, o *fleet.Options, store string) (*fleet.Records, error) {
	feed := (&FeedOptions{Store: store, Data: o.Data, Logger: o.Logger}).over(c)
	if strings.HasPrefix(feed.Store, "postgres") {
		db, err := openPostgres(ctx, &feed)
		if err != nil {
			return nil, err
		}
		return &fleet.Records{Store: db.Workers(), Audit: db.WorkerAudit(nil), Shared: true, Close: func() error { db.Close(); return nil }}, nil
	}
	db, err := openStore(ctx, c, o.Data)
	if err != nil {
		return nil, err
	}
	return &fleet.Records{Store: db.Workers(), Audit: db.WorkerAudit(nil), Close: db.Close}, nil
}

// DoctorGateway looks for the gateway of a daemon of the directory.
func DoctorGateway(ctx context.Context, c *config.Config, data string) notice.Check {
	if data == "" {
		data = c.Home
	}
	check := notice.Check{Name: "daemon", OK: true}
	url := FindServer(ctx, data, "")
	if url == "" {
		check.Cause = "no process serves from " + data + "; ossicle sandbox run needs none"
		return check
	}
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+worker.DialPath, http.NoBody)
	if err != nil {
		return notice.Check{Name: check.Name, Cause: err.Error()}
	}
	resp, err := apiClient.Do(req)
	if err != nil {
		return notice.Check{Name: check.Name, Cause: err.Error()}
	}
	_ = resp.Body.Close()
	// The API answers 401 too, as a problem.
	if resp.StatusCode == http.StatusUnauthorized && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		check.Cause = "workers come in at " + "ws" + strings.TrimPrefix(url, "http") + worker.DialPath // as workers dial, and doctor takes it
		return check
	}
	check.Cause = url + " takes no workers; ossicle serve --worker-gateway does"
	return check
}
