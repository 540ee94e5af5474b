package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// life is the agent's process or loop, as far as the session knows it. Only the
// worker, and end after it, starts and closes engines.
type life struct {
	engine   Engine // nil before the first start and after a failed one
	info     Info
	dead     bool // it exited; the next turn starts another
	warm     bool // start it without waiting for a turn
	count    int  // lives so far; events carry the number of theirs
	spent    bool // the start that is no restart has been used
	restarts []time.Time
	primed   bool          // it has the standing instruction
	gone     chan struct{} // closed when this life is over
}

// ensureEngine makes sure that an agent is there to take a prompt.
func (s *Session) ensureEngine(ctx context.Context) (Engine, error) {
	s.mu.Lock()
	s.engine.warm = false
	if s.engine.engine != nil && !s.engine.dead {
		defer s.mu.Unlock()
		return s.engine.engine, nil
	}
	err := s.allowStart(time.Now())
	s.mu.Unlock()
	if err != nil {
		s.noAgent(err)
		return nil, err
	}
	s.closeEngine(ctx)
	s.publish(Update{Stream: StreamAgent, Event: EventStarting})
	engine, info, err := s.startEngine(ctx)
	if err != nil {
		err = &startError{err}
		if s.isLeaving() {
			return nil, err // we have ended it; that says nothing about the agent
		}
		s.noAgent(err)
		s.reportExit(ctx, titleUnavailable, err)
		return nil, err
	}
	s.reportStart(ctx, engine, info)
	s.awaitTools(ctx, info)
	return engine, nil
}

func (s *Session) isLeaving() bool {
	select {
	case <-s.leaving:
		return true
	default:
		return false
	}
}

// noAgent notes that no agent can be started.
func (s *Session) noAgent(err error) {
	why := s.shown(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.troubles.unavailable(time.Now(), why, err)
}

// awaitTools waits until the agent knows the tools that it was given: those who
// attach beside their work would have none in a turn that comes at once, and
// some never look again within it. It ends with the agent, and with the session.
func (s *Session) awaitTools(ctx context.Context, info Info) {
	given := slices.ContainsFunc(info.Injected, func(i Injected) bool { return i.Transport != "" })
	if s.opts.Attached == nil || !given {
		return
	}
	s.mu.Lock()
	gone := s.engine.gone
	s.mu.Unlock()
	wait, cancel := context.WithTimeout(ctx, s.opts.AttachWait)
	defer cancel()
	wait, release := until(wait, gone, s.leaving)
	err := s.opts.Attached(wait)
	late := errors.Is(wait.Err(), context.DeadlineExceeded)
	release()
	if err == nil || !late {
		return
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "agent.unattached", logattr.Session(s.id), logattr.Duration(s.opts.AttachWait))
	s.publish(Update{Stream: StreamAgent, Event: EventStarting, Text: "the agent has not asked for its tools; it may have none in its first turn"})
}

// allowStart keeps the restart budget; the first start is free (N-2).
func (s *Session) allowStart(now time.Time) error {
	l := &s.engine
	if !l.spent {
		l.spent = true
		return nil
	}
	for len(l.restarts) > 0 && now.Sub(l.restarts[0]) >= s.opts.RestartWindow {
		l.restarts = l.restarts[1:]
	}
	if len(l.restarts) >= s.opts.Restarts {
		return &RestartError{Restarts: s.opts.Restarts, Window: s.opts.RestartWindow, Until: l.restarts[0].Add(s.opts.RestartWindow)}
	}
	l.restarts = append(l.restarts, now)
	return nil
}

// until is a context that ends also when one of two channels is closed; release
// ends it, and waits until nobody waits for them any more.
func until(ctx context.Context, one, other <-chan struct{}) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		defer cancel()
		select {
		case <-one:
		case <-other:
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel()
		watcher.Wait()
	}
}

// startEngine begins a life of the agent. An agent that has not begun when the
// session ends is not waited for: it has no turn that could be lost.
func (s *Session) startEngine(ctx context.Context) (Engine, Info, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.StartTime)
	defer cancel()
	ctx, release := until(ctx, s.leaving, nil)
	defer release()
	engine, err := s.newEngine()
	if err != nil {
		return nil, Info{}, err
	}
	s.mu.Lock()
	s.engine.count++
	s.engine.engine, s.engine.dead, s.engine.primed = engine, false, false
	s.engine.gone = make(chan struct{})
	n := s.engine.count
	opts := StartOptions{Dir: s.opts.Dir, Env: s.opts.Env, System: s.opts.System, Resume: s.meta.Conversation, History: s.past}
	s.mu.Unlock()
	if s.opts.MCPServers != nil {
		opts.MCPServers, err = s.opts.MCPServers(ctx)
	}
	if err == nil && s.opts.Tools != nil {
		opts.Tools = s.opts.Tools(ctx)
	}
	var info Info
	if err == nil {
		events := context.WithoutCancel(ctx)
		info, err = engine.Start(ctx, opts, func(ev Event) { s.event(events, n, ev) })
	}
	if err != nil {
		return nil, Info{}, errors.Join(err, s.dropEngine(engine))
	}
	return engine, info, nil
}

