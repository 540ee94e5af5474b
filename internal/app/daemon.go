package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/atomicfile"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/feedserver"
	"github.com/ossicle/ossicle/internal/fleet"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/telemetry"
	"github.com/ossicle/ossicle/notice"
)

// Files of a process that serves sessions, in its data directory.
const (
	daemonFile = "daemon.json" // of ossicle serve
	liveDir    = "live"        // one file for each ossicle run
	// TokenName is the file with the token of all of them.
	TokenName = "token"
)

// apiBudget bounds the end of the API.
const apiBudget = 4 * time.Second

// findTime bounds the question whether a process is still there.
const findTime = 2 * time.Second

// RunningDaemonError says that another process serves from the directory.
type RunningDaemonError struct{ URL string }

func (e *RunningDaemonError) Error() string {
	return "serve sessions: another process does it already, at " + e.URL
}

// ServeOptions say how sessions and the feed are served.
type ServeOptions struct {
	// Addr is where to listen; empty is a free loopback port.
	Addr string
	// TLS serves HTTPS. Nil is plain HTTP.
	TLS *tls.Config
	// Hosts and Origins are those of httpserver.Options.
	Hosts, Origins []string
	// Data is the data directory; empty is the configured home.
	Data string
	// Session is set by a process that hosts this one session and no other.
	Session string
	// Feed is served too, with its topics over MCP. Nil is none.
	Feed *Feed
	// Sandboxes are served too: their API, and the way in of their workers. Nil is
	// none.
	Sandboxes *fleet.Fleet
	// Ready is called with the URL once the address is bound. Nil is none.
	Ready func(url string) error
	// Logger takes the log. Nil discards.
	Logger *slog.Logger
}

// Serve serves the JSON API of sessions, and the feed, until ctx ends: to those
// who can read the token file, and with a feed to those who have a token for it.
// The data directory says where.
func (a *Agents) Serve(ctx context.Context, o ServeOptions) (err error) {
	if o.Data == "" {
		o.Data = a.config.Home
	}
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	place := filepath.Join(o.Data, daemonFile)
	if o.Session != "" {
		if err := checkSession(o.Session); err != nil {
			return err
		}
		place = livePath(o.Data, o.Session)
	}
	if url, alive := askPlace(ctx, place); alive {
		if o.Session != "" {
			return &RunningError{ID: o.Session, Elsewhere: true}
		}
		return &RunningDaemonError{URL: url}
	}
	d, err := a.newDaemon(ctx, &o)
	if err != nil {
		return err
	}
	server, err := httpserver.New(d, &httpserver.Options{
		Addr: o.Addr, TLS: o.TLS, Hosts: o.Hosts, Origins: o.Origins, Auth: d.auth, Tickets: d.tickets, Logger: o.Logger, Routes: d.routes, Ready: o.Feed.ready,
		Budget: httpserver.Budget{Requests: apiBudget},
	})
	if err == nil {
		err = server.Listen(ctx)
	}
	if err != nil {
		return errors.Join(err, d.abandon(ctx))
	}
	address := strings.TrimSuffix(server.URL(), httpserver.MCPPath)
	here := local(address)
	if err := writePlace(place, here); err != nil {
		return errors.Join(err, server.Close(), d.abandon(ctx))
	}
	defer removePlace(place, here)
	if o.Session == "" {
		a.sweepLeft(ctx, &o)
	}
	if o.Ready != nil {
		if err := o.Ready(address); err != nil {
			return errors.Join(err, server.Close(), d.abandon(ctx))
		}
	}
	err = server.Run(ctx)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil { // connections that clients keep open were cut
		o.Logger.LogAttrs(ctx, slog.LevelDebug, "api cut connections", logattr.Err(err))
		return nil
	}
	return err
}

// daemon is what a process serves on one address.
type daemon struct {
	auth    httpserver.Authenticator
	tickets *access.Tickets
	routes  []httpserver.Route

	api     *sessionAPI
	boxes   *fleet.API
	signals *signalHost
	stream  *feedserver.Server // nil without a feed
	host    *Host              // likewise
	page    *page              // nil for a process of one session
}

func (a *Agents) newDaemon(ctx context.Context, o *ServeOptions) (*daemon, error) {
	tokens, err := httpserver.TokenFile(filepath.Join(o.Data, TokenName))
	if err != nil {
		return nil, err
	}
	d := &daemon{auth: tokens, api: newSessionAPI(a, o.Data, o.Session), boxes: fleet.NewAPI(o.Sandboxes, jsonAPI()), signals: newSignalHost(a, o.Logger)}
	d.routes = append(append(d.api.routes(), d.boxes.Routes()...), d.signals.route())
	if o.Feed != nil {
		if err := d.serveFeed(ctx, a, o, tokens); err != nil {
			return nil, err
		}
	}
	if o.Session != "" {
		return d, nil
	}
	var recheck func(context.Context, *access.Principal) error
	if r, ok := d.auth.(httpserver.Rechecker); ok {
		recheck = r.Recheck
	}
	if d.page, err = newPage(d.api, o.Sandboxes, recheck, o.Logger); err != nil {
		return nil, errors.Join(err, d.abandon(ctx))
	}
	d.routes = append(d.routes, d.page.routes()...)
	if o.Feed != nil && o.Feed.telemetry != nil {
		o.Feed.telemetry.Page(func() telemetry.Page { return telemetry.Page(d.page.live.Stats()) })
	}
	return d, nil
}

