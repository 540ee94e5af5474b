package listen_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/ossicle/ossicle/listen"
)

// printer is a subscriber. Its methods only pass the news on.
type printer struct{ news chan string }

func (p printer) Updated()                              { p.news <- "updated: read it now" }
func (p printer) Interrupted(error, int, time.Duration) { p.news <- "interrupted" }
func (p printer) Restored()                             { p.news <- "restored: read once" }
func (p printer) Failed(cause error)                    { p.news <- "failed: " + cause.Error() }

// Watches on a server over HTTP that survive its restarts: one listen for all
// URIs, opened again when it ends.
func ExampleClient() {
	ctx := context.Background()
	hub := listen.NewHub(nil, nil)
	web := httptest.NewServer(hub.Handler(http.NotFoundHandler()))
	defer web.Close()

	client := listen.NewClient(listen.NewHTTPOpener(web.URL, nil), &listen.ClientOptions{Backoff: 10 * time.Millisecond})
	defer client.Close()
	p := printer{make(chan string, 10)}
	cancel, err := client.Add(ctx, "memo://notes", p)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cancel()

	hub.Updated("memo://notes")
	fmt.Println(<-p.news)
	hub.End("memo://notes") // as a server may at any time
	fmt.Println(<-p.news)
	fmt.Println(<-p.news)
	hub.Updated("memo://notes")
	fmt.Println(<-p.news)
	// Output:
	// updated: read it now
	// interrupted
	// restored: read once
	// updated: read it now
}
