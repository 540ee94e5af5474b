package agent

import (
	"context"

	"github.com/ossicle/ossicle/attach"
)

// Attachment follows how the MCP servers of a session reach its agent, for whoever
// reports on that (package attach). Engines whose agents connect to servers
// themselves use it, once for every delivery: a session that is opened, loaded or
// resumed, or a program that is started.
type Attachment interface {
	// Servers begins an attempt, and returns the servers of it. An engine asks
	// before each delivery, and delivers these in place of StartOptions.MCPServers.
	Servers(ctx context.Context) ([]MCPServer, error)
	// Decided tells what is delivered and how, before the agent gets it.
	Decided(decisions []Injected)
	// Answered tells that the agent took the delivery, with its own id of the
	// conversation where it has one, or why not.
	Answered(conversation string, err error)
	// Busy reports whether the agent has been seen at a server of this attempt: it
	// may wait for one that does not answer, and gets more time.
	Busy() bool
	// Saw tells anything else that was seen of the servers in this attempt, as what
	// the agent says about them. Ids and a time of zero are filled in. It does not
	// block, and may be called at any time.
	Saw(e attach.Evidence)
}
