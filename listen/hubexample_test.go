package listen_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/listen"
)

// A server that knows itself when its resources change.
func ExampleHub() {
	ctx := context.Background()
	server := mcp.NewServer(&mcp.Implementation{Name: "clock", Version: "1"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Resources: &mcp.ResourceCapabilities{Subscribe: true}},
	})
	hub := listen.NewHub(nil, nil)
	hub.Attach(server)
	sdk := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	web := httptest.NewServer(hub.Handler(sdk))
	defer web.Close()

	stream, err := listen.NewHTTPOpener(web.URL, nil).Open(ctx, listen.Filter{ResourceSubscriptions: []string{"clock://now"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	hub.Updated("clock://now")
	news, err := stream.Next(ctx)
	fmt.Println(news.URIs, err)

	if err := hub.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	_, err = stream.Next(ctx)
	fmt.Println(err)
	// Output:
	// [clock://now] <nil>
	// listen ended by the server
}

// counters is a source: one resource for each name, which any number may watch.
type counters struct {
	template *listen.URITemplate

	mu       sync.Mutex
	values   map[string]int
	watchers map[string]func()
}

func (c *counters) Owns(uri string) bool {
	_, ok := c.template.Match(uri)
	return ok
}

func (c *counters) List(context.Context) (listen.Listing, error) {
	return listen.Listing{Templates: []listen.Template{{
		URITemplate: c.template.String(), Name: "counter", MIMEType: "text/plain",
		Description: `A counter. Example: watch_start(name="hits", uri="counter://hits")`,
	}}}, nil
}

func (c *counters) Read(_ context.Context, uri string, _ listen.ReadOptions) ([]listen.Contents, error) {
	vars, _ := c.template.Match(uri)
	c.mu.Lock()
	defer c.mu.Unlock()
	value, ok := c.values[vars["name"]]
	if !ok {
		return nil, &listen.NotFoundError{URI: uri, Hint: "add to it first"}
	}
	return []listen.Contents{{URI: uri, MIMEType: "text/plain", Text: fmt.Sprint(value)}}, nil
}

// Watch is called once for a URI, by the registry: the source counts nobody.
func (c *counters) Watch(_ context.Context, uri string, changed func()) (stop func(), err error) {
	vars, _ := c.template.Match(uri)
	name := vars["name"]
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.values[name]; !ok {
		return nil, &listen.NotFoundError{URI: uri, Hint: "add to it first"}
	}
	c.watchers[name] = changed
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, name)
	}, nil
}

func (c *counters) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values[name] += n
	if changed := c.watchers[name]; changed != nil {
		changed()
	}
}

// A source of one's own, served to all who listen and read through the registry.
func ExampleSource() {
	ctx := context.Background()
	template, err := listen.ParseTemplate("counter://{name}")
	if err != nil {
		fmt.Println(err)
		return
	}
	hits := &counters{template: template, values: map[string]int{"hits": 1}, watchers: map[string]func(){}}
	registry := listen.NewRegistry(nil)
	defer registry.Close()
	if err := registry.Mount(hits); err != nil {
		fmt.Println(err)
		return
	}
	hub := listen.NewHub(registry, nil)
	web := httptest.NewServer(hub.Handler(http.NotFoundHandler()))
	defer web.Close()

	stream, err := listen.NewHTTPOpener(web.URL, nil).Open(ctx, listen.Filter{
		ResourceSubscriptions: []string{"counter://hits", "counter://misses"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("honoured:", stream.Filter().ResourceSubscriptions)

	hits.add("hits", 41)
	news, err := stream.Next(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, uri := range news.URIs {
		contents, err := registry.Read(ctx, uri, listen.ReadOptions{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(uri, "is", contents[0].Text)
	}
	stream.Close()
	if err := hub.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// honoured: [counter://hits]
	// counter://hits is 42
}

// Listens on a pipe, among all the rest. Here both ends are in one process; a
// server on its standard input and output wraps an [mcp.StdioTransport].
func ExampleHub_Transport() {
	ctx := context.Background()
	hub := listen.NewHub(nil, nil)
	server := mcp.NewServer(&mcp.Implementation{Name: "clock", Version: "1"}, nil)
	hub.Attach(server)
	here, there := mcp.NewInMemoryTransports()
	session, err := server.Connect(ctx, hub.Transport(there), nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	mux := listen.NewMux(here, nil)
	client, err := mcp.NewClient(&mcp.Implementation{Name: "listener", Version: "1"}, nil).Connect(ctx, mux, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	stream, err := mux.Open(ctx, listen.Filter{ResourceSubscriptions: []string{"clock://now"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	hub.Updated("clock://now")
	news, err := stream.Next(ctx)
	fmt.Println(news.URIs, err)
	stream.Close()

	_ = client.Close()
	_ = session.Wait()
	// Output: [clock://now] <nil>
}

// The log of a source of events, as one read returns it.
func ExampleRing() {
	ring := listen.NewRing(&listen.RingOptions{MaxEvents: 2})
	for _, name := range []string{"a", "b", "c"} {
		if _, err := ring.Append("ADDED", map[string]string{"object": name}); err != nil {
			fmt.Println(err)
			return
		}
	}
	body := ring.Body(nil)
	fmt.Println(body[len(`{"log":"","`)+len(ring.Log()):])
	after := int64(2)
	body = ring.Body(&after)
	fmt.Println(body[len(`{"log":"","`)+len(ring.Log()):])
	// Output:
	// last_seq":3,"events":[{"seq":2,"type":"ADDED","object":"b"},{"seq":3,"type":"ADDED","object":"c"}]}
	// last_seq":3,"events":[{"seq":3,"type":"ADDED","object":"c"}]}
}

func ExampleURITemplate() {
	template, err := listen.ParseTemplate("kube-events://{namespace}/{resource}{?labelSelector,fieldSelector}")
	if err != nil {
		fmt.Println(err)
		return
	}
	vars, ok := template.Match("kube-events://default/pods?fieldSelector=spec.nodeName%3Da&labelSelector=app%3Dweb")
	fmt.Println(vars["resource"], vars["labelSelector"], vars["fieldSelector"], ok)
	fmt.Println(template.Expand(map[string]string{"namespace": "default", "resource": "pods", "labelSelector": "app=web"}))
	// Output:
	// pods app=web spec.nodeName=a true
	// kube-events://default/pods?labelSelector=app%3Dweb
}
