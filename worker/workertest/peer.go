package workertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/worker"
)

// peerPatience bounds every wait of a scripted peer.
const peerPatience = 5 * time.Minute

// Peer is a scripted end of a channel: it writes what it is told, valid or not,
// and reads what comes.
type Peer struct{ WS *websocket.Conn }

// Message is a frame as a scripted peer reads it.
type Message struct {
	ID     jsontext.Value `json:"id"`
	Method string         `json:"method"`
	Params jsontext.Value `json:"params"`
	Result jsontext.Value `json:"result"`
	Error  *struct {
		Code    int            `json:"code"`
		Message string         `json:"message"`
		Data    jsontext.Value `json:"data"`
	} `json:"error"`
	Raw string `json:"-"`
}

// Code is the code of the error, or 0.
func (m Message) Code() int {
	if m.Error == nil {
		return 0
	}
	return m.Error.Code
}

// Closed is the end of a connection as a scripted peer sees it.
type Closed struct {
	Code   worker.CloseCode // -1 without a close frame
	Reason string
}

// Error implements error.
func (c Closed) Error() string { return fmt.Sprintf("closed with %d %q", c.Code, c.Reason) }

// Answer is what an upgrade was answered.
type Answer struct {
	Status int
	Header http.Header
}

// DialPeer is a scripted worker. The answer is that of the upgrade.
func DialPeer(ctx context.Context, n *Net, token string, subprotocols ...string) (*Peer, Answer, error) {
	tr := n.Transport()
	ws, resp, err := websocket.Dial(ctx, "ws://memory/", &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPClient:   &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		HTTPHeader:   http.Header{"Authorization": {"Bearer " + token}},
		Subprotocols: subprotocols,
	})
	var answer Answer
	if resp != nil {
		answer = Answer{resp.StatusCode, resp.Header}
	}
	if err != nil {
		return nil, answer, err
	}
	ws.SetReadLimit(2 * worker.MaxMessage)
	return &Peer{ws}, answer, nil
}

// Hosts accepts workers for a scripted host and hands each connection over. An
// upgrade waits until the connection is taken.
func Hosts() (http.Handler, <-chan *Peer) {
	peers := make(chan *Peer)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{worker.Subprotocol}, InsecureSkipVerify: true})
		if err != nil {
			return
		}
		ws.SetReadLimit(2 * worker.MaxMessage)
		select {
		case peers <- &Peer{ws}:
		case <-time.After(peerPatience):
			_ = ws.CloseNow()
		}
	}), peers
}

// Send writes a text message, whatever it is.
func (p *Peer) Send(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), peerPatience)
	defer cancel()
	return p.WS.Write(ctx, websocket.MessageText, []byte(text))
}

// Read reads the next message. The error at the end is Closed.
func (p *Peer) Read() (Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), peerPatience)
	defer cancel()
	_, data, err := p.WS.Read(ctx)
	if err != nil {
		var ce websocket.CloseError
		if errors.As(err, &ce) {
			return Message{}, Closed{worker.CloseCode(ce.Code), ce.Reason}
		}
		return Message{}, Closed{-1, err.Error()}
	}
	var m Message
	if err := json.Unmarshal(data, &m); err != nil {
		return Message{Raw: string(data)}, fmt.Errorf("read peer's message %q: %w", data, err)
	}
	m.Raw = string(data)
	return m, nil
}

// Until reads until a message of the method comes, or an answer if the method
// is empty, passing over others.
func (p *Peer) Until(method string) (Message, error) {
	for {
		m, err := p.Read()
		if err != nil || m.Method == method {
			return m, err
		}
	}
}

// End reads until the connection ends.
func (p *Peer) End() Closed {
	for {
		if _, err := p.Read(); err != nil {
			var c Closed
			if errors.As(err, &c) {
				return c
			}
		}
	}
}

// Welcome is the answer to initialize that a scripted worker gives.
func Welcome(id jsontext.Value, session, version, instance string, attempt int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"serverInfo":{"name":"peer","version":"peer:1"},"capabilities":{"tools":{}},"_meta":{"agentfy":{"sessionId":%q,"channelVersion":%q,"instanceId":%q,"attempt":%d}}}}`,
		id, worker.MCPVersion, session, version, instance, attempt)
}

// Ready is what a scripted worker says when its executors stand.
func Ready(session string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/agentfy/ready","params":{"sessionId":%q,"tools":["exec","file"],"workspace":"/workspace","bootMillis":1}}`, session)
}

// Tools answers tools/list with the given names.
func Tools(id jsontext.Value, names ...string) string {
	tools := make([]string, len(names))
	for i, name := range names {
		tools[i] = fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, id, strings.Join(tools, ","))
}

// Serve brings a scripted worker to running and returns what it read.
func (p *Peer) Serve(session, version, instance string, attempt int, tools ...string) error {
	m, err := p.Until("initialize")
	if err != nil {
		return err
	}
	if err := p.Send(Welcome(m.ID, session, version, instance, attempt)); err != nil {
		return err
	}
	if _, err := p.Until("notifications/initialized"); err != nil {
		return err
	}
	if err := p.Send(Ready(session)); err != nil {
		return err
	}
	if m, err = p.Until("tools/list"); err != nil {
		return err
	}
	return p.Send(Tools(m.ID, tools...))
}

// Initialize is what a scripted host opens with.
func Initialize(session, version string) string {
	b, _ := json.Marshal(worker.DefaultBudgets())
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"clientInfo":{"name":"peer","version":"1"},"capabilities":{},"_meta":{"agentfy":{"sessionId":%q,"channelVersion":%q,"profile":"light","budgets":%s}}}}`,
		worker.MCPVersion, session, version, b)
}

// Host brings a scripted host to the point where the worker serves.
func (p *Peer) Host(session string) error { return p.HostOf(session, worker.ChannelVersion) }

// HostOf is Host with a channel version.
func (p *Peer) HostOf(session, version string) error {
	if err := p.Send(Initialize(session, version)); err != nil {
		return err
	}
	if _, err := p.Read(); err != nil {
		return err
	}
	if err := p.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); err != nil {
		return err
	}
	if _, err := p.Until("notifications/agentfy/ready"); err != nil {
		return err
	}
	if err := p.Send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); err != nil {
		return err
	}
	for {
		m, err := p.Read()
		if err != nil || string(m.ID) == "2" {
			return err
		}
	}
}
