package feedserver_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/feed/feedtest"
	"github.com/ossicle/ossicle/internal/feedserver"
	"github.com/ossicle/ossicle/internal/httpserver"
)

// childEnv has the test binary be a server, so that its memory and CPU can be
// told from those of the crowd.
const childEnv = "OSSICLE_TEST_FEED_SERVER"

// serveChild serves a feed in memory until its input ends. A line of input
// publishes that many events at once, and is answered when they are in the log.
func serveChild() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := feedtest.NewMemory()
	hub, err := feed.NewHub(ctx, store, nil, &feed.Options{Encode: feedserver.Encode})
	if err != nil {
		return err
	}
	go func() { _ = hub.Run(ctx) }()
	server, err := feedserver.New(hub, hub, store, nil)
	if err != nil {
		return err
	}
	o := httpserver.Options{Addr: "127.0.0.1:0", NoAuth: true, Routes: server.Routes(), Shutdown: server.Shutdown}
	if os.Getenv(childEnv) == "tls" {
		if o.TLS, err = selfSigned(); err != nil {
			return err
		}
	}
	h, err := httpserver.New(noMCP{}, &o)
	if err == nil {
		err = h.Listen(ctx)
	}
	if err != nil {
		return err
	}
	go func() { _ = h.Run(ctx) }()
	_, _ = fmt.Fprintln(os.Stdout, strings.TrimSuffix(h.URL()[strings.LastIndex(h.URL(), "//")+2:], httpserver.MCPPath))
	data := json.RawMessage(`{"pad":"` + strings.Repeat("x", 200-10) + `"}`)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		n, _ := strconv.Atoi(in.Text())
		for range n {
			if _, err := hub.Publish(ctx, []feed.Draft{{Topic: "a", Data: data}}); err != nil {
				return err
			}
		}
		if n < 0 {
			debug.FreeOSMemory()
		}
		_, _ = fmt.Fprintln(os.Stdout, server.Stats().Direct)
	}
	return nil
}

// selfSigned is a certificate that only a client without doubts takes.
func selfSigned() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, nil
}
