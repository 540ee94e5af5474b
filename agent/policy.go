package agent

import "fmt"

// Policy says who answers permission requests.
type Policy string

// Policies of specification N-2.
const (
	PolicyAsk       Policy = "ask"        // a person; rejected where none can be asked
	PolicyAllowRead Policy = "allow-read" // reading is allowed, the rest is asked
	PolicyAllow     Policy = "allow"      // everything is allowed, once
)

// Valid returns an error unless p is a policy.
func (p Policy) Valid() error {
	switch p {
	case "", PolicyAsk, PolicyAllowRead, PolicyAllow:
		return nil
	}
	return fmt.Errorf("check policy: %q is none of ask, allow-read, allow", string(p))
}

// readingKinds are tool kinds that leave everything as it is and send nothing
// away: fetch is not among them, since an address can carry data out.
var readingKinds = map[string]bool{"read": true, "search": true, "think": true}

// allows reports whether the policy answers yes by itself.
func (p Policy) allows(call ToolCall) bool {
	return p == PolicyAllow || p == PolicyAllowRead && readingKinds[call.Kind]
}

// choose returns the option of the first kind that is offered, "" if none is.
func choose(options []PermissionOption, kinds ...PermissionKind) string {
	for _, kind := range kinds {
		for _, o := range options {
			if o.Kind == kind {
				return o.ID
			}
		}
	}
	return ""
}

// Profile is a named way to run an agent (specification N-4).
type Profile struct {
	Name    string
	Command []string // the agent and its arguments; empty for a model loop
	Env     []string // "KEY=value"
	Dir     string
	// Servers is the mcpServers object as other tools write it, as JSON.
	Servers []byte
	Policy  Policy
	System  string // added to the standing instruction
	OnStart string
	MidTurn bool
}

// Validate returns the first thing that is wrong with the profile.
func (p Profile) Validate() error {
	if p.Name == "" {
		return fmt.Errorf("check profile: it has no name")
	}
	if len(p.Command) > 0 && p.Command[0] == "" {
		return fmt.Errorf("check profile %q: the command is empty", p.Name)
	}
	if err := p.Policy.Valid(); err != nil {
		return fmt.Errorf("check profile %q: %w", p.Name, err)
	}
	return nil
}