// dropEngine closes an engine and forgets it.
func (s *Session) dropEngine(engine Engine) error {
	err := engine.Close()
	s.mu.Lock()
	if s.engine.engine == engine {
		s.engine.engine = nil
	}
	s.mu.Unlock()
	return err
}

func (s *Session) reportStart(ctx context.Context, engine Engine, info Info) {
	s.mu.Lock()
	s.engine.info = info
	s.engine.primed = info.Resumed || info.System || s.opts.System == ""
	if !info.Resumed {
		s.told = "" // a fresh conversation has not been told anything
	}
	if s.engine.engine != engine {
		s.engine.dead = true
	}
	s.meta.Conversation, s.meta.UpdatedAt = info.Conversation, time.Now()
	s.meta.Agent = info.Name
	if info.Version != "" {
		s.meta.Agent += " " + info.Version
	}
	agent := s.meta.Agent
	if !s.engine.dead {
		s.troubles.agent = nil
	}
	s.mu.Unlock()
	s.transcript.add(Entry{Kind: EntryAgent, Title: titleStarted, Text: agent, ID: info.Conversation})
	s.publish(Update{Stream: StreamAgent, Event: EventStarted, Name: agent, ID: info.Conversation})
	s.log.LogAttrs(ctx, slog.LevelInfo, "agent.started", logattr.Session(s.id), agentName(agent))
	s.saveMeta(ctx)
}

// reportExit tells of a death, or of a start that failed, once.
func (s *Session) reportExit(ctx context.Context, title string, err error) {
	s.transcript.add(Entry{Kind: EntryAgent, Title: title, Error: err.Error()})
	s.publish(Update{Stream: StreamAgent, Event: EventExited, Error: err.Error(), cause: err})
	level := slog.LevelWarn
	if s.opts.Attended {
		level = slog.LevelDebug
	}
	s.log.LogAttrs(ctx, level, "agent.exited", logattr.Session(s.id), logattr.Err(err))
}

// saveMeta writes the description; a failing store is logged, no more.
func (s *Session) saveMeta(ctx context.Context) {
	s.mu.Lock()
	meta := s.meta
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	if err := s.store.Save(ctx, meta); err != nil {
		s.log.LogAttrs(ctx, slog.LevelError, "session.save_failed", logattr.Session(s.id), logattr.Err(err))
	}
}

// closeEngine ends the engine, if there is one.
func (s *Session) closeEngine(ctx context.Context) {
	s.mu.Lock()
	engine := s.engine.engine
	s.engine.engine = nil
	s.mu.Unlock()
	if engine == nil {
		return
	}
	if err := engine.Close(); err != nil && !errors.Is(err, ErrClosed) {
		s.log.LogAttrs(ctx, slog.LevelWarn, "agent.close_failed", logattr.Session(s.id), logattr.Err(err))
	}
}

// exited marks the current life as over.
func (s *Session) exited(ctx context.Context, n int, err error) {
	why := s.shown(err)
	s.mu.Lock()
	first := n == s.engine.count && !s.engine.dead && s.engine.engine != nil
	if first {
		s.engine.dead = true
		s.troubles.exited(time.Now(), why)
		close(s.engine.gone)
		s.endAside()
		clear(s.tools)
	}
	questions := s.perms.of(n)
	s.mu.Unlock()
	if !first {
		return
	}
	for _, q := range questions {
		s.answer(q, "", "the agent exited")
	}
	s.reportExit(ctx, titleExited, err)
	s.ring()
}

// Reset ends the run, if any, and the agent's conversation: the next turn
// starts afresh. The transcript stays and says so. What waits in the queue
// stays there. It returns when the old agent is gone.
func (s *Session) Reset(ctx context.Context) error {
	done := make(chan error, 1)
	s.mu.Lock()
	if s.state != open {
		s.mu.Unlock()
		return ErrClosed
	}
	s.mu.Unlock()
	s.tellReset()
	s.mu.Lock()
	if s.state != open { // meanwhile
		s.mu.Unlock()
		return ErrClosed
	}
	s.resets = append(s.resets, done)
	if s.active != nil {
		s.active.stop(errReset)
	}
	s.mu.Unlock()
	s.ring()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Session) tellReset() {
	if s.opts.OnReset != nil {
		s.opts.OnReset()
	}
}

// reset does what Reset asked for; the worker calls it between runs.
func (s *Session) reset(ctx context.Context) {
	s.mu.Lock()
	resets := s.resets
	s.resets = nil
	s.mu.Unlock()
	if len(resets) == 0 {
		return
	}
	s.tellReset() // an agent may have started since
	s.closeEngine(ctx)
	s.mu.Lock()
	s.meta.Conversation, s.told = "", ""
	s.engine.info, s.engine.spent, s.engine.restarts = Info{}, false, nil
	s.engine.warm = s.opts.Warm
	clear(s.tools)
	s.busy = busy{}
	s.troubles.reset()
	s.mu.Unlock()
	s.transcript.add(Entry{Kind: EntryAgent, Title: titleReset})
	s.publish(Update{Stream: StreamRuntime, Event: EventReset})
	s.saveMeta(ctx)
	for _, c := range resets {
		c <- nil
	}
}

func agentName(name string) slog.Attr { return slog.String("agent", name) }
