package acp

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ossicle/ossicle/agent"
	"github.com/ossicle/ossicle/internal/logattr"
	"github.com/ossicle/ossicle/internal/version"
)

// ErrTimeout is wrapped by the error for a step of a start that took too long.
var ErrTimeout = errors.New("agent took too long")

// Start brings the agent up and opens or resumes a conversation. See
// agent.Engine.
func (e *Engine) Start(ctx context.Context, so agent.StartOptions, sink agent.Sink) (agent.Info, error) {
	if err := e.claim(); err != nil {
		return agent.Info{}, err
	}
	if !filepath.IsAbs(so.Dir) {
		close(e.gone)
		return agent.Info{}, fmt.Errorf("working directory %q is not absolute", so.Dir)
	}
	sink(agent.Progress{What: "starting " + filepath.Base(e.command[0])})
	if err := e.launch(ctx, so, sink); err != nil {
		close(e.gone)
		return agent.Info{}, err
	}
	info, err := e.open(ctx, so, sink)
	if err == nil {
		err = e.rise()
	}
	if err != nil {
		return agent.Info{}, e.startFailed(err)
	}
	return info, nil
}

func (e *Engine) claim() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closing:
		return agent.ErrClosed
	case e.started:
		return ErrStarted
	case len(e.command) == 0 || e.command[0] == "":
		e.started = true
		close(e.gone)
		return errors.New("no command given")
	}
	e.started = true
	return nil
}

// rise makes the engine ready, unless the agent has died meanwhile.
func (e *Engine) rise() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.exit != nil {
		return e.exit
	}
	e.ready = true
	return nil
}

// startFailed closes the engine and prefers the agent's death as the reason.
func (e *Engine) startFailed(err error) error {
	e.mu.Lock()
	closed := e.closing
	e.mu.Unlock()
	select {
	case <-e.c.done: // it ended on its own
		<-e.gone
		if d := e.dead(); !closed && errors.As(d, new(*agent.ExitError)) {
			err = d
		}
	default:
	}
	_ = e.Close()
	if closed {
		return agent.ErrClosed
	}
	return err
}

// open walks the steps from a fresh process to an open session.
func (e *Engine) open(ctx context.Context, so agent.StartOptions, sink agent.Sink) (agent.Info, error) {
	var hello initializeResult
	err := e.step(ctx, sink, "waiting for the agent to initialize", e.o.InitializeTimeout, methodInitialize, e.hello(), &hello)
	if err != nil {
		return agent.Info{}, fmt.Errorf("initialize agent: %w", err)
	}
	if v := string(hello.ProtocolVersion); v != strconv.Itoa(protocolVersion) {
		return agent.Info{}, fmt.Errorf("initialize agent: %w: %s", ErrVersion, clip(v))
	}
	info := agent.Info{
		Name: hello.AgentInfo.Name, Version: hello.AgentInfo.Version, Protocol: "acp " + strconv.Itoa(protocolVersion),
		Steering: offered(hello.Meta.Steering.Supported),
	}
	if e.o.Authenticate != "" {
		err := e.step(ctx, sink, "authenticating", e.o.SessionTimeout, methodAuthenticate, authenticateParams{MethodID: e.o.Authenticate}, &empty{})
		if err != nil {
			return agent.Info{}, fmt.Errorf("authenticate agent: %w", err)
		}
	}
	if err := e.openSession(ctx, so, sink, &hello, &info); err != nil {
		return agent.Info{}, err
	}
	if e.o.Mode != "" {
		err := e.step(ctx, sink, "setting mode "+e.o.Mode, e.o.SessionTimeout, methodSetMode, setModeParams{SessionID: e.session, ModeID: e.o.Mode}, &empty{})
		if err != nil {
			return agent.Info{}, fmt.Errorf("set mode %s: %w", e.o.Mode, err)
		}
	}
	return info, nil
}

func (e *Engine) hello() initializeParams {
	return initializeParams{
		ProtocolVersion: protocolVersion,
		ClientInfo:      implementation{Name: version.Name, Title: version.Name, Version: version.Number()},
		ClientCapabilities: clientCapabilities{
			FS:       fsCapabilities{ReadTextFile: !e.o.NoFiles, WriteTextFile: !e.o.NoFiles},
			Terminal: !e.o.NoTerminals,
		},
	}
}

