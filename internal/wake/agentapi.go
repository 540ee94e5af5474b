package wake

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/notice"
)

// AgentAPI types into an agent in a terminal that coder/agentapi wraps
// (specification D-15). It answers a message once it sees on the screen that
// the agent works, which is proof of a turn, and says on its event stream when
// the screen is stable again, which is proof of its end. Both are read off a
// screen and so are fragile by nature.
type AgentAPI struct{ api *api }

var (
	_ notice.Waker  = (*AgentAPI)(nil)
	_ notice.Doctor = (*AgentAPI)(nil)
)

// NewAgentAPI returns the adapter of the agentapi server at base.
func NewAgentAPI(base string) (*AgentAPI, error) {
	a, err := newAPI(base, "", "")
	if err != nil {
		return nil, err
	}
	return &AgentAPI{api: a}, nil
}

type agentAPIStatus struct {
	Status string `json:"status"` // "stable" or "running"
}

// Name implements notice.Waker.
func (c *AgentAPI) Name() string { return "agentapi" }

// Reach implements notice.Waker.
func (c *AgentAPI) Reach(ctx context.Context, _ string) error {
	var s agentAPIStatus
	if err := c.api.call(ctx, "get status", http.MethodGet, "/status", nil, &s); err != nil {
		return err
	}
	if s.Status != "stable" {
		return &notice.BusyError{Reason: "the agent works", Retry: busyRetry}
	}
	return nil
}

// Wake implements notice.Waker.
func (c *AgentAPI) Wake(ctx context.Context, d notice.Delivery, proved func(notice.State)) (notice.State, error) {
	var answer struct {
		OK bool `json:"ok"`
	}
	message := map[string]string{"type": "user", "content": d.Text}
	if err := c.api.call(ctx, "post message", http.MethodPost, "/message", message, &answer); err != nil {
		return "", err
	}
	if !answer.OK {
		return "", &notice.HostError{Op: "post message"}
	}
	proved(notice.Woken)
	events, err := c.api.stream(ctx, "subscribe to events", "/events")
	if err != nil {
		return notice.Woken, nil //nolint:nilerr // the turn runs; only the view of it is lost
	}
	defer events.close()
	for {
		e, err := events.events.Next()
		switch {
		case ctx.Err() != nil:
			return notice.Woken, ctx.Err()
		case err != nil:
			return notice.Woken, nil //nolint:nilerr // likewise
		}
		var s agentAPIStatus
		if e.Type == "status_change" && json.Unmarshal(e.Data, &s) == nil && s.Status == "stable" {
			return notice.Seen, nil
		}
	}
}

// Doctor implements notice.Doctor.
func (c *AgentAPI) Doctor(ctx context.Context) []notice.Check {
	err := c.Reach(ctx, "")
	if err == nil || errors.As(err, new(*notice.BusyError)) {
		return []notice.Check{ok("server")}
	}
	return []notice.Check{trouble(err, "start \"agentapi server -- AGENT\" and give its address")}
}
