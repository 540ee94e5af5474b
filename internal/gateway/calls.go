package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/worker"
)

const (
	// searchFirst and searchLast are the pauses while a session is between hosts.
	// Its own deadlines end the search: then it is over.
	searchFirst = 50 * time.Millisecond
	searchLast  = time.Second
	// cancelTime bounds the word to a host that a caller gave up.
	cancelTime = 2 * time.Second
	// maxReceipts bounds what a host hears late of a session, maxReceived of how many.
	maxReceipts, maxReceived = 64, 1024
	// peerGone is about how long a host may vanish without a word.
	peerIdle, peerProbe, peerProbes = 15 * time.Second, 5 * time.Second, 3
)

// errElsewhere is for a session that is between hosts, or whose host is not who
// the store says.
var errElsewhere = errors.New("no host holds the session now")

// CallsOptions configure [Calls]. The zero value is usable.
type CallsOptions struct {
	Logger *slog.Logger // nil discards
	// Transport reaches other gateways; nil is one of its own.
	Transport http.RoundTripper
}

// Calls uses sessions wherever they are: those of a host of this process, and over
// HTTP those of the other hosts of the store, by the addresses that these announce
// (worker.HostOptions.Addr). It follows a session that moves: a call goes to the
// next host under the same id, and the worker runs it once. It is safe for
// concurrent use.
type Calls struct {
	host   *worker.Host // nil if there is none here
	store  worker.Store
	tokens *Tokens
	client *http.Client
	done   func()
	log    *slog.Logger

	work     sync.WaitGroup // flights
	mu       sync.Mutex
	closed   bool
	flights  map[flightKey]*flight
	received map[string][]string // ids of calls by session, to be told to its host
}

