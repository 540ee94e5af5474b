package app

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/telemetry"
)

// The metrics of a daemon tell of the page that it serves.
func TestThePageIsMeasured(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tel, err := telemetry.New(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tel.Shutdown(context.WithoutCancel(t.Context())) })
	c := config.Default()
	c.Home = dir
	feed, err := OpenFeed(t.Context(), c, &FeedOptions{Data: dir, Telemetry: tel})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = feed.Close(context.WithoutCancel(t.Context())) })
	s := serveAll(t, testAgents(t, dir), ServeOptions{Data: dir, Feed: feed})
	if status, body := s.ask("GET", "/metrics", ""); status != http.StatusOK || !strings.Contains(body, "\nossicle_page_connections 0\n") {
		t.Errorf("%d %s", status, body)
	}
}
