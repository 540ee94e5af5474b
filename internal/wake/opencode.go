package wake

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/notice"
)

// OpenCodeOptions adjust an OpenCode.
type OpenCodeOptions struct {
	Directory string // of the session's project; empty: the server's own
	User      string // empty means "opencode"
	Password  string // OPENCODE_SERVER_PASSWORD of the server
}

// OpenCode prompts a session of an OpenCode server by POST
// /session/{id}/prompt_async and follows the turn on the server's event stream
// (specification D-15). The message gets an id of ours, so that the server can
// be asked after a crash whether it has it.
type OpenCode struct {
	api     *api
	session string
	query   string
}

var (
	_ notice.Waker   = (*OpenCode)(nil)
	_ notice.Checker = (*OpenCode)(nil)
	_ notice.Doctor  = (*OpenCode)(nil)
)

// NewOpenCode returns the adapter of a session ("ses_…") of the server at base.
func NewOpenCode(base, session string, o *OpenCodeOptions) (*OpenCode, error) {
	var opts OpenCodeOptions
	if o != nil {
		opts = *o
	}
	if opts.User == "" {
		opts.User = "opencode"
	}
	a, err := newAPI(base, opts.User, opts.Password)
	if err != nil {
		return nil, err
	}
	c := &OpenCode{api: a, session: session}
	if opts.Directory != "" {
		c.query = "?directory=" + url.QueryEscape(opts.Directory)
	}
	return c, nil
}

func (c *OpenCode) path(suffix string) string {
	return "/session/" + url.PathEscape(c.session) + suffix + c.query
}

// Name implements notice.Waker.
func (c *OpenCode) Name() string { return "opencode" }

// Reach implements notice.Waker. A session that runs a turn is busy: prompting
// it now would queue the message where tool results cannot carry it.
func (c *OpenCode) Reach(ctx context.Context, _ string) error {
	if err := c.api.call(ctx, "get session", http.MethodGet, c.path(""), nil, nil); err != nil {
		return err
	}
	status := map[string]struct {
		Type string `json:"type"`
	}{}
	if err := c.api.call(ctx, "get session status", http.MethodGet, "/session/status"+c.query, nil, &status); err != nil {
		return err
	}
	if s := status[c.session].Type; s != "" && s != "idle" {
		return &notice.BusyError{Reason: "the session runs a turn", Retry: busyRetry}
	}
	return nil
}

type openCodePrompt struct {
	MessageID string         `json:"messageID"`
	Parts     []openCodePart `json:"parts"`
}

type openCodePart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// Wake implements notice.Waker.
func (c *OpenCode) Wake(ctx context.Context, d notice.Delivery, proved func(notice.State)) (notice.State, error) {
	events, err := c.api.stream(ctx, "subscribe to events", "/event"+c.query) // first, to miss nothing
	if err != nil {
		return "", err
	}
	defer events.close()
	id := openCodeID(time.Now(), d.ID)
	prompt := openCodePrompt{MessageID: id, Parts: []openCodePart{{Type: "text", Text: d.Text}}}
	err = c.api.call(ctx, "post prompt", http.MethodPost, c.path("/prompt_async"), prompt, nil)
	if errors.Is(err, notice.ErrUncertain) && ctx.Err() == nil {
		state, checkErr := c.Check(ctx, d)
		switch {
		case checkErr != nil:
			return "", err
		case state == notice.Persisted:
			return "", &notice.HostError{Op: "post prompt"}
		case state == notice.Seen:
			return state, nil
		}
		err = nil
	}
	if err != nil {
		return "", err
	}
	proved(notice.Notified)
	return c.follow(ctx, events, id, proved)
}

// openCodeEvent is an event of the stream, as far as turns are concerned.
type openCodeEvent struct {
	Type       string `json:"type"`
	Properties struct {
		SessionID string `json:"sessionID"`
		Info      struct {
			SessionID string `json:"sessionID"`
			Role      string `json:"role"`
			ParentID  string `json:"parentID"`
		} `json:"info"`
		Status struct {
			Type string `json:"type"`
		} `json:"status"`
	} `json:"properties"`
}

// follow reads events until the turn of our message has ended. If the stream
// ends before, what was proved until then is all there is.
func (c *OpenCode) follow(ctx context.Context, events *stream, id string, proved func(notice.State)) (notice.State, error) {
	best := notice.Notified
	for {
		raw, err := events.events.Next()
		switch {
		case ctx.Err() != nil:
			return best, ctx.Err()
		case err != nil:
			return best, nil //nolint:nilerr // the prompt is there; only the view of it is lost
		}
		var e openCodeEvent
		if json.Unmarshal(raw.Data, &e) != nil {
			continue // newer servers have events that we do not know
		}
		switch p := e.Properties; {
		case e.Type == "message.updated" && p.Info.SessionID == c.session && p.Info.Role == "assistant" && p.Info.ParentID == id:
			best = notice.Woken
			proved(best)
		case p.SessionID != c.session:
		case e.Type == "session.error":
			return best, &notice.HostError{Op: "run turn", Detail: string(raw.Data[:min(len(raw.Data), maxDetail)])}
		case best == notice.Woken && (e.Type == "session.idle" || e.Type == "session.status" && p.Status.Type == "idle"):
			return notice.Seen, nil
		}
	}
}

// Check implements notice.Checker.
func (c *OpenCode) Check(ctx context.Context, d notice.Delivery) (notice.State, error) {
	var messages []struct {
		Info struct {
			ID       string `json:"id"`
			Role     string `json:"role"`
			ParentID string `json:"parentID"`
			Time     struct {
				Completed float64 `json:"completed"`
			} `json:"time"`
		} `json:"info"`
	}
	if err := c.api.call(ctx, "list messages", http.MethodGet, c.path("/message"), nil, &messages); err != nil {
		return "", err
	}
	id, state := "", notice.Persisted
	for _, m := range messages {
		switch {
		case m.Info.Role == "user" && strings.HasSuffix(m.Info.ID, openCodeSuffix(d.ID)):
			id, state = m.Info.ID, notice.Notified
		case id != "" && m.Info.Role == "assistant" && m.Info.ParentID == id:
			state = notice.Woken
			if m.Info.Time.Completed > 0 {
				state = notice.Seen
			}
		}
	}
	return state, nil
}

// openCodeID makes a message id as OpenCode does, which orders messages by it:
// 48 bits of time, then characters that stand for the delivery.
func openCodeID(now time.Time, delivery string) string {
	return fmt.Sprintf("msg_%012x%s", uint64(now.UnixMilli())<<12&(1<<48-1), openCodeSuffix(delivery))
}

func openCodeSuffix(delivery string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(delivery))
	b := make([]byte, 14)
	for i := range b {
		b[i] = digits[int(sum[i])%len(digits)]
	}
	return string(b)
}

// Doctor implements notice.Doctor.
func (c *OpenCode) Doctor(ctx context.Context) []notice.Check {
	err := c.Reach(ctx, "")
	var busy *notice.BusyError
	var host *notice.HostError
	switch {
	case err == nil, errors.As(err, &busy):
		return []notice.Check{ok("server"), ok("session")}
	case errors.As(err, &host) && host.Code == http.StatusNotFound:
		return []notice.Check{ok("server"), bad("session", fmt.Sprintf("the server has no session %q in this directory", c.session), "name a session of \"opencode session list\", and its directory")}
	}
	return []notice.Check{trouble(err, "start \"opencode serve\", or \"opencode acp --port N\", and give its address")}
}
