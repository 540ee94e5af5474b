package mcpserver

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/logattr"
)

// middleware is what every request passes, outermost first. An observer of
// methods, eras and clients (specification A-5) belongs at its front, where it
// sees each request once and with its final result.
func (s *Server) middleware() []mcp.Middleware {
	return []mcp.Middleware{s.mapErrors, s.dropCacheFields, withCaller, s.bound, s.authorize, s.serveResources}
}

// mapErrors turns every error, and every panic, into a JSON-RPC error.
func (s *Server) mapErrors(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			if v := recover(); v != nil {
				s.log.Error("request panicked", methodAttr(method), logattr.Reason(fmt.Sprint(v)), stackAttr(debug.Stack()))
				res, err = nil, newError(codeInternal, "internal error in "+method+": the server goes on; its log has the details", nil)
			}
		}()
		res, err = next(ctx, method, req)
		if err != nil {
			wire := toWire(err)
			if wire.Code == codeInternal {
				s.log.Warn("request failed", methodAttr(method), logattr.Err(err))
			}
			return nil, wire
		}
		return res, nil
	}
}

// withCaller makes the token of this request known to [Caller]. The context of
// a legacy session is that of the request which began it.
func withCaller(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if x := req.GetExtra(); x != nil && x.TokenInfo != nil {
			ctx = context.WithValue(ctx, callerKey{}, x.TokenInfo)
		}
		return next(ctx, method, req)
	}
}

// bound gives every request a hard limit of time.
func (s *Server) bound(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		limit := s.opts.ReadTimeout
		switch method {
		case methodCallTool, methodGetPrompt:
			limit = s.opts.CallTimeout
		case methodListen:
			return next(ctx, method, req)
		}
		ctx, cancel := context.WithTimeoutCause(ctx, limit, &timeoutError{method, limit})
		defer cancel()
		res, err := next(ctx, method, req)
		if err != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return res, err
	}
}

type timeoutError struct {
	method string
	limit  time.Duration
}

func (e *timeoutError) Error() string { return fmt.Sprintf("%s exceeded %v", e.method, e.limit) }

func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }

// authorize asks whether the caller may call the tool, and leaves out of the
// list what it may not. Reads are asked where they are served.
func (s *Server) authorize(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if p, ok := req.GetParams().(*mcp.CallToolParamsRaw); ok && p != nil {
			if err := s.permit(ctx, Call, p.Name); err != nil {
				return nil, err
			}
		}
		res, err := next(ctx, method, req)
		if list, ok := res.(*mcp.ListToolsResult); ok && err == nil && s.opts.Authorize != nil {
			kept := make([]*mcp.Tool, 0, len(list.Tools))
			for _, t := range list.Tools {
				if s.permit(ctx, Call, t.Name) == nil {
					kept = append(kept, t)
				}
			}
			list.Tools = kept
		}
		return res, err
	}
}

func (s *Server) permit(ctx context.Context, verb Verb, target string) error {
	if s.opts.Authorize == nil {
		return nil
	}
	return s.opts.Authorize(ctx, Access{Verb: verb, Target: target})
}

// isModern reports the era of a request. Routing sees to it that a session
// which began with initialize has a revision before 2026-07-28.
func isModern(req mcp.Request) bool {
	v, ok := req.(interface{ ProtocolVersion() string })
	return ok && v.ProtocolVersion() >= modernVersion
}

func methodAttr(method string) slog.Attr { return slog.String("method", method) }

func stackAttr(stack []byte) slog.Attr { return slog.String("stack", string(stack)) }
