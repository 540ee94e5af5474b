package mcpserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/mailbox"
)

// metaSamplingDepth marks a sampling request that a signal caused. The name is the
// contract's (specification S-15).
const metaSamplingDepth = "X-Tur-Sampling-Depth"

// Sampling is the means of an agent whose client takes sampling requests: a legacy
// one that advertised it (specification S-14, S-15).
type Sampling struct {
	server *Server
	// session is the collaboration session, for the text of the request.
	session string
}

var _ mailbox.Escalator = (*Sampling)(nil)

// Sampling returns the means of the one client of the server.
func (s *Server) Sampling(session string) *Sampling { return &Sampling{server: s, session: session} }

// Name implements mailbox.Escalator.
func (*Sampling) Name() string { return "sampling" }

// client returns the session of the client if it takes sampling requests.
func (s *Sampling) client() *mcp.ServerSession {
	for ss := range s.server.mcp.Sessions() {
		p := ss.InitializeParams()
		if p != nil && p.ProtocolVersion < modernVersion && p.Capabilities != nil && p.Capabilities.Sampling != nil { //nolint:staticcheck // legacy clients have nothing else
			return ss
		}
	}
	return nil
}

// Means implements mailbox.Escalator.
func (s *Sampling) Means() bool { return s.client() != nil }

// Escalate implements mailbox.Escalator. What the model answers is not used: what
// it has done, it did with tools.
func (s *Sampling) Escalate(ctx context.Context, e mailbox.Escalation) error {
	ss := s.client()
	if ss == nil {
		return errors.New("ask for a turn: the client is gone")
	}
	_, err := ss.CreateMessageWithTools(ctx, &mcp.CreateMessageWithToolsParams{ //nolint:staticcheck // the same
		Meta:      mcp.Meta{metaSamplingDepth: 1},
		MaxTokens: int64(e.Limits.Tokens),
		Messages:  []*mcp.SamplingMessageV2{{Role: "user", Content: []mcp.Content{&mcp.TextContent{Text: mailbox.Alert(s.session, e.Signals)}}}}, //nolint:staticcheck // the same
	})
	if err != nil {
		return fmt.Errorf("ask for a turn: %w", err)
	}
	return nil
}
