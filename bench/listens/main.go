//go:build linux

// Command listens compares two servers of subscriptions/listen side by side:
// our hub and the SDK's own server. For each number of listens it starts each
// server as a process of its own, opens that many listens on one resource, and
// measures what a listen costs in memory and how long an update takes to reach
// the last subscriber. The two take turns, and the figures that count are the
// ratios.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/listen"
)

const uri = "bench://counter"

func main() {
	serve := flag.String("serve", "", "run as a server: hub or sdk")
	counts := flag.String("n", "1000,5000", "numbers of listens")
	updates := flag.Int("updates", 30, "updates of each round")
	rounds := flag.Int("rounds", 3, "rounds of each server, in turns")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	if err := run(*serve, *counts, *updates, *rounds, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "listens:", err)
		os.Exit(1)
	}
}

func run(serve, counts string, updates, rounds int, asJSON bool) error {
	if serve != "" {
		return server(serve)
	}
	var all []comparison
	for _, text := range strings.Split(counts, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		c, err := compare(n, updates, rounds)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(all)
	}
	fmt.Printf("%8s %12s %12s %7s %12s %12s %7s\n", "listens", "hub KiB/each", "sdk KiB/each", "ratio", "hub last ms", "sdk last ms", "ratio")
	for _, c := range all {
		fmt.Printf("%8d %12.1f %12.1f %7.2f %12.2f %12.2f %7.2f\n", c.Listens, c.Hub.KiB, c.SDK.KiB, c.Hub.KiB/c.SDK.KiB,
			c.Hub.LastMS, c.SDK.LastMS, c.Hub.LastMS/c.SDK.LastMS)
	}
	return nil
}

// figures are medians over the rounds.
type figures struct {
	KiB    float64 `json:"kib_per_listen"`     // resident memory of the server process
	LastMS float64 `json:"last_subscriber_ms"` // median over the updates
}

type comparison struct {
	Listens int     `json:"listens"`
	Hub     figures `json:"hub"`
	SDK     figures `json:"sdk"`
}

func compare(n, updates, rounds int) (comparison, error) {
	memory, last := map[string][]float64{}, map[string][]float64{}
	for range rounds {
		for _, kind := range []string{"hub", "sdk"} {
			f, err := measure(kind, n, updates)
			if err != nil {
				return comparison{}, fmt.Errorf("%s with %d listens: %w", kind, n, err)
			}
			memory[kind] = append(memory[kind], f.KiB)
			last[kind] = append(last[kind], f.LastMS)
		}
	}
	return comparison{
		Listens: n,
		Hub:     figures{median(memory["hub"]), median(last["hub"])},
		SDK:     figures{median(memory["sdk"]), median(last["sdk"])},
	}, nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

func measure(kind string, n, updates int) (f figures, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return f, err
	}
	cmd := exec.CommandContext(ctx, self, "-serve", kind)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return f, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return f, err
	}
	if err := cmd.Start(); err != nil {
		return f, err
	}
	defer func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	buf := make([]byte, 128)
	k, err := out.Read(buf)
	if err != nil {
		return f, err
	}
	addr := strings.TrimSpace(string(buf[:k]))
	before, err := resident(addr)
	if err != nil {
		return f, err
	}
	subs, err := open(ctx, addr, uri, n)
	if err != nil {
		return f, err
	}
	defer subs.close()
	var last []float64
	for i := range updates + 3 {
		start := time.Now()
		if err := get(addr, "/fire", nil); err != nil {
			return f, err
		}
		if err := subs.await(ctx, i+1); err != nil {
			return f, err
		}
		if i >= 3 { // the first ones warm up
			last = append(last, float64(time.Since(start))/float64(time.Millisecond))
		}
	}
	after, err := resident(addr)
	if err != nil {
		return f, err
	}
	return figures{KiB: float64(after-before) / float64(n) / 1024, LastMS: median(last)}, nil
}

// resident asks the server for its resident memory, after it gave back what it
// does not use.
func resident(addr string) (int64, error) {
	var bytes int64
	return bytes, get(addr, "/memory", &bytes)
}

func get(addr, path string, v any) error {
	resp, err := http.Get("http://" + addr + path)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if v == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

// server serves one resource until standard input ends.
func server(kind string) error {
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "0"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		Capabilities:       &mcp.ServerCapabilities{Resources: &mcp.ResourceCapabilities{Subscribe: true}},
	})
	s.AddResource(&mcp.Resource{URI: uri, Name: "counter"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, Text: "0"}}}, nil
	})
	var handler http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	fire := func() { _ = s.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: uri}) }
	if kind == "hub" {
		hub := listen.NewHub(nil, &listen.HubOptions{MaxListens: 100_000})
		handler, fire = hub.Handler(handler), func() { hub.Updated(uri) }
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler)
	mux.HandleFunc("/fire", func(http.ResponseWriter, *http.Request) { fire() })
	mux.HandleFunc("/memory", func(w http.ResponseWriter, _ *http.Request) {
		debug.FreeOSMemory()
		statm, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(pages * int64(os.Getpagesize()))
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	return http.Serve(ln, mux)
}
