package app

import (
	"context"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/wake"
	"github.com/ossicle/ossicle/notice"
)

// piggyback ends the result of every tool with what is pending for an agent that
// somebody else started. Nobody tells us whether a result arrived there; what our
// tool returned counts as shown (D-2). An agent that we host has more to go by, see
// attachment.piggyback.
func piggyback(inbox *notice.Inbox, agent string, log *slog.Logger) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			result, ok := res.(*mcp.CallToolResult)
			if err != nil || !ok {
				return res, err
			}
			pull, err := wake.Append(ctx, inbox, agent, result)
			if err == nil {
				err = pull.Seen(context.WithoutCancel(ctx))
			}
			if err != nil {
				log.LogAttrs(ctx, slog.LevelWarn, "inbox failed", logattr.Reason("piggyback"), logattr.Err(err))
			}
			return res, nil
		}
	}
}