// Handler implements httpserver.MCP.
func (d *daemon) Handler() http.Handler {
	if d.host == nil {
		return http.NotFoundHandler()
	}
	return d.host.MCP.Handler()
}

// Shutdown implements httpserver.MCP: those who wait for a turn wait no more, and
// streams end politely, all at the same time.
func (d *daemon) Shutdown(ctx context.Context) error {
	d.api.end()
	d.boxes.End()
	var signals sync.WaitGroup
	signals.Go(func() { d.signals.shutdown(ctx) })
	defer signals.Wait()
	ended := make(chan error, 2)
	go func() { ended <- d.endPage(ctx) }()
	if d.stream == nil {
		return <-ended
	}
	go func() { ended <- d.stream.Shutdown(ctx) }()
	err := d.host.Close(ctx)
	return errors.Join(err, <-ended, <-ended)
}

func (d *daemon) endPage(ctx context.Context) error {
	if d.page == nil {
		return nil
	}
	return d.page.shutdown(ctx)
}

// abandon ends what was made for a server that does not run.
func (d *daemon) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiBudget)
	defer cancel()
	return d.Shutdown(ctx)
}

// OfflineAPI is the API over a data directory that no process serves: sessions
// can be looked at and removed. Where there is no store the error is
// fs.ErrNotExist. The caller closes what it gets.
func OfflineAPI(ctx context.Context, c *config.Config, data string) (http.Handler, func() error, error) {
	if _, err := os.Stat(storePath(c, data)); err != nil {
		return nil, nil, fmt.Errorf("open sessions: %w", err)
	}
	db, err := openStore(ctx, c, data)
	if err != nil {
		return nil, nil, err
	}
	if data == "" {
		data = c.Home
	}
	a := &Agents{config: c, Store: db.Sessions(nil), Inbox: notice.New(db.Notices(), nil), log: slog.New(slog.DiscardHandler), closed: true}
	a.reports = newReports(db.Attachments(), a.log)
	mux := http.NewServeMux()
	for _, r := range newSessionAPI(a, data, "").routes() {
		mux.Handle(r.Pattern, r.Handler)
	}
	return mux, db.Close, nil
}

func livePath(data, session string) string { return filepath.Join(data, liveDir, session+".json") }

// sessionLockPath is the file that a process holds which runs a session.
func sessionLockPath(data, session string) string {
	return filepath.Join(data, liveDir, session+".lock")
}

// place is what the file of a serving process says.
type place struct {
	URL string `json:"url"`
	PID int    `json:"pid"`
}

// writePlace says where a process serves.
func writePlace(path, url string) error {
	if err := atomicfile.WriteJSON(path, place{URL: url, PID: os.Getpid()}); err != nil {
		return fmt.Errorf("say where sessions are served: %w", err)
	}
	return nil
}

// local is the URL at which this machine reaches a server that listens at all
// addresses: by the loopback one.
func local(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsUnspecified() {
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	return u.String()
}

// removePlace removes the file unless it names another process by now.
func removePlace(path, url string) {
	var p place
	if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &p) == nil && p.URL == url {
		_ = os.Remove(path)
	}
}

// askPlace reads the file and asks the process whether it is there: the file of
// one that was killed stays behind.
func askPlace(ctx context.Context, path string) (url string, alive bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", false
	}
	var p place
	if json.Unmarshal(text, &p) != nil || p.URL == "" {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/healthz", http.NoBody)
	if err != nil {
		return "", false
	}
	resp, err := apiClient.Do(req)
	if err != nil {
		return "", false
	}
	_ = resp.Body.Close()
	return p.URL, resp.StatusCode == http.StatusOK
}

// apiClient talks to processes on this machine: no proxy, nothing kept.
var apiClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// FindServer finds the process that serves a session, or the daemon where no
// process of its own does or the id is empty. It returns its URL, "" if there
// is none.
func FindServer(ctx context.Context, data, session string) string {
	if session != "" && notice.CheckAgent(session) == nil {
		if url, alive := askPlace(ctx, livePath(data, session)); alive {
			return url
		}
	}
	url, alive := askPlace(ctx, filepath.Join(data, daemonFile))
	if !alive {
		return ""
	}
	return url
}

// FindServers lists the URLs of all processes that serve sessions from a
// directory.
func FindServers(ctx context.Context, data string) []string {
	var urls []string
	if url := FindServer(ctx, data, ""); url != "" {
		urls = append(urls, url)
	}
	entries, err := os.ReadDir(filepath.Join(data, liveDir))
	if errors.Is(err, fs.ErrNotExist) {
		return urls
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") && !strings.HasPrefix(e.Name(), ".") {
			if url, alive := askPlace(ctx, filepath.Join(data, liveDir, e.Name())); alive {
				urls = append(urls, url)
			}
		}
	}
	return urls
}
