package interop

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/watch"
)

func sink(notices chan<- watch.Notice) watch.Sink {
	return watch.SinkFunc(func(ctx context.Context, n watch.Notice) error {
		select {
		case notices <- n:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func next(t *testing.T, notices <-chan watch.Notice) watch.Notice {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case n := <-notices:
		return n
	case <-timer.C:
		t.Fatalf("no notice in %s", patience)
		panic("unreachable")
	}
}

func put(t *testing.T, client *app.Client, server, card string) {
	t.Helper()
	if _, err := client.Servers.Server(server).CallTool(t.Context(), "put_card", json.RawMessage(card)); err != nil {
		t.Fatal(err)
	}
}

func closeClient(t *testing.T, client *app.Client) {
	t.Helper()
	if err := client.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}
