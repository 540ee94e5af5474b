package interop

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ossicle/ossicle/internal/app"
	"github.com/ossicle/ossicle/internal/config"
	"github.com/ossicle/ossicle/internal/mcpclient"
	"github.com/ossicle/ossicle/watch"
)

// The reference server as a process of its own over stdio: a write through its
// tool becomes a notice of the difference, by way of subscriptions/listen. Two
// writes within the debounce are one notice; the resource itself takes no
// writes.
//
// W-024, W-232, W-253, W-270.
func TestMemoOverStdio(t *testing.T) {
	t.Parallel()
	notices := make(chan watch.Notice, 16)
	c := config.Default()
	c.Watch.Quiet = 5 * time.Second // in which a busy machine writes twice
	client, err := app.NewClient(c, []mcpclient.Spec{{Name: "memo", Command: program, Args: []string{"memo"}}}, &app.ClientOptions{Sink: sink(notices)})
	if err != nil {
		t.Fatal(err)
	}
	defer closeClient(t, client)
	memo := client.Servers.Server("memo")
	call := func(tool, args string) {
		t.Helper()
		if _, err := memo.CallTool(t.Context(), tool, json.RawMessage(args)); err != nil {
			t.Fatal(err)
		}
	}
	call("memo_set", `{"key":"todo","value":"tea"}`)
	if _, err := client.Watches.Start(t.Context(), watch.StartRequest{Name: "notes", URI: "memo://notes"}); err != nil {
		t.Fatal(err)
	}
	call("memo_set", `{"key":"owner","value":"somebody"}`)
	call("memo_set", `{"key":"todo","value":"coffee"}`)
	n := next(t, notices)
	slices.Sort(n.Lines) // two reads tell in the order of the writes, one in that of the keys
	if diff := cmp.Diff([]string{"ADDED owner", "MODIFIED todo (tea→coffee)"}, n.Lines); diff != "" {
		t.Error(diff)
	}
	call("memo_delete", `{"key":"todo"}`)
	if n := next(t, notices); n.Text() != "DELETED todo" {
		t.Errorf("got %q", n.Lines)
	}
	// Nothing but the tools of memo can write: there is no method for it.
	if _, err := memo.CallTool(t.Context(), "resources/write", json.RawMessage(`{"uri":"memo://notes"}`)); err == nil {
		t.Error("a resource took a write")
	}
}
