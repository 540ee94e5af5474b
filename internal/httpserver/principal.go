package httpserver

import (
	"context"
	"fmt"

	"github.com/ossicle/ossicle/internal/access"
	"github.com/ossicle/ossicle/internal/mcpserver"
)

// principalKey is the key of the principal in auth.TokenInfo.Extra.
const principalKey = "ossicle.principal"

// PrincipalOf returns who sent the request of ctx. Without one the request came
// where nobody is asked: from a pipe, or to a server without authentication.
func PrincipalOf(ctx context.Context) (*access.Principal, bool) {
	info := mcpserver.Caller(ctx)
	if info == nil {
		return nil, false
	}
	p, ok := info.Extra[principalKey].(*access.Principal)
	return p, ok
}

// Authorize decides by the principal's rights. It is for
// mcpserver.Options.Authorize.
func Authorize(ctx context.Context, a mcpserver.Access) error {
	p, ok := PrincipalOf(ctx)
	if !ok || a.Verb == mcpserver.Call && p.Rights.Tool(a.Target) || a.Verb == mcpserver.Read && p.Rights.Topic(a.Target) {
		return nil
	}
	return &mcpserver.ForbiddenError{Verb: a.Verb, Target: a.Target, Hint: fmt.Sprintf("%s lacks the right; ask the operator for it", p.Name)}
}

// AuthorizeListen is [Authorize] for listen.HubOptions.Authorize.
func AuthorizeListen(ctx context.Context, uri string) error {
	return Authorize(ctx, mcpserver.Access{Verb: mcpserver.Read, Target: uri})
}
