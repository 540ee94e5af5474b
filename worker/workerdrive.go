package worker

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ossicle/ossicle/internal/logattr"
)

// execute does what the machine decided, in order.
func (w *Worker) execute(ctx context.Context, acts []workerAction) {
	for _, a := range acts {
		switch a := a.(type) {
		case workerArm:
			w.arm(a.timer, a.at)
		case workerDisarm:
			if t := w.timers[a.timer]; t != nil {
				t.Stop()
				delete(w.timers, a.timer)
			}
		case workerDial:
			w.work.Go(func() { w.dial(ctx) })
		case workerCancelCalls:
			w.desk.stopCalls()
		case workerFlush:
			until := w.m.armed[timerID{timerFlush, 0}]
			w.work.Go(func() { w.flush(ctx, until) })
		case workerLog:
			w.o.Logger.InfoContext(ctx, "worker channel", logattr.Event(a.event), logattr.Reason(a.detail))
		case workerExit:
			w.exit = &Exit{a.code, a.reason}
		default:
			w.speak(ctx, a)
		}
	}
}

func (w *Worker) arm(id timerID, at time.Time) {
	if t := w.timers[id]; t != nil {
		t.Stop()
	}
	w.timers[id] = time.AfterFunc(time.Until(at), func() { w.post(workerFired{id}) })
}

func (w *Worker) dial(ctx context.Context) {
	ws, outcome := w.dialer.dial(ctx, writeTimeout)
	if ws == nil {
		w.post(workerDialFailed{outcome})
		return
	}
	select {
	case w.events <- linkOpened{ws}:
	case <-w.over:
		_ = ws.CloseNow()
	}
}

// flush stops executors and uploads. Its deadline is the machine's.
func (w *Worker) flush(ctx context.Context, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	r := Report{OutputsFlushed: true} // there is nothing to lose
	if f := w.o.Executors.Flush; f != nil {
		var err error
		if r, err = f(ctx); err != nil {
			r.OutputsFlushed = false
			w.o.Logger.WarnContext(ctx, "outputs were lost", logattr.Err(err))
		}
	}
	w.post(workerFlushed{r})
}

// speak writes frames and closes connections.
func (w *Worker) speak(ctx context.Context, a workerAction) {
	switch a := a.(type) {
	case workerWelcome:
		w.write(a.ch, welcomeFrame(a.id, a.mcpVersion, w.o.Image, a.welcome))
	case workerRefuse:
		w.write(a.ch, errorFrame(a.id, a.err))
	case workerSendReady:
		w.write(a.ch, readyFrame(readyParams{w.env.SessionID, w.tools, w.o.Workspace, w.booted.Milliseconds()}))
	case workerSendBeat:
		w.prove(ctx, a.ch, a.seq)
	case workerSendReport:
		w.write(a.ch, reportFrame(a.id, a.report))
	case workerClose:
		if w.link != nil && w.link.ch == a.ch {
			w.link.close(a.code, a.reason)
			w.link = nil
		}
	}
}

func (w *Worker) write(ch channelID, b []byte) {
	if w.link != nil && w.link.ch == ch {
		w.link.send(b)
	}
}

// prove lets a heartbeat out only by the way that a call goes: through the MCP
// server, then through the executors. While one is not proved the next is not
// begun.
func (w *Worker) prove(ctx context.Context, ch channelID, seq int64) {
	if w.probe {
		return
	}
	r := w.desk.send(methodPing, jsontext.Value("{}"))
	if r == nil {
		return
	}
	w.probe = true
	r.probe = func(bool) {
		f := w.o.Executors.Pulse
		if f == nil {
			w.pulsed(ctx, pulsed{ch: ch, seq: seq})
			return
		}
		w.work.Go(func() {
			n, err := f(ctx)
			w.post(pulsed{ch, seq, n, err})
		})
	}
}

// pulsed sends the heartbeat that was proved.
func (w *Worker) pulsed(ctx context.Context, e pulsed) {
	w.probe = false
	if e.err != nil {
		w.o.Logger.WarnContext(ctx, "no heartbeat: the executors do not answer", logattr.Err(e.err))
		return
	}
	if w.link == nil || w.link.ch != e.ch {
		return
	}
	now := time.Now()
	w.nextID++
	w.beats[w.nextID] = e.seq
	w.link.send(heartbeatFrame(intID(w.nextID), Heartbeat{
		SessionID: w.env.SessionID, Idle: w.m.idleFor(now), Exec: now.Sub(w.begun),
		ActiveToolCalls: w.m.active, WorkspaceBytes: e.bytes, ChannelVersion: w.m.version.String(),
	}))
	w.step(ctx, workerBeatSent{e.ch, e.seq})
}

// frame handles one message of the host.
func (w *Worker) frame(ctx context.Context, e linkFrame) {
	f, bad := parseFrame(e.data)
	if !e.text {
		bad = &frameError{codeInvalidRequest, nullID, "the message is binary"}
	}
	if bad != nil {
		l := w.link
		l.send(errorFrame(bad.id, &wireError{Code: bad.code, Message: bad.why}))
		if l.broken++; l.broken == MaxBroken {
			w.step(ctx, workerBadFrames{e.ch})
		}
		return
	}
	switch f.kind {
	case kindRequest:
		w.request(ctx, e.ch, f)
	case kindNotification:
		w.notification(ctx, e.ch, f)
	default:
		w.answer(ctx, e.ch, f)
	}
}

