package interop

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/feedserver"
	"github.com/ossicle/ossicle/internal/files"
	"github.com/ossicle/ossicle/internal/httpserver"
	"github.com/ossicle/ossicle/internal/sqlite"
)

// beat is the heartbeat of upstreams: the real one takes too long for a test, and a
// shorter one would come too late on a busy machine.
const beat = time.Second

// feedLog is a log in a file, and who may use it.
type feedLog struct {
	path    string
	token   string
	auth    httpserver.StaticTokens
	tickets *access.Tickets
}

func newFeedLog(t *testing.T) *feedLog {
	t.Helper()
	dir := t.TempDir()
	l := &feedLog{path: filepath.Join(dir, "feed.db")}
	var err error
	if l.auth, err = httpserver.TokenFile(filepath.Join(dir, "token")); err == nil {
		l.token, err = httpserver.ReadTokenFile(filepath.Join(dir, "token"))
	}
	if err == nil {
		l.tickets, err = access.NewTickets(l.auth[0].SHA256[:], nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// upstream serves a log at an address, until it is stopped; then it can be
// started again.
type upstream struct {
	log  *feedLog
	addr string
	host string // under which the proxy passes requests on
	stop func()
	hub  *feed.Hub
}

func newUpstream(t *testing.T, log *feedLog, addr, host string) *upstream {
	t.Helper()
	u := &upstream{log: log, addr: addr, host: host}
	u.start(t)
	t.Cleanup(func() { u.stop() })
	return u
}

func (u *upstream) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	serving, end := context.WithCancel(ctx)
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := sqlite.Open(ctx, u.log.path, nil)
	fail(err)
	bell, err := sqlite.OpenBell(ctx, db.Feed(), files.Touched)
	fail(err)
	hub, err := feed.NewHub(ctx, db.Feed(), bell, &feed.Options{Encode: feedserver.Encode})
	fail(err)
	api, err := feedserver.New(hub, hub, db.Feed(), &feedserver.Options{Heartbeat: beat, Spread: 100 * time.Millisecond, Tickets: u.log.tickets})
	fail(err)
	server, err := httpserver.New(noMCP{}, &httpserver.Options{
		Addr: u.addr, Hosts: []string{u.host}, Auth: u.log.auth, Tickets: u.log.tickets, Routes: api.Routes(), Shutdown: api.Shutdown,
	})
	fail(err)
	fail(server.Listen(ctx))
	var wg sync.WaitGroup
	served := make(chan error, 1)
	wg.Go(func() { served <- server.Run(serving) })
	hubbed := make(chan error, 1)
	wg.Go(func() { hubbed <- hub.Run(ctx) })
	u.hub = hub
	u.stop = sync.OnceFunc(func() {
		end()
		if err := <-served; err != nil {
			t.Errorf("upstream %s: %v", u.addr, err)
		}
		cancel()
		if err := <-hubbed; err != nil {
			t.Errorf("hub of %s: %v", u.addr, err)
		}
		wg.Wait()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// publish appends an event behind the proxy's back, and returns its id.
func (u *upstream) publish(t *testing.T, n int) int64 {
	t.Helper()
	data, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	r, err := u.hub.Publish(t.Context(), []feed.Draft{{Topic: "builds", Data: data}})
	if err != nil {
		t.Fatal(err)
	}
	return r[0].ID
}

// noMCP is the MCP endpoint of a server that has none.
type noMCP struct{}

func (noMCP) Handler() http.Handler          { return http.NotFoundHandler() }
func (noMCP) Shutdown(context.Context) error { return nil }
