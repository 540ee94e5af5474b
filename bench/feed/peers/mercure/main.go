// Command mercure serves a Mercure hub, the library on net/http, as a peer of the
// comparison in bench/feed. It is a module of its own so that nothing else in the
// tree depends on Mercure.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/dunglas/mercure"
)

func main() {
	addr := flag.String("listen", "127.0.0.1:0", "address")
	key := flag.String("key", "", "HS256 key of publishers")
	bolt := flag.String("bolt", "", "keep the history in this file (default: none)")
	cert := flag.String("cert", "", "serve TLS with this certificate")
	certKey := flag.String("cert-key", "", "and this key")
	flag.Parse()
	if err := run(*addr, *key, *bolt, *cert, *certKey); err != nil {
		fmt.Fprintln(os.Stderr, "mercure:", err)
		os.Exit(1)
	}
}

func run(addr, key, bolt, cert, certKey string) error {
	logger := slog.New(slog.DiscardHandler)
	options := []mercure.Option{
		mercure.WithAnonymous(),
		mercure.WithLogger(logger),
		mercure.WithPublisherJWT([]byte(key), "HS256"),
	}
	if bolt != "" {
		subscribers := mercure.NewSubscriberList(mercure.DefaultSubscriberListCacheSize)
		transport, err := mercure.NewBoltTransport(subscribers, logger, bolt, "", 0, mercure.BoltDefaultCleanupFrequency)
		if err != nil {
			return err
		}
		options = append(options, mercure.WithTransport(transport))
	}
	hub, err := mercure.NewHub(context.Background(), options...)
	if err != nil {
		return err
	}
	if cert != "" {
		return http.ListenAndServeTLS(addr, cert, certKey, hub)
	}
	return http.ListenAndServe(addr, hub)
}
