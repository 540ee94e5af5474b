package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// EnvBridge is the environment variable by which a bridge learns where to go: the
// address is a secret, and command lines are not.
const EnvBridge = "OSSICLE_BRIDGE"

// Bridge relays between an MCP client on a pipe, and the way in of a session at
// url, until either ends: for agents that take no server but one on its standard
// streams (specification N-23). Messages pass unread. It returns nil at the end of
// in.
func Bridge(ctx context.Context, url string, in io.ReadCloser, out io.WriteCloser) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	far, err := (&mcp.SSEClientTransport{Endpoint: url}).Connect(ctx)
	if err != nil {
		return fmt.Errorf("reach session: %w", err)
	}
	near, err := (&mcp.IOTransport{Reader: in, Writer: out}).Connect(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("serve pipe: %w", err), far.Close())
	}
	var first sync.Once
	var cause error
	var ends sync.WaitGroup
	relay := func(from, to mcp.Connection) {
		err := pass(ctx, from, to)
		first.Do(func() {
			cause = err
			stop()
			_, _ = near.Close(), far.Close()
		})
	}
	ends.Go(func() { relay(near, far) })
	ends.Go(func() { relay(far, near) })
	ends.Wait()
	if cause != nil && !errors.Is(cause, io.EOF) {
		return fmt.Errorf("relay messages: %w", cause)
	}
	return nil
}

// pass hands on messages until one side ends.
func pass(ctx context.Context, from, to mcp.Connection) error {
	for {
		message, err := from.Read(ctx)
		if err == nil {
			err = to.Write(ctx, message)
		}
		if err != nil {
			return err
		}
	}
}
