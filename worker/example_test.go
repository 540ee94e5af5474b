package worker_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/worker"
)

// A host and a worker that dials it. In earnest they are two programs, and the
// token is one that the host can verify.
func Example() {
	ctx := context.Background()
	host := worker.NewHost(tokens{}, nil, nil)
	defer host.Close()
	server := httptest.NewServer(host)
	defer server.Close()
	session, err := host.Create(ctx, "ses_1", worker.Profile{Name: "small", Budgets: worker.DefaultBudgets(), Dial: worker.DefaultDial, Tools: []string{"greet"}})
	if err != nil {
		fmt.Println(err)
		return
	}

	inner := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	type who struct {
		Name string `json:"name"`
	}
	mcp.AddTool(inner, &mcp.Tool{Name: "greet"}, func(_ context.Context, _ *mcp.CallToolRequest, a who) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello " + a.Name}}}, nil, nil
	})
	exit := make(chan worker.Exit, 1)
	go func() {
		exit <- worker.New(inner, worker.Environment{
			SessionID: "ses_1", ControlURL: strings.Replace(server.URL, "http", "ws", 1),
			Token: func() (string, error) { return "t-ses_1", nil },
		}, nil).Run(ctx)
	}()

	res, err := session.CallTool(ctx, "greet", jsontext.Value(`{"name":"there"}`), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Content[0].(*mcp.TextContent).Text)
	rec, err := session.Release(ctx, worker.ReasonExplicit)
	fmt.Println(rec.State, rec.OutputsFlushed, err)
	fmt.Println("exit", (<-exit).Code)
	// Output:
	// hello there
	// released true <nil>
	// exit 0
}
