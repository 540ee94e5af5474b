package httpserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/mcpserver"
)

// Principal is who a token belongs to.
type Principal struct {
	Name   string
	Rights Rights
	// Expires is when the token ends; zero means never.
	Expires time.Time
}

// Rights are patterns of what a principal may use: a name as it is, a beginning
// with `*` behind it, or `*` alone for everything. Without a pattern it may use
// nothing of the kind.
type Rights struct {
	Topics   []string // what may be read and watched: URIs
	Sessions []string // session ids
	Tools    []string // tool names
}

// AllRights are the rights to everything.
func AllRights() Rights {
	all := []string{"*"}
	return Rights{Topics: all, Sessions: all, Tools: all}
}

// Topic reports whether a URI may be read and watched.
func (r Rights) Topic(uri string) bool { return match(r.Topics, uri) }

// Session reports whether a session may be used.
func (r Rights) Session(id string) bool { return match(r.Sessions, id) }

// Tool reports whether a tool may be called.
func (r Rights) Tool(name string) bool { return match(r.Tools, name) }

// union adds the rights of other.
func (r Rights) union(other Rights) Rights {
	join := func(a, b []string) []string { return append(append([]string(nil), a...), b...) }
	return Rights{Topics: join(r.Topics, other.Topics), Sessions: join(r.Sessions, other.Sessions), Tools: join(r.Tools, other.Tools)}
}

func match(patterns []string, name string) bool {
	for _, p := range patterns {
		if prefix, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(name, prefix) || p == name {
			return true
		}
	}
	return false
}

// principalKey is the key of the principal in auth.TokenInfo.Extra.
const principalKey = "ossicle.principal"

// PrincipalOf returns who sent the request of ctx. Without one the request came
// where nobody is asked: from a pipe, or to a server without authentication.
func PrincipalOf(ctx context.Context) (*Principal, bool) {
	info := mcpserver.Caller(ctx)
	if info == nil {
		return nil, false
	}
	p, ok := info.Extra[principalKey].(*Principal)
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
