package interop

import (
	"fmt"
	"testing"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/watch"
)

// A server on the official TypeScript SDK pushes, and a person is told: over
// HTTP, with the program in three processes as one would use it.
//
// W-002, W-004, W-013, M-13.
func TestTypeScriptServerOverHTTP(t *testing.T) {
	t.Parallel()
	server := start(t, nil, node(t), script(t, "server.mjs"), "http")
	url := "http://127.0.0.1:" + server.await("") + "/mcp"
	w := start(t, nil, program, "watch", "board://cards", "--mcp-http", url, "--quiet", "200ms", "--json", "-v", "--log-format", "json")
	w.awaitLog("watch.started")
	must(t, "call", "put_card", "id=c2", "title=second", "--mcp-http", url)
	w.await(`"ADDED c2"`)
	must(t, "call", "put_card", "id=c1", "column=done", "--mcp-http", url)
	w.await(`MODIFIED c1 (column: todo→done)`)

	// Ended politely by the server, the listen is opened again and goes on.
	server.say("close")
	w.awaitLog("watch.resubscribing")
}

// Over a pipe the one process serves reads, tools and the listen alike.
//
// M-11, W-085, WA-15.
func TestTypeScriptServerOverStdio(t *testing.T) {
	t.Parallel()
	notices := make(chan watch.Notice, 16)
	c := config.Default()
	c.Watch.Quiet = 1
	c.Python.Monty = peer(t, "@pydantic", "monty-linux-x64-gnu", "monty")
	client, err := app.NewClient(c, []mcpclient.Spec{{Name: "board", Command: node(t), Args: []string{script(t, "server.mjs"), "stdio"}}},
		&app.ClientOptions{Sink: sink(notices)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeClient(t, client)
	started, err := client.Watches.Start(t.Context(), watch.StartRequest{Name: "b", URI: "board://cards", OnEvent: `
card = await get_card(id=event["key"])
f"{card['id']} is {card['title']}"
`})
	if err != nil || started.Shape != watch.ShapeState {
		t.Fatalf("%+v, %v", started, err)
	}
	put(t, client, "board", `{"id":"c7","title":"lucky"}`)
	if n := next(t, notices); n.Text() != "c7 is lucky" {
		t.Fatalf("got %q", n.Lines)
	}
	// A tool that does not say that it only reads is not a filter's to call.
	_, err = client.Watches.Start(t.Context(), watch.StartRequest{Name: "bad", URI: "board://cards", OnEvent: `await put_card(id="x")`})
	if err == nil {
		t.Fatal("a filter may write")
	}
}

// A client on the official TypeScript SDK hears our server, in both eras'
// transports.
//
// M-1, M-3, W-230, W-231.
func TestTypeScriptClientHearsUs(t *testing.T) {
	t.Parallel()
	url := memoHTTP(t)
	for name, args := range map[string][]string{
		"http":  {"http", url},
		"stdio": {"stdio", program, "memo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := start(t, nil, append([]string{node(t), script(t, "client.mjs"), "memo://notes"}, args...)...)
			client.await(`"honored"`, `memo://notes`)
			for i := range 3 {
				client.say(fmt.Sprintf(`{"tool":"memo_set","args":{"key":"%s%d","value":%d}}`, name, i, i))
				client.await(`"updated":"memo://notes"`, fmt.Sprintf(`\"%s%d\":%d`, name, i, i))
			}
		})
	}
}
