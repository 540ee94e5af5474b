package agent

import (
	"context"
	"encoding/json"
)

// Tool is a tool as data: surfaces mount it over MCP, engines that run the
// model loop themselves offer it to the model.
type Tool struct {
	Name        string
	Description string
	InputSchema json.RawMessage // JSON Schema, type object
	ReadOnly    bool
	// Call runs the tool; args is a JSON object or empty. It validates args
	// itself. What the tool has to say about a failure is a ToolResult with
	// IsError; an error is for what the model cannot mend (closed, ctx).
	Call func(ctx context.Context, args json.RawMessage) (ToolResult, error)
}

// ToolResult is what a tool answers.
type ToolResult struct {
	Text    string // never empty; JSON where the value has that shape
	IsError bool
	// EndTurn says that the turn is over: the model ran NO_REPLY as code
	// (specification N-7). The text says so too.
	EndTurn bool
}
