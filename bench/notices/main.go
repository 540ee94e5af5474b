// Command notices measures how long a change takes to become a notice, the
// debounce excluded: many watches, each on a resource of its own, on one server
// over HTTP. Changes come one after the other, at a steady rate, to resources
// in turn. With -filter every watch has a Python filter, and the number of
// interpreter processes is printed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/listen"
	"github.com/ossicle/ossicle/watch"
)

func main() {
	var o options
	flag.IntVar(&o.watches, "watches", 1000, "number of watches")
	flag.IntVar(&o.changes, "changes", 3000, "number of changes")
	flag.IntVar(&o.rate, "rate", 200, "changes a second")
	flag.BoolVar(&o.filter, "filter", false, "give every watch a Python filter")
	flag.StringVar(&o.monty, "monty", "", "path of the Python interpreter (default: look for it)")
	flag.BoolVar(&o.json, "json", false, "print JSON")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

type options struct {
	watches, changes, rate int
	filter, json           bool
	monty                  string
}

type result struct {
	Watches   int     `json:"watches"`
	Changes   int     `json:"changes"`
	Filter    bool    `json:"filter"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
	MaxMS     float64 `json:"max_ms"`
	Processes int     `json:"interpreter_processes"`
}

func run(o options) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	source := newCounters(o.watches)
	host, err := app.NewHost(source, nil, nil)
	if err != nil {
		return err
	}
	urls, served := make(chan string, 1), make(chan error, 1)
	go func() {
		served <- host.ServeHTTP(ctx, app.HTTPOptions{
			Addr: "127.0.0.1:0", NoAuth: true,
			Ready: func(url string) error { urls <- url; return nil },
		})
	}()
	defer func() { cancel(); <-served; _ = host.Close(context.Background()) }()
	var url string
	select {
	case url = <-urls:
	case err := <-served:
		return err
	}

	c := config.Default()
	c.Watch.Watches, c.Watch.Quiet, c.Watch.MaxWait = o.watches, time.Microsecond, time.Microsecond
	c.Python.Monty = o.monty
	seen := &arrivals{source: source, all: make(chan struct{}, o.changes)}
	client, err := app.NewClient(c, []mcpclient.Spec{{Name: "counters", URL: url}}, &app.ClientOptions{Sink: seen})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close(context.Background()) }()
	if err := startWatches(ctx, client, o); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second / time.Duration(o.rate))
	defer tick.Stop()
	for i := range o.changes {
		<-tick.C
		source.bump(i % o.watches)
	}
	for range o.changes {
		select {
		case <-seen.all:
		case <-time.After(10 * time.Second):
			return fmt.Errorf("only %d of %d changes became notices", len(seen.took), o.changes)
		}
	}
	return seen.print(o)
}

func startWatches(ctx context.Context, client *app.Client, o options) error {
	source := ""
	if o.filter {
		source = "n = event['item']\nf'now {n}'"
	}
	limit := make(chan struct{}, 32)
	var wg sync.WaitGroup
	errs := make(chan error, o.watches)
	for i := range o.watches {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			_, err := client.Watches.Start(ctx, watch.StartRequest{Name: strconv.Itoa(i), URI: uri(i), OnEvent: source})
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// arrivals is the sink: it takes the time of each notice.
type arrivals struct {
	source *counters
	mu     sync.Mutex
	took   []float64
	all    chan struct{}
}

// Notify implements watch.Sink.
func (a *arrivals) Notify(_ context.Context, n watch.Notice) error {
	now := time.Now()
	i, err := strconv.Atoi(n.Watch)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, float64(now.Sub(a.source.changed(i)))/float64(time.Millisecond))
	a.all <- struct{}{}
	return nil
}

func (a *arrivals) print(o options) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.Sorted(slices.Values(a.took))
	at := func(q float64) float64 { return all[min(len(all)-1, int(q*float64(len(all))))] }
	r := result{o.watches, len(all), o.filter, at(0.50), at(0.99), all[len(all)-1], interpreters()}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	fmt.Printf("%d watches, %d changes at %d/s, filter %t: p50 %.2f ms, p99 %.2f ms, max %.2f ms; %d interpreter processes\n",
		r.Watches, r.Changes, o.rate, r.Filter, r.P50MS, r.P99MS, r.MaxMS, r.Processes)
	return nil
}

// interpreters counts our children that run the interpreter.
func interpreters() int {
	tasks, err := os.ReadDir("/proc")
	if err != nil {
		return -1
	}
	n := 0
	for _, t := range tasks {
		line, err := os.ReadFile("/proc/" + t.Name() + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(line), ") ")
		f := strings.Fields(rest)
		if strings.Contains(string(line), "(monty)") && len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

func uri(i int) string { return "counter://" + strconv.Itoa(i) }

// counters is a source of many numbers, each a resource of its own.
type counters struct {
	mu       sync.Mutex
	values   []int
	at       []time.Time
	watchers map[string]map[*func()]struct{}
}

func newCounters(n int) *counters {
	return &counters{values: make([]int, n), at: make([]time.Time, n), watchers: map[string]map[*func()]struct{}{}}
}

func (c *counters) bump(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values[i]++
	c.at[i] = time.Now()
	for w := range c.watchers[uri(i)] {
		(*w)()
	}
}

func (c *counters) changed(i int) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[i]
}

// Owns implements listen.Source.
func (c *counters) Owns(uri string) bool { return strings.HasPrefix(uri, "counter://") }

// List implements listen.Source.
func (c *counters) List(context.Context) (listen.Listing, error) {
	return listen.Listing{Templates: []listen.Template{{URITemplate: "counter://{n}", Name: "counter"}}}, nil
}

// Read implements listen.Source.
func (c *counters) Read(_ context.Context, uri string, _ listen.ReadOptions) ([]listen.Contents, error) {
	i, err := strconv.Atoi(strings.TrimPrefix(uri, "counter://"))
	if err != nil || i < 0 || i >= len(c.values) {
		return nil, &listen.NotFoundError{URI: uri}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return []listen.Contents{{URI: uri, MIMEType: "application/json", Text: fmt.Sprintf(`{"value":%d}`, c.values[i])}}, nil
}

// Watch implements listen.Source.
func (c *counters) Watch(_ context.Context, uri string, changed func()) (func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers[uri] == nil {
		c.watchers[uri] = map[*func()]struct{}{}
	}
	c.watchers[uri][&changed] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers[uri], &changed)
	}, nil
}
