package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/jsonx"
)

// Tool is a tool as data.
type Tool struct {
	Name        string
	Title       string
	Description string
	// InputSchema is a JSON Schema of type object. Empty means no arguments.
	InputSchema json.RawMessage
	// ReadOnly, Destructive, Idempotent and OpenWorld are the hints of MCP. All
	// four are told to the client: what is false here is false there, whatever
	// the protocol's default is.
	ReadOnly, Destructive, Idempotent, OpenWorld bool
	// Call runs the tool; args is a JSON object or empty, see [DecodeArgs]. The
	// error is what the model is told, as a tool error, so that it can mend its
	// call; a *jsonrpc.Error is a protocol error instead.
	Call func(ctx context.Context, args json.RawMessage) (ToolResult, error)
}

// ToolResult is what a tool answers.
type ToolResult struct {
	Text    string // JSON where the value has that shape, with exact numbers
	IsError bool
}

// noArguments is the schema of a tool without arguments.
const noArguments = `{"type":"object","additionalProperties":false}`

// DecodeArgs decodes the arguments of a tool into v, a pointer to a struct with
// json tags. Names match by case; unknown and duplicate names are errors; a
// field of type jsontext.Value or json.RawMessage keeps its literal. The error
// is fit for the model.
func DecodeArgs(args json.RawMessage, v any) error {
	if len(args) == 0 {
		args = json.RawMessage(`{}`)
	}
	err := jsonv2.Unmarshal(args, v, jsonv2.RejectUnknownMembers(true))
	if err != nil {
		return fmt.Errorf("read arguments: %s; see the tool's inputSchema", jsonx.Explain(err))
	}
	return nil
}

func (t *Tool) check() error {
	switch {
	case t.Name == "":
		return errors.New("a tool has no name")
	case t.Call == nil:
		return fmt.Errorf("tool %q has no Call", t.Name)
	case len(t.InputSchema) == 0:
		return nil
	}
	var schema struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(t.InputSchema, &schema); err != nil || schema.Type != "object" {
		return fmt.Errorf("tool %q: the input schema is not a JSON Schema of type object", t.Name)
	}
	return nil
}

func (t *Tool) mcp() *mcp.Tool {
	schema := t.InputSchema
	if len(schema) == 0 {
		schema = json.RawMessage(noArguments)
	}
	return &mcp.Tool{
		Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: schema,
		Annotations: &mcp.ToolAnnotations{
			Title: t.Title, ReadOnlyHint: t.ReadOnly, IdempotentHint: t.Idempotent,
			DestructiveHint: &t.Destructive, OpenWorldHint: &t.OpenWorld,
		},
	}
}

func (t *Tool) handle(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	res, err := t.Call(ctx, req.Params.Arguments)
	var wire *jsonrpc.Error
	switch {
	case errors.As(err, &wire), err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		res = ToolResult{Text: err.Error(), IsError: true}
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: res.Text}}, IsError: res.IsError}, nil
}
