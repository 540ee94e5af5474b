package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ossicle/ossicle/internal/supervise"
	"github.com/ossicle/ossicle/listen"
)

// era is which kind of protocol a server speaks.
type era string

const (
	eraUnknown era = ""
	eraModern  era = "modern" // 2026-07-28 and later: server/discover
	eraLegacy  era = "legacy" // before: initialize
)

// legacyVersion is what initialize offers.
const legacyVersion = "2025-11-25"

const (
	methodDiscover   = "server/discover"
	methodInitialize = "initialize"
)

// Error codes by which a server shows that it is of the modern era
// (basic/index, error codes).
const (
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
	codeMethodNotFound     = -32601
)

// transientDelays are the waits before a probe is repeated that a server
// answered with a status that says "not now".
var transientDelays = [...]time.Duration{200 * time.Millisecond, 500 * time.Millisecond, time.Second}

var (
	// errExited: the server ended when it was probed, as some old ones do.
	errExited = errors.New("server ended on the probe")
	// errSlow: the server answered the probe, late.
	errSlow = errors.New("server answered the probe late")
	// errProbeTimeout: no answer to the probe within its bound.
	errProbeTimeout = errors.New("no answer to " + methodDiscover)
)

// handshake decides the era of a server. It is a sending middleware of the
// SDK's client, whose own rule, initialize after any error, takes a moment's
// trouble for an old server and waits for a silent one without end:
//
//   - a transient HTTP status is tried again, and does not mean legacy; only 500
//     does in the end, because some old servers say so to what they do not know;
//   - refused access and a broken connection are what they are;
//   - an error code of the modern era means modern: no initialize;
//   - any other error, or no answer within the bound, means legacy. Should the
//     answer still come before the one to initialize, the server is modern and
//     was only slow to start, and errSlow says so.
//
// A server that exits on the probe gives errExited.
type handshake struct {
	bound time.Duration // of the probe
	pipe  bool          // over pipes: a broken connection is an exit
	table *taps

	wg   sync.WaitGroup
	late chan error // capacity 1: the outcome of a probe that was not awaited
	// The SDK's goroutine alone uses these.
	verdict error              // set when initialize must not be sent
	drop    context.CancelFunc // ends the probe that was not awaited
	tap     *tap               // of that probe
	found   []byte             // the raw result of what made the session
}

func newHandshake(bound time.Duration, pipe bool, table *taps) *handshake {
	return &handshake{bound: bound, pipe: pipe, table: table, late: make(chan error, 1)}
}

// wait waits for what the handshake left running; its context must have ended.
func (h *handshake) wait() { h.wg.Wait() }

func (h *handshake) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case methodDiscover:
			return h.discover(ctx, next, req)
		case methodInitialize:
			return h.initialize(ctx, next, req)
		}
		return next(ctx, method, req)
	}
}

type outcome struct {
	res mcp.Result
	err error
}

// discover probes, again and again while the server says "not now".
func (h *handshake) discover(ctx context.Context, next mcp.MethodHandler, req mcp.Request) (mcp.Result, error) {
	for n := 0; ; n++ {
		res, status, err := h.probe(ctx, next, req)
		switch {
		case err == nil:
			return res, nil
		case transient(status) && n < len(transientDelays):
			if supervise.Sleep(ctx, transientDelays[n]) {
				continue
			}
			h.verdict = fmt.Errorf("HTTP status %d, time is up: %w", status, context.Cause(ctx))
		case transient(status) && status != http.StatusInternalServerError:
			h.verdict = fmt.Errorf("HTTP status %d, %d times: %w", status, n+1, err)
		default:
			h.verdict = h.judge(ctx, status, err)
		}
		return nil, err
	}
}

