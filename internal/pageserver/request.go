package pageserver

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/ossicle/ossicle/internal/jsonx"
)

// Kind is what a topic is about.
type Kind string

// Kinds of topics. Those of one thing carry its id: session:ID.
const (
	Sessions  Kind = "sessions"
	Session   Kind = "session"
	Inbox     Kind = "inbox"
	Signals   Kind = "signals"
	Sandboxes Kind = "sandboxes"
	Terminal  Kind = "terminal"
)

// kinds says which kinds carry an id.
var kinds = map[Kind]bool{Sessions: false, Session: true, Inbox: false, Signals: true, Sandboxes: false, Terminal: true}

// Topic is what can be subscribed to.
type Topic struct {
	Kind Kind
	ID   string // empty for a kind of which there is one
}

// String is the topic as clients write it.
func (t Topic) String() string {
	if t.ID == "" {
		return string(t.Kind)
	}
	return string(t.Kind) + ":" + t.ID
}

func parseTopic(name string) (Topic, error) {
	kind, id, named := strings.Cut(name, ":")
	carries, known := kinds[Kind(kind)]
	if len(name) > MaxTopic || !known || carries != named || named && id == "" {
		return Topic{}, Errorf(CodeBadRequest, "there is no such topic; there are sessions, session:ID, inbox, signals:ID, sandboxes, terminal:ID")
	}
	return Topic{Kind(kind), id}, nil
}

// Call is a request of a client that is not about a subscription.
type Call struct {
	Action  string
	Session string
	Server  string // of ActionTestEndpoint
	Data    []byte // of ActionInput
	Cols    int    // of ActionResize
	Rows    int
}

// limit is how long the call may take.
func (c *Call) limit() time.Duration {
	switch c.Action {
	case ActionTestEndpoint:
		return testTime
	case ActionInput, ActionResize:
		return inputTime
	}
	return callTime
}

// inOrder reports whether the call waits for those before it.
func (c *Call) inOrder() bool { return c.Action == ActionInput || c.Action == ActionResize }

// request is one message of a client.
type request struct {
	id     int64 // 0 if it could not be read
	action string

	topic Topic // of a subscription
	after int64
	call  *Call // of everything else
}

// head is what every message has.
type head struct {
	ID     int64  `json:"id"`
	Action string `json:"action"`
}

// parseRequest reads a message strictly: names by case and once, nothing unknown.
// With an error the request has the id, if that could be read.
func parseRequest(text []byte) (request, error) {
	var h head
	if err := json.Unmarshal(text, &h); err != nil {
		return request{}, Errorf(CodeBadRequest, "the message is no request: %s", jsonx.Explain(err))
	}
	r := request{id: h.ID, action: h.Action}
	if h.ID < 1 {
		return request{}, Errorf(CodeBadRequest, "the message has no id; count them from 1")
	}
	if strings.HasPrefix(h.Action, refusedPrefix) {
		return r, Errorf(CodeRefused, "actions of MCP do not pass here")
	}
	return r, r.params(text)
}

// params reads what belongs to the action.
func (r *request) params(text []byte) (err error) {
	switch r.action {
	case actionSubscribe:
		var p struct {
			head

			Topic string `json:"topic"`
			After int64  `json:"after"`
		}
		if err := strictly(text, &p); err != nil {
			return err
		}
		if p.After < 0 {
			return Errorf(CodeBadRequest, "after is negative")
		}
		r.after = p.After
		r.topic, err = parseTopic(p.Topic)
		return err
	case actionUnsubscribe:
		var p struct {
			head

			Topic string `json:"topic"`
		}
		if err := strictly(text, &p); err != nil {
			return err
		}
		r.topic, err = parseTopic(p.Topic)
		return err
	}
	r.call, err = parseCall(r.action, text)
	return err
}

func parseCall(action string, text []byte) (*Call, error) {
	c := &Call{Action: action}
	var err error
	switch action {
	case ActionTestEndpoint:
		p := struct {
			head

			Session *string `json:"session_id"`
			Server  *string `json:"server_name"`
		}{head{}, &c.Session, &c.Server}
		if err = strictly(text, &p); err == nil && (c.Server == "" || len(c.Server) > MaxServer) {
			err = Errorf(CodeBadRequest, "server_name is no name of a server")
		}
	case ActionRecentOutput:
		p := struct {
			head

			Session *string `json:"session_id"`
		}{head{}, &c.Session}
		err = strictly(text, &p)
	case ActionInput:
		p := struct {
			head

			Session *string `json:"session_id"`
			Data    *[]byte `json:"data"`
		}{head{}, &c.Session, &c.Data}
		err = strictly(text, &p)
	case ActionResize:
		p := struct {
			head

			Session *string `json:"session_id"`
			Cols    *int    `json:"cols"`
			Rows    *int    `json:"rows"`
		}{head{}, &c.Session, &c.Cols, &c.Rows}
		if err = strictly(text, &p); err == nil && (min(c.Cols, c.Rows) < 1 || max(c.Cols, c.Rows) > MaxCells) {
			err = Errorf(CodeBadRequest, "cols and rows are 1 to %d", MaxCells)
		}
	default:
		return nil, Errorf(CodeBadRequest, "there is no such action")
	}
	if err == nil && (c.Session == "" || len(c.Session) > MaxTopic) {
		err = Errorf(CodeBadRequest, "session_id is no id of a session")
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func strictly(text []byte, v any) error {
	if err := json.Unmarshal(text, v, json.RejectUnknownMembers(true)); err != nil {
		return Errorf(CodeBadRequest, "read request: %s", jsonx.Explain(err))
	}
	return nil
}