func (w *Worker) request(ctx context.Context, ch channelID, f frame) {
	id := bytes.Clone(f.id)
	refuse := func(e *wireError) { w.write(ch, errorFrame(id, e)) }
	switch f.method {
	case methodInitialize:
		mcpVersion, h, err := readHello(f.params)
		w.step(ctx, workerHello{ch, id, mcpVersion, h, err})
		return
	case methodRelease:
		var p releaseParams
		if err := json.Unmarshal(f.params, &p); err != nil || !p.Reason.Valid() {
			refuse(versionError(ChannelVersion, "a release of another shape"))
			return
		}
		w.step(ctx, workerReleaseCame{ch, id, p})
		return
	case methodPing:
		w.write(ch, resultFrame(id, jsontext.Value("{}")))
		return
	}
	if strings.HasPrefix(f.method, ownPrefix) {
		refuse(versionError("a method of "+Subprotocol, f.method))
		return
	}
	state := w.m.state
	started := state == workerPreparing || state == workerAnnounced || state == workerServing || state == workerWinding
	if !started || (f.method == methodToolsCall && state != workerServing) {
		refuse(&wireError{Code: CodeSessionNotRunning, Message: "SESSION_NOT_RUNNING"})
		return
	}
	w.forward(ctx, ch, id, f)
}

// forward passes work on to the MCP server.
func (w *Worker) forward(ctx context.Context, ch channelID, id jsontext.Value, f frame) {
	result, reply := w.desk.request(waiter{ch, id}, f, time.Now())
	switch result {
	case joined: // answered with the first
	case replayed:
		w.write(ch, reply)
	case mismatched:
		w.write(ch, errorFrame(id, &wireError{Code: codeInvalidParams, Message: "the call id is that of another call"}))
	case forgotten:
		e := &wireError{Code: CodeResultGone, Message: "RESULT_GONE"}
		if !w.m.version.hasReceipts() {
			e = &wireError{Code: codeInternal, Message: "the result of this call is not kept any more"}
		}
		w.write(ch, errorFrame(id, e))
	case overloaded:
		w.write(ch, errorFrame(id, &wireError{Code: codeBusy, Message: "too many calls are under way"}))
	case admitted:
		switch f.method {
		case methodToolsCall:
			w.step(ctx, workerCallBegan{})
		case methodToolsList:
			w.step(ctx, workerListed{ch})
		}
	}
}

func (w *Worker) notification(ctx context.Context, ch channelID, f frame) {
	switch {
	case f.method == methodInitialized:
		w.step(ctx, workerInitialized{ch})
	case f.method == methodCancelled:
		var p struct {
			RequestID jsontext.Value `json:"requestId"`
		}
		if json.Unmarshal(f.params, &p) == nil {
			w.desk.cancel(waiter{ch, p.RequestID})
		}
	case f.method == methodReceived && w.m.version.hasReceipts():
		var p receivedParams
		if err := json.Unmarshal(f.params, &p); err != nil {
			w.write(ch, errorFrame(nullID, versionError(ChannelVersion, "receipts of another shape")))
			return
		}
		w.desk.received(p.CallIDs)
	case strings.HasPrefix(f.method, ownNoticePrefix):
		w.write(ch, errorFrame(nullID, versionError("a notification of "+Subprotocol, f.method)))
	default:
		w.o.Logger.InfoContext(ctx, "the host sent a notification that we do not know")
	}
}

// answer takes the answer to a heartbeat: the only requests of ours.
func (w *Worker) answer(ctx context.Context, ch channelID, f frame) {
	id, ok := ourID(f.id)
	seq, waits := w.beats[id]
	if f.kind == kindError {
		w.o.Logger.WarnContext(ctx, "the host answered with an error", logattr.Err(f.err))
		return
	}
	if !ok || !waits {
		return // to a heartbeat of before
	}
	var r heartbeatResult
	if err := json.Unmarshal(f.result, &r); err != nil {
		w.o.Logger.WarnContext(ctx, "the answer to a heartbeat has another shape", logattr.Err(err))
		return
	}
	for other, n := range w.beats { // an answer to an older one says nothing more
		if n <= seq {
			delete(w.beats, other)
		}
	}
	w.step(ctx, workerBeatAnswered{ch, seq, r})
}

// served takes a message of the MCP server.
func (w *Worker) served(ctx context.Context, m jsonrpc.Message) {
	switch m := m.(type) {
	case *jsonrpc.Response:
		w.finished(ctx, m)
	case *jsonrpc.Request:
		if m.IsCall() {
			w.block(ctx, m)
			return
		}
		if mayLeave(m.Method) && w.link != nil && w.m.state != workerWaiting {
			b := noticeFrame(m.Method, jsontext.Value(m.Params))
			if len(b) > MaxMessage {
				w.o.Logger.WarnContext(ctx, "a notification of a tool is larger than a message may be", logattr.Size(int64(len(b))))
				return
			}
			w.link.send(b)
		}
	}
}

// block is place 3 of the sampling guard: no request of a tool leaves the
// sandbox. The server is answered with a code that its SDK gives no other
// meaning.
func (w *Worker) block(ctx context.Context, m *jsonrpc.Request) {
	name := "CAPABILITY_NOT_NEGOTIATED"
	if e := refuseRequest(m.Method); e != nil {
		name = e.Message
	}
	w.o.Logger.WarnContext(ctx, "a request of a tool was blocked", logattr.Reason(name))
	w.desk.port.push(&jsonrpc.Response{ID: m.ID, Error: &jsonrpc.Error{Code: codeMethodNotFound, Message: name}})
}

// finished answers whoever waits for a request.
func (w *Worker) finished(ctx context.Context, m *jsonrpc.Response) {
	r := w.desk.answered(m, time.Now())
	switch {
	case r == nil:
		return
	case r.probe != nil:
		r.probe(m.Error == nil)
		return
	}
	for _, to := range r.waiters {
		w.write(to.ch, r.answer(to.id))
	}
	r.waiters = nil
	if r.method == methodToolsCall {
		w.step(ctx, workerCallEnded{})
	}
}