// probe sends one server/discover and waits for its answer within the bound.
func (h *handshake) probe(ctx context.Context, next mcp.MethodHandler, req mcp.Request) (mcp.Result, int, error) {
	ctx, h.drop = context.WithCancel(ctx)
	tctx, t := h.table.begin(ctx)
	got := make(chan outcome, 1)
	h.wg.Go(func() {
		defer t.end()
		res, err := next(tctx, methodDiscover, req)
		got <- outcome{res, err}
	})
	timer := time.NewTimer(h.bound)
	defer timer.Stop()
	select {
	case o := <-got:
		if o.err == nil {
			h.found, _ = t.result()
		}
		return o.res, t.httpStatus(), o.err
	case <-timer.C:
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	h.tap = t
	h.wg.Go(func() {
		o := <-got
		h.late <- o.err
	})
	return nil, 0, errProbeTimeout
}

// judge returns why initialize must not follow a failed probe, or nil.
func (h *handshake) judge(ctx context.Context, status int, err error) error {
	var auth *AuthError
	var rpc *jsonrpc.Error
	switch {
	case errors.As(err, &auth):
		return auth
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errProbeTimeout):
		return nil
	case h.pipe && broken(err):
		return nil // which initialize will find, too, and say
	case !h.pipe && status == 0:
		return err // nothing was answered
	case errors.As(err, &rpc):
		return judgeCode(rpc)
	}
	return nil
}

// judgeCode tells a modern server that refuses from one that does not know.
func judgeCode(rpc *jsonrpc.Error) error {
	switch rpc.Code {
	case codeHeaderMismatch, codeMissingCapability:
		return rpc
	case codeUnsupportedVersion:
		var data struct {
			Supported []string `json:"supported"`
		}
		if json.Unmarshal(rpc.Data, &data) == nil {
			for _, v := range data.Supported {
				if slices.Contains(mcp.SupportedProtocolVersions(), v) {
					return nil // the SDK asks again with it, or initializes
				}
			}
		}
		return rpc
	}
	return nil
}

// initialize follows a failed probe, unless that said that it must not.
func (h *handshake) initialize(ctx context.Context, next mcp.MethodHandler, req mcp.Request) (mcp.Result, error) {
	if h.verdict != nil {
		h.drop()
		return nil, h.verdict
	}
	ctx, cancel := context.WithCancel(ctx)
	ictx, t := h.table.begin(ctx)
	got := make(chan outcome, 1)
	h.wg.Go(func() {
		defer t.end()
		res, err := next(ictx, methodInitialize, req)
		got <- outcome{res, err}
	})
	for late := h.late; ; {
		select {
		case o := <-got:
			cancel()
			if o.err == nil && h.answered() {
				return nil, errSlow
			}
			if o.err == nil {
				h.found, _ = t.result()
				return o.res, nil
			}
			if h.drop != nil {
				h.drop() // the SDK closes the session now, and waits for every call
				if h.pipe && broken(o.err) {
					o.err = fmt.Errorf("%w: %w", errExited, o.err) // the probe was not yet read when its time was up
				}
			}
			return nil, o.err
		case err := <-late:
			if err == nil {
				cancel()
				return nil, errSlow
			}
			late = nil
		}
	}
}

// answered reports whether the probe that was not awaited got its answer after
// all. The tap knows first: it sees messages in the order of the wire.
func (h *handshake) answered() bool {
	if h.tap == nil {
		return false
	}
	raw, _ := h.tap.result()
	return raw != nil
}

func transient(status int) bool {
	switch status {
	case 429, 500, 502, 503, 504:
		return true
	}
	return false
}

// uncached makes the SDK keep no results: a read that is in flight while an
// update arrives would be served as fresh afterwards. Tool definitions stay
// known to it, for the headers of calls.
func uncached(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		switch r := res.(type) {
		case *mcp.ReadResourceResult:
			r.TTLMs = 0
		case *mcp.ListResourcesResult:
			r.TTLMs = 0
		case *mcp.ListResourceTemplatesResult:
			r.TTLMs = 0
		case *mcp.ListToolsResult:
			r.TTLMs = 0
		}
		return res, err
	}
}

// eraOf tells the era of a negotiated version.
func eraOf(version string) era {
	if version >= listen.ProtocolVersion {
		return eraModern
	}
	return eraLegacy
}
