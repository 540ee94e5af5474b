package watch_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ossicle/ossicle/watch"
	"github.com/ossicle/ossicle/watch/watchtest"
)

// A program that is told of changes in a resource.
func ExampleManager() {
	server := watchtest.NewServer("memo") // in a program: a connection to an MCP server
	server.Add("memo://notes", "application/json", `{"todo":"buy milk"}`)

	notices := make(chan watch.Notice)
	sink := watch.SinkFunc(func(ctx context.Context, n watch.Notice) error {
		select {
		case notices <- n:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	m := watch.NewManager([]watch.Server{server}, nil, sink, &watch.Options{Limits: watch.Limits{Quiet: time.Millisecond}})
	defer m.Close()

	started, err := m.Start(context.Background(), watch.StartRequest{Name: "notes", URI: "memo://notes"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("watching", started.URI, "as", started.Shape)

	server.Change("memo://notes", `{"todo":"buy bread"}`)
	fmt.Println((<-notices).Text())
	// Output:
	// watching memo://notes as state
	// MODIFIED todo (buy milk→buy bread)
}

// The diff alone, of two reads of a list.
func ExampleDiff() {
	old := watch.ParseState([]byte(`[{"id":9007199254740993,"phase":"Pending"},{"id":2}]`), nil)
	now := watch.ParseState([]byte(`[{"id":9007199254740993,"phase":"Running"},{"id":3}]`), old)
	for _, e := range watch.Diff(old, now) {
		fmt.Println(e.Type, e.Key, e.Changed)
	}
	// Output:
	// MODIFIED 9007199254740993 [phase]
	// ADDED 3 []
	// DELETED 2 []
}
