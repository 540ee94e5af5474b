package main

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func message(c mcp.Content) *mcp.PromptMessage { return &mcp.PromptMessage{Role: "user", Content: c} }

func addPrompt(s *mcp.Server, p *mcp.Prompt, words string) {
	s.AddPrompt(p, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{message(&mcp.TextContent{Text: words})}}, nil
	})
}

func addPrompts(s *mcp.Server) {
	addPrompt(s, &mcp.Prompt{Name: "test_simple_prompt", Description: "A prompt without arguments"}, "This is a simple prompt for testing.")
	s.AddPrompt(&mcp.Prompt{
		Name: "test_prompt_with_arguments", Description: "A prompt with two arguments",
		Arguments: []*mcp.PromptArgument{{Name: "arg1", Description: "The first", Required: true}, {Name: "arg2", Description: "The second", Required: true}},
	}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		a := req.Params.Arguments
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
			message(&mcp.TextContent{Text: fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", a["arg1"], a["arg2"])}),
		}}, nil
	})
	s.AddPrompt(&mcp.Prompt{
		Name: "test_prompt_with_embedded_resource", Description: "A prompt with a resource in it",
		Arguments: []*mcp.PromptArgument{{Name: "resourceUri", Description: "The resource", Required: true}},
	}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
			message(embedded(req.Params.Arguments["resourceUri"])), message(&mcp.TextContent{Text: "Please process the resource above."}),
		}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "test_prompt_with_image", Description: "A prompt with an image in it"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
			message(&mcp.ImageContent{MIMEType: "image/png", Data: decode(pixelPNG)}), message(&mcp.TextContent{Text: "Please analyze the image above."}),
		}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "test_input_required_result_prompt", Description: "A prompt that asks for context first"}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		c := accepted(req.Params.InputResponses, "user_context")
		if c == nil {
			return &mcp.GetPromptResult{InputRequests: asks{"user_context": askFor("Please give context", `"context":{"type":"string"}`, "context")}}, nil
		}
		words, _ := c["context"].(string)
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{message(&mcp.TextContent{Text: "Context: " + words})}}, nil
	})
}
