package app

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/ossicle/ossicle/internal/mcpclient"
)

// personTime is how long a person has to authorize us in a browser.
const personTime = 5 * time.Minute

// consent asks a person to authorize us at remote servers that want it: it
// shows a URL and receives the redirect on a loopback address of its own.
type consent struct {
	show  func(server, url string)
	ln    net.Listener
	http  *http.Server
	ended chan struct{}
	back  chan *auth.AuthorizationResult // capacity 1
	one   chan struct{}                  // capacity 1: one flow at a time
}

func newConsent(ctx context.Context, show func(server, url string)) (*consent, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the redirect: %w", err)
	}
	c := &consent{show: show, ln: ln, ended: make(chan struct{}), back: make(chan *auth.AuthorizationResult, 1), one: make(chan struct{}, 1)}
	c.http = &http.Server{Handler: http.HandlerFunc(c.redirected), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(c.ended)
		_ = c.http.Serve(ln)
	}()
	return c, nil
}

// close lets a browser that has just brought the answer see its page.
func (c *consent) close(ctx context.Context) error {
	polite, cancel := context.WithTimeout(ctx, consentBudget/2)
	defer cancel()
	err := c.http.Shutdown(polite)
	if err != nil {
		err = c.http.Close()
	}
	<-c.ended
	return err
}

// handler is the authorization of one server. Servers that were given a header
// of their own are left alone.
func (c *consent) handler(spec mcpclient.Spec) (auth.OAuthHandler, error) {
	for name := range spec.Headers {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			return nil, nil
		}
	}
	return mcpclient.NewOAuth(spec, mcpclient.OAuthOptions{
		RedirectURL: "http://" + c.ln.Addr().String() + "/callback",
		Fetch: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			return c.fetch(ctx, spec.Name, args.URL)
		},
	})
}

// fetch shows the URL and waits for the person. The flow checks the state, so
// that nobody else can answer.
func (c *consent) fetch(ctx context.Context, server, target string) (*auth.AuthorizationResult, error) {
	select {
	case c.one <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-c.one }()
	select {
	case <-c.back: // of a flow that was given up
	default:
	}
	u, err := url.Parse(target)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, errors.New("the server's authorization URL is not a web address")
	}
	c.show(server, u.String())
	select {
	case result := <-c.back:
		return result, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for authorization in the browser: %w", context.Cause(ctx))
	}
}

func (c *consent) redirected(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if r.URL.Path != "/callback" || q.Get("state") == "" {
		http.NotFound(w, r)
		return
	}
	text := "Done. You can close this page."
	if refused := q.Get("error"); refused != "" {
		text = "Not authorized: " + html.EscapeString(refused)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintln(w, text)
	select {
	case c.back <- &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}:
	default:
	}
}
