package listen_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/listen"
)

// hears waits for one update.
func hears(t *testing.T, p printer) {
	t.Helper()
	select {
	case got := <-p.news:
		if got != "updated: read it now" {
			t.Errorf("heard %q", got)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("heard nothing")
	}
}

// M-3, M-13: our client on our hub, over HTTP and over a pipe that the SDK uses
// too: sets that grow and shrink, refusals with their reasons, nothing twice.
func TestClientOnHub(t *testing.T) {
	t.Parallel()
	openers := map[string]func(t *testing.T, hub *listen.Hub) listen.Opener{
		"http": func(t *testing.T, hub *listen.Hub) listen.Opener {
			web := httptest.NewServer(hub.Handler(http.NotFoundHandler()))
			t.Cleanup(web.Close)
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			return listen.NewHTTPOpener(web.URL, &listen.HTTPOptions{Client: &http.Client{Transport: transport}})
		},
		"pipe": func(t *testing.T, hub *listen.Hub) listen.Opener {
			server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
			hub.Attach(server)
			ours, theirs := mcp.NewInMemoryTransports()
			ss, err := server.Connect(t.Context(), hub.Transport(theirs), nil)
			if err != nil {
				t.Fatal(err)
			}
			mux := listen.NewMux(ours, nil)
			cs, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).Connect(t.Context(), mux, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cs.Close(); _ = ss.Wait() })
			return mux
		},
	}
	for name, open := range openers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := listen.NewHub(nil, &listen.HubOptions{Authorize: func(_ context.Context, uri string) error {
				if uri == "x:/refused" {
					return &jsonrpc.Error{Code: -32602, Message: "not for you"}
				}
				return nil
			}})
			t.Cleanup(func() { _ = hub.Shutdown(context.WithoutCancel(t.Context())) })
			c := listen.NewClient(open(t, hub), nil)
			t.Cleanup(c.Close)
			var ears []printer
			var cancels []func()
			for i := range 5 {
				p := printer{make(chan string, 100)}
				cancel, err := c.Add(t.Context(), fmt.Sprintf("a:/%d", i), p)
				if err != nil {
					t.Fatal(err)
				}
				ears, cancels = append(ears, p), append(cancels, cancel)
				for j := range ears {
					hub.Updated(fmt.Sprintf("a:/%d", j))
					hears(t, ears[j])
				}
			}
			_, err := c.Add(t.Context(), "x:/refused", printer{})
			var refused *listen.RefusedError
			var reason *jsonrpc.Error
			if !errors.As(err, &refused) || !errors.As(err, &reason) {
				t.Errorf("refused URI: %v", err)
			}
			time.Sleep(time.Second) // longer than streams overlap
			for j, p := range ears {
				if len(p.news) != 0 {
					t.Errorf("listener %d also heard %q", j, <-p.news)
				}
			}
			// A set that shrinks is reopened behind the caller's back: nothing is lost
			// meanwhile, though it may be told twice.
			for i := range 4 {
				cancels[i]()
				for len(ears[i].news) > 0 {
					<-ears[i].news
				}
				for j := i + 1; j < 5; j++ {
					hub.Updated(fmt.Sprintf("a:/%d", j))
					hears(t, ears[j])
				}
				for j := range i + 1 {
					if len(ears[j].news) != 0 {
						t.Errorf("listener %d heard %q after it was cancelled", j, <-ears[j].news)
					}
				}
			}
		})
	}
}