// openSession resumes or loads the old conversation where that is wanted and
// offered, and starts a new one otherwise.
func (e *Engine) openSession(ctx context.Context, so agent.StartOptions, sink agent.Sink, hello *initializeResult, info *agent.Info) error {
	caps := &hello.Capabilities
	again := ""
	switch {
	case offered(caps.Session.Resume):
		again = methodResume
	case offered(caps.LoadSession):
		again = methodLoad
	}
	info.System = so.System != "" && offered(caps.Session.SystemPrompt)
	if so.Resume != "" && again != "" {
		q, err := e.delivery(ctx, so, caps.MCP, info)
		if err != nil {
			return err
		}
		err = e.reopen(ctx, sink, again, q, so.Resume)
		answered(so.Attachment, so.Resume, err)
		if err == nil {
			e.opened(so.Resume)
			info.Conversation, info.Resumed = so.Resume, true
			return nil
		}
		var refused *RPCError
		if !errors.As(err, &refused) {
			return fmt.Errorf("open session: %w", err)
		}
		e.log.WarnContext(ctx, "agent could not resume its conversation", logattr.Err(err))
	}
	q, err := e.delivery(ctx, so, caps.MCP, info)
	if err != nil {
		return err
	}
	var r sessionResult
	err = e.deliver(ctx, sink, "opening a session", methodNew, q, &r)
	switch {
	case err != nil:
		err = fmt.Errorf("open session: %w", needsLogin(err, hello))
	case r.SessionID == "":
		err = errors.New("open session: agent named no session")
	}
	answered(so.Attachment, r.SessionID, err)
	if err != nil {
		return err
	}
	e.opened(r.SessionID)
	if again != "" {
		info.Conversation = r.SessionID
	}
	return nil
}

// delivery decides what the agent is given, and tells that before it is sent.
func (e *Engine) delivery(ctx context.Context, so agent.StartOptions, caps mcpCapabilities, info *agent.Info) (sessionParams, error) {
	q, servers := sessionParams{CWD: so.Dir}, so.MCPServers
	if so.Attachment != nil {
		var err error
		if servers, err = so.Attachment.Servers(ctx); err != nil {
			return q, fmt.Errorf("open session: %w", err)
		}
	}
	q.MCPServers, info.Injected = inject(servers, caps)
	for _, d := range info.Injected {
		e.log.InfoContext(ctx, "mcp server decided", logattr.Server(d.Server), transportAttr(d.Transport), logattr.Reason(d.Reason))
	}
	if info.System {
		q.SystemPrompt = &systemPrompt{Mode: "append", Content: []textBlock{{Type: "text", Text: so.System}}}
	}
	if so.Attachment != nil {
		so.Attachment.Decided(info.Injected)
	}
	return q, nil
}

// answered passes on what became of a delivery.
func answered(a agent.Attachment, conversation string, err error) {
	if a == nil {
		return
	}
	if err != nil {
		conversation = ""
	}
	a.Answered(conversation, err)
}

// reopen goes on with an old conversation. Its replay is not ours to show.
func (e *Engine) reopen(ctx context.Context, sink agent.Sink, method string, q sessionParams, id string) error {
	q.SessionID = id
	e.h.replay.Store(true)
	defer e.h.replay.Store(false)
	err := e.deliver(ctx, sink, "resuming the conversation", method, q, &empty{})
	if err == nil && method == methodLoad {
		e.h.awaitQuiet(ctx)
	}
	return err
}

func (e *Engine) opened(id string) {
	e.session = id
	e.h.session.Store(&id)
}

// needsLogin names the agent's authentication methods where they would help.
func needsLogin(err error, hello *initializeResult) error {
	var refused *RPCError
	if !errors.As(err, &refused) || refused.Code != codeAuthRequired {
		return err
	}
	var ids []string
	for _, m := range hello.AuthMethods {
		ids = append(ids, clip(m.ID))
	}
	return fmt.Errorf("%w (methods: %s): %w", ErrAuthentication, strings.Join(ids, ", "), err)
}

// step calls a method, within a time, and tells meanwhile that it is waiting.
func (e *Engine) step(ctx context.Context, sink agent.Sink, what string, within time.Duration, method string, params, result any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, tooLong(within))
	defer cancel()
	return e.wait(ctx, sink, what, method, params, result)
}

func tooLong(d time.Duration) error { return fmt.Errorf("%w: no answer within %v", ErrTimeout, d) }

// deliver is a step that hands over servers. An agent that was seen at one of them
// when its time is over may wait for it, and gets more.
func (e *Engine) deliver(ctx context.Context, sink agent.Sink, what, method string, params, result any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first, all := e.o.SessionTimeout, max(e.o.SessionTimeout, e.o.BlockedTimeout)
	short := time.AfterFunc(first, func() {
		if e.h.attachment == nil || !e.h.attachment.Busy() {
			cancel(tooLong(first))
		}
	})
	defer short.Stop()
	long := time.AfterFunc(all, func() { cancel(tooLong(all)) })
	defer long.Stop()
	return e.wait(ctx, sink, what, method, params, result)
}

// wait calls a method, and tells meanwhile that it is waiting.
func (e *Engine) wait(ctx context.Context, sink agent.Sink, what, method string, params, result any) error {
	sink(agent.Progress{What: what})
	began := time.Now()
	ended := make(chan struct{})
	told := make(chan struct{})
	go func() {
		defer close(told)
		t := time.NewTicker(progressEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				sink(agent.Progress{What: fmt.Sprintf("%s (%v)", what, time.Since(began).Round(time.Second))})
			case <-ended:
				return
			}
		}
	}()
	err := e.c.call(ctx, method, params, result)
	close(ended)
	<-told
	e.log.DebugContext(ctx, "agent step", methodAttr(method), logattr.Duration(time.Since(began)), logattr.Err(err))
	return err
}