// NewCalls returns the calls of a store. host is the one of this process, or nil.
// tokens are those of the gateways: who may issue one may use every session.
func NewCalls(host *worker.Host, store worker.Store, tokens *Tokens, o *CallsOptions) *Calls {
	c := &Calls{host: host, store: store, tokens: tokens, done: func() {}, log: slog.New(slog.DiscardHandler), flights: map[flightKey]*flight{}, received: map[string][]string{}}
	var transport http.RoundTripper
	if o != nil {
		transport = o.Transport
		if o.Logger != nil {
			c.log = o.Logger
		}
	}
	if transport == nil {
		dialer := &net.Dialer{
			Timeout:         searchLast,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: peerIdle, Interval: peerProbe, Count: peerProbes},
		}
		own := &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: cancelTime, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}
		transport, c.done = own, own.CloseIdleConnections
	}
	c.client = &http.Client{
		Transport: transport,
		// A redirect would carry the token to somewhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Close ends what runs here for other gateways and waits for it.
func (c *Calls) Close() {
	c.mu.Lock()
	c.closed = true
	for _, f := range c.flights {
		f.cancel()
	}
	c.mu.Unlock()
	c.work.Wait()
	c.done()
}

// CallTool is CallRaw with the result decoded.
func (c *Calls) CallTool(ctx context.Context, session, tool string, arguments jsontext.Value, o *worker.CallOptions) (*mcp.CallToolResult, error) {
	raw, err := c.CallRaw(ctx, session, tool, arguments, o)
	if err != nil {
		return nil, err
	}
	return worker.ReadResult(tool, raw)
}

// CallRaw calls a tool of a session, as Session.CallRaw does, at whichever host
// holds it, and at the next one if that one drains or dies. A worker that does not
// know repeated calls gets none: then a lost host is ErrUnknownOutcome. Progress
// comes only from a host of this process. Errors are those of Session.CallRaw, but
// for ErrDraining and ErrConflict, and ErrUnknownSession.
func (c *Calls) CallRaw(ctx context.Context, session, tool string, arguments jsontext.Value, o *worker.CallOptions) (jsontext.Value, error) {
	opts := worker.CallOptions{}
	if o != nil {
		opts = *o
	}
	made := opts.ID == ""
	if made {
		opts.ID = rand.Text()
	}
	if len(arguments) == 0 {
		arguments = jsontext.Value("{}")
	}
	var out jsontext.Value
	err := c.follow(ctx, session, func(ctx context.Context, at place) (err error) {
		if at.here != nil {
			if out, err = at.here.CallRaw(ctx, tool, arguments, &opts); err == nil && made {
				at.here.Received(opts.ID)
			}
			return err
		}
		var reply struct {
			Result jsontext.Value `json:"result"`
		}
		err = c.ask(ctx, at, verbCall, callRequest{opts.ID, tool, arguments, c.receipts(session)}, &reply)
		if out = reply.Result; err == nil && made {
			c.receive(session, opts.ID)
		}
		if err != nil && ctx.Err() != nil {
			c.giveUp(ctx, at, opts.ID)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("call %q in session %q: %w", tool, session, err)
	}
	return out, nil
}

// receive remembers a result that has arrived, for the host to hear with the next
// call in the session. What is beyond the bounds the worker keeps by its own.
func (c *Calls) receive(session, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := c.received[session]
	if len(ids) < maxReceipts && (len(ids) > 0 || len(c.received) < maxReceived) {
		c.received[session] = append(ids, id)
	}
}

// receipts returns what the host of a session has not heard yet.
func (c *Calls) receipts(session string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := c.received[session]
	delete(c.received, session)
	return ids
}

// Release ends a session, as Session.Release does, at whichever host holds it.
func (c *Calls) Release(ctx context.Context, session string, reason worker.Reason) (worker.Record, error) {
	var rec worker.Record
	err := c.follow(ctx, session, func(ctx context.Context, at place) (err error) {
		if at.here != nil {
			rec, err = at.here.Release(ctx, reason)
			if err == nil && !rec.State.Final() {
				return errElsewhere
			}
			return err
		}
		rec, err = c.askRecord(ctx, at, verbRelease, releaseRequest{reason})
		return err
	})
	if errors.Is(err, worker.ErrOver) { // it is what was wanted
		rec, err = c.store.Load(ctx, session)
	}
	if err != nil {
		return worker.Record{}, fmt.Errorf("release session %q: %w", session, err)
	}
	return rec, nil
}

// Record returns a session as its host has it, with the last heartbeat; or as the
// store has it if that host does not answer. Errors: ErrUnknownSession.
func (c *Calls) Record(ctx context.Context, session string) (worker.Record, error) {
	at, err := c.find(ctx, session)
	switch {
	case err == nil && at.here != nil:
		return at.here.Record(), nil
	case err == nil:
		if rec, err := c.askRecord(ctx, at, verbRecord, struct{}{}); err == nil {
			return rec, nil
		}
	case errors.Is(err, worker.ErrUnknownSession):
		return worker.Record{}, fmt.Errorf("read session %q: %w", session, err)
	}
	rec, err := c.store.Load(ctx, session)
	if err != nil {
		return worker.Record{}, fmt.Errorf("read session %q: %w", session, err)
	}
	return rec, nil
}

// place is where a session is now.
type place struct {
	here    *worker.Session
	addr    string
	session string
	joins   bool
}

// find says who holds a session.
func (c *Calls) find(ctx context.Context, session string) (place, error) {
	if c.host != nil {
		if s, err := c.host.Session(session); err == nil {
			return place{here: s, session: session}, nil
		}
	}
	rec, err := c.store.Load(ctx, session)
	if err != nil {
		return place{}, err
	}
	if rec.State.Final() {
		return place{}, fmt.Errorf("%w: %s %s", worker.ErrOver, rec.State, rec.Failure)
	}
	hosts, err := c.store.Hosts(ctx)
	if err != nil {
		return place{}, err
	}
	for _, h := range hosts {
		if h.Owner == rec.Owner && h.Alive && h.Addr != "" {
			return place{addr: h.Addr, session: session, joins: rec.Joins()}, nil
		}
	}
	return place{}, errElsewhere
}

// follow does something where a session is, until it was done, failed for good, or
// ctx ends. While the session is between hosts it looks again after a pause.
func (c *Calls) follow(ctx context.Context, session string, do func(context.Context, place) error) error {
	for pause := searchFirst; ; pause = min(2*pause, searchLast) {
		at, err := c.find(ctx, session)
		if err == nil {
			err = do(ctx, at)
		}
		switch {
		case ctx.Err() != nil && err != nil:
			return context.Cause(ctx)
		case errors.Is(err, worker.ErrDraining), errors.Is(err, worker.ErrConflict), errors.Is(err, errElsewhere):
		default:
			return err
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return context.Cause(ctx)
		}
	}
}

// giveUp tells a host that a caller is gone.
func (c *Calls) giveUp(ctx context.Context, at place, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	if err := c.ask(ctx, at, verbCancel, cancelRequest{id}, nil); err != nil {
		c.log.InfoContext(ctx, "the host of a call did not hear that its caller gave up", logattr.Session(at.session), logattr.Err(err))
	}
}

func (c *Calls) askRecord(ctx context.Context, at place, v verb, body any) (rec worker.Record, err error) {
	var text jsontext.Value
	if err := c.ask(ctx, at, v, body, &text); err != nil {
		return worker.Record{}, err
	}
	err = stdjson.Unmarshal(text, &rec)
	return rec, err
}

// ask sends a request to the host of a session. errElsewhere says that another
// attempt is right: the host does not hold it, or is gone and nothing can have
// happened twice.
func (c *Calls) ask(ctx context.Context, at place, v verb, body, reply any) error {
	token, err := c.tokens.issuePeer(at.session)
	if err != nil {
		return err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	u := strings.TrimSuffix(at.addr, "/") + peersPath + url.PathEscape(at.session) + "/" + string(v)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("reach host %.100q: %w", at.addr, err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return lostHost(at, v, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return lostHost(at, v, err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		if reply == nil {
			return nil
		}
		if err := json.Unmarshal(answer, reply); err != nil {
			return fmt.Errorf("read answer of host %.100q: %w", at.addr, err)
		}
		return nil
	case http.StatusConflict:
		return readFault(answer)
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return lostHost(at, v, fmt.Errorf("it answered HTTP %d", resp.StatusCode))
	default:
		return fmt.Errorf("reach host %.100q: it answered HTTP %d", at.addr, resp.StatusCode)
	}
}

// lostHost says whether a request to a host that is gone may be repeated: if it
// did not get there, or the worker would join the repetition.
func lostHost(at place, v verb, err error) error {
	var op *net.OpError
	unsent := errors.As(err, &op) && op.Op == "dial"
	if v != verbCall || unsent || at.joins {
		return fmt.Errorf("%w: reach host %.100q: %w", errElsewhere, at.addr, err)
	}
	return fmt.Errorf("%w: reach host %.100q: %w", worker.ErrUnknownOutcome, at.addr, err)
}
