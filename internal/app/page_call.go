package app

import (
	"context"
	"errors"

	"github.com/ossicle/ossicle/internal/pageserver"
)

// Call implements pageserver.Backend.
func (p *page) Call(ctx context.Context, c *pageserver.Call) (any, error) {
	switch c.Action {
	case pageserver.ActionTestEndpoint:
		return p.testEndpoint(ctx, c)
	case pageserver.ActionRecentOutput:
		if _, err := p.api.meta(ctx, c.Session); err != nil {
			return nil, pageError(err)
		}
		return p.agents.RecentOutput(c.Session), nil
	case pageserver.ActionInput:
		return nil, p.typed(ctx, c)
	case pageserver.ActionResize:
		return nil, p.resized(ctx, c)
	}
	return nil, pageserver.Errorf(pageserver.CodeBadRequest, "there is no such action")
}

// testEndpoint asks whether a server of the session's own configuration can be
// reached (specification A-22).
func (p *page) testEndpoint(ctx context.Context, c *pageserver.Call) (any, error) {
	if _, err := p.api.meta(ctx, c.Session); err != nil {
		return nil, pageError(err)
	}
	result, err := p.agents.TestEndpoint(ctx, c.Session, c.Server)
	var code pageserver.Code
	switch {
	case err == nil:
		return result, nil
	case errors.Is(err, ErrNotLive), errors.Is(err, ErrNotAttached):
		code = pageserver.CodeUnavailable
	case errors.Is(err, ErrNoServer):
		code = pageserver.CodeNotFound
	case errors.Is(err, ErrTesting):
		code = pageserver.CodeTooMany
	default:
		return nil, pageError(err)
	}
	return nil, pageserver.Errorf(code, "%s", err.Error())
}
