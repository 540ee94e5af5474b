package gateway

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/version"
	"github.com/ossicle/ossicle/worker"
)

// Toolbox is what a sandbox offers; *worker.Session is one.
type Toolbox interface {
	Tools() []*mcp.Tool
	CallTool(ctx context.Context, name string, arguments jsontext.Value, o *worker.CallOptions) (*mcp.CallToolResult, error)
}

// ToolServer returns an MCP server with the tools of a sandbox, for an agent that
// uses it as one more server. The set is that of the moment; a call to a tool that
// is gone is answered with an error. Results pass through as the worker wrote
// them.
func ToolServer(s Toolbox) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "sandbox", Version: version.Number()}, nil)
	for _, t := range s.Tools() {
		server.AddTool(t, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			o := &worker.CallOptions{}
			if token := req.Params.GetProgressToken(); token != nil {
				o.Progress = func(p worker.Progress) {
					_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
						ProgressToken: token, Progress: p.Progress, Total: p.Total, Message: p.Message,
					})
				}
			}
			res, err := s.CallTool(ctx, t.Name, jsontext.Value(req.Params.Arguments), o)
			return res, forAgent(err)
		})
	}
	return server
}

// forAgent keeps error codes of the channel from the Go SDK, which has meanings
// of its own for them.
func forAgent(err error) error {
	var remote *worker.RemoteError
	if !errors.As(err, &remote) {
		return err
	}
	data, _ := json.Marshal(map[string]int64{"workerCode": remote.Code})
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: remote.Error(), Data: data}
}
