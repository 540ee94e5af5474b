package wake

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/notice"
)

// Append ends a tool's result with what is pending for the agent that called
// it (specification D-11). It works in every host, because every host shows the
// results of tools to its model.
//
// The caller answers the call, then calls Seen on the returned Pull; if the
// answer could not be given it calls Release. Between the two the notices are in
// its hand, and free again after notice.DefaultLease should the process die.
// With nothing pending res is left alone.
func Append(ctx context.Context, in *notice.Inbox, agent string, res *mcp.CallToolResult) (*notice.Pull, error) {
	p, err := in.Pull(ctx, agent, "piggyback", nil)
	if err != nil {
		return nil, err
	}
	if len(p.Notices) > 0 {
		res.Content = append(res.Content, &mcp.TextContent{Text: p.Text()})
	}
	return p, nil
}
