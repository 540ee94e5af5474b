//nolint:staticcheck // The scenarios ask for sampling, roots and logging, which are deprecated.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/mcpserver"
)

// none is the schema of a tool without arguments.
const none = `{"type":"object","properties":{}}`

// richSchema uses the parts of JSON Schema 2020-12 that must survive a list.
const richSchema = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object",
	"$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
	"properties": {
		"name": {"type": "string"},
		"address": {"$ref": "#/$defs/address"},
		"contactMethod": {"type": "string", "enum": ["phone", "email"]},
		"phone": {"type": "string"},
		"email": {"type": "string"}
	},
	"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
	"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
	"then": {"required": ["phone"]},
	"else": {"required": ["email"]},
	"additionalProperties": false
}`

// transient comes and goes.
var transient = mcpserver.Tool{
	Name: "test_transient_tool", Description: "Is there to be announced",
	Call: func(context.Context, json.RawMessage) (mcpserver.ToolResult, error) {
		return mcpserver.ToolResult{Text: "transient"}, nil
	},
}

func addTool(s *mcp.Server, name, description, schema string, h mcp.ToolHandler) {
	s.AddTool(&mcp.Tool{Name: name, Description: description, InputSchema: json.RawMessage(schema)}, h)
}

func text(s string) *mcp.CallToolResult { return content(&mcp.TextContent{Text: s}) }

func content(blocks ...mcp.Content) *mcp.CallToolResult { return &mcp.CallToolResult{Content: blocks} }

func embedded(uri string) *mcp.EmbeddedResource {
	return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "An embedded resource."}}
}

// addContentTools adds the tools that answer at once.
func addContentTools(s *mcp.Server) {
	image := &mcp.ImageContent{MIMEType: "image/png", Data: decode(pixelPNG)}
	fixed := map[string]*mcp.CallToolResult{
		"test_simple_text":            text("This is a simple text response for testing."),
		"test_image_content":          content(image),
		"test_audio_content":          content(&mcp.AudioContent{MIMEType: "audio/wav", Data: decode(silenceWAV)}),
		"test_embedded_resource":      content(embedded("test://embedded-resource")),
		"test_multiple_content_types": content(&mcp.TextContent{Text: "Text, an image and a resource:"}, image, embedded("test://mixed-content-resource")),
		"test_streaming_elicitation":  text("Nothing but this response is on its stream."),
		"test_error_handling":         {Content: text("This tool always fails.").Content, IsError: true},
	}
	for name, result := range fixed {
		addTool(s, name, "Answers with something fixed", none, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			r := *result // the SDK writes into it
			return &r, nil
		})
	}
	addTool(s, "test_tool_with_logging", "Logs three lines while it runs", none, logThrice)
	addTool(s, "test_logging_tool", "Logs a line to those who asked for it", none, logOnce)
	addTool(s, "test_tool_with_progress", "Tells of its progress three times", none, progressThrice)
	addTool(s, "test_reconnection", "Closes its stream before it answers", none, closeStream)
	addTool(s, "test_missing_capability", "Needs a client that can sample", none, needSampling)
	addTool(s, "json_schema_2020_12_tool", "Has a rich schema", richSchema, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(string(req.Params.Arguments)), nil
	})
	addTool(s, "test_x_mcp_header", "Has an argument that a header repeats",
		`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}}}`,
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return text(string(req.Params.Arguments)), nil
		})
}

// pause lies between two notifications, as the scenarios ask.
const pause = 50 * time.Millisecond

func wait(ctx context.Context) error {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func logThrice(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	for i, line := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
		if i > 0 {
			if err := wait(ctx); err != nil {
				return nil, err
			}
		}
		if err := req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: line}); err != nil {
			return nil, err
		}
	}
	return text("Three lines were logged."), nil
}

func logOnce(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if err := req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: "test_logging_tool"}); err != nil {
		return nil, err
	}
	return text("A line was logged, if it was asked for."), nil
}

func progressThrice(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	token := req.Params.GetProgressToken()
	for _, p := range []float64{0, 50, 100} {
		if p > 0 {
			if err := wait(ctx); err != nil {
				return nil, err
			}
		}
		if token == nil {
			continue
		}
		if err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: p, Total: 100}); err != nil {
			return nil, err
		}
	}
	return text(fmt.Sprint(token)), nil
}

func closeStream(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if req.Extra != nil && req.Extra.CloseSSEStream != nil {
		req.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: pause})
	}
	if err := wait(ctx); err != nil {
		return nil, err
	}
	return text("The stream was closed and came back."), nil
}

// needSampling fails with the error for a capability that was not declared.
func needSampling(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if caps := req.ClientCapabilities(); caps != nil && caps.Sampling != nil {
		return text("The client can sample."), nil
	}
	data, err := json.Marshal(mcp.MissingRequiredClientCapabilityData{RequiredCapabilities: &mcp.ClientCapabilities{Sampling: &mcp.SamplingCapabilities{}}})
	if err != nil {
		return nil, err
	}
	return nil, &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "this tool needs a client with the sampling capability", Data: data}
}
