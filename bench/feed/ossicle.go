//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ossicle is the program of this tree, with its feed in SQLite.
type ossicle struct {
	token *string
	// memory keeps the file in memory, for the comparison with products that keep
	// nothing on disk: an event waits for no disk before it is acknowledged.
	memory bool
}

const inMemory = "/dev/shm"

func (o ossicle) name() string {
	if o.memory {
		return "ossicle tmpfs"
	}
	return "ossicle"
}

func (o ossicle) tune(string) (product, string) {
	if o.memory {
		return o, inMemory
	}
	return o, ""
}

func (ossicle) build(ctx context.Context, bin string) error {
	return goBuild(ctx, "..", nil, "build", "-trimpath", "-o", filepath.Join(bin, "ossicle"), "./cmd/ossicle")
}

func (ossicle) command(bin, dir string, addr netip.AddrPort, tls *certificate) (*exec.Cmd, error) {
	args := []string{"serve", "--listen", addr.String(), "--data", dir}
	if tls != nil {
		args = append(args, "--tls-cert", tls.cert, "--tls-key", tls.key)
	}
	return exec.Command(filepath.Join(bin, "ossicle"), args...), nil
}

// ready reads the token that the server has made for its own machine.
func (o ossicle) ready(ctx context.Context, dir string) error {
	for deadline := time.Now().Add(startPatience); ; time.Sleep(20 * time.Millisecond) {
		token, err := os.ReadFile(filepath.Join(dir, "token"))
		if *o.token = strings.TrimSpace(string(token)); err == nil && *o.token != "" {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("read token: %w", errors.Join(err, ctx.Err()))
		}
	}
}

func (o ossicle) authorization() string { return "Bearer " + *o.token }

func (o ossicle) subscribe(addr netip.AddrPort, since string) []byte {
	if since != "" {
		since = "Last-Event-ID: " + since
	}
	return request(addr.String(), "/v1/events?topic=feed", "Authorization: "+o.authorization(), since)
}

func (o ossicle) publish(ctx context.Context, addr netip.AddrPort, payload string) (*http.Request, error) {
	req, err := newPost(ctx, addr, "/v1/topics/feed/events", "application/json", `{"data":`+payload+`}`)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", o.authorization())
	return req, nil
}

func (ossicle) position(stream string, _, missed int) string { return idOf(stream, missed) }
