package worker

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxAudits bounds the audit entries that one connection can cause, so that a
// hostile worker does not write the log for us.
const maxAudits = 100

// hostLink reads one connection of a worker. Everything that it reads is judged
// before anything dispatches it.
type hostLink struct {
	*link
	s       *Session
	ch      channelID
	opened  time.Time
	release func() // of the place in the handshake limit
	broken  int
	audits  int
}

// take handles one message. It runs in the reader's goroutine, so messages of a
// connection are handled in their order.
func (l *hostLink) take(data []byte, text bool) {
	f, bad := parseFrame(data)
	if !text {
		bad = &frameError{codeInvalidRequest, nullID, "the message is binary"}
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if bad != nil {
		l.refuseFrame(bad)
		return
	}
	switch f.kind {
	case kindRequest:
		l.request(f)
	case kindNotification:
		l.notification(f)
	default:
		l.answer(f)
	}
}

// refuseFrame answers and counts a broken frame.
func (l *hostLink) refuseFrame(bad *frameError) {
	l.send(errorFrame(bad.id, &wireError{Code: bad.code, Message: bad.why}))
	l.s.host.observe(Observation{Kind: ObservedBroken})
	if l.broken++; l.broken == MaxBroken {
		l.s.feedLocked(hostBadFrames{l.ch})
	}
}

func (l *hostLink) audit(event, format string, args ...any) {
	l.audits++
	switch {
	case l.audits < maxAudits:
		l.s.audit(event, fmt.Sprintf(format, args...))
	case l.audits == maxAudits:
		l.s.audit("audit_limit", "no more entries about this connection")
	}
}

// request answers a request of the worker. This is place 2 of the sampling
// guard: whatever is not of the channel is refused here, by its decoded name.
func (l *hostLink) request(f frame) {
	if e := refuseRequest(f.method); e != nil {
		event := "refused_request"
		if e.Code == CodeSamplingDisabled {
			event = "sampling_blocked"
		}
		l.audit(event, "%.100q", f.method)
		l.send(errorFrame(f.id, e))
		return
	}
	if f.method == methodPing {
		l.send(resultFrame(f.id, jsontext.Value("{}")))
		return
	}
	var h Heartbeat
	if err := h.UnmarshalJSON(f.params); err != nil {
		l.audit("refused_request", "heartbeat of a wrong shape")
		l.send(errorFrame(f.id, versionError(ChannelVersion, "a heartbeat of another shape")))
		return
	}
	l.s.feedLocked(hostBeat{l.ch, bytes.Clone(f.id), h})
}

// notification takes what needs no answer. An own one that we do not know is
// answered all the same: nothing is dropped without a word.
func (l *hostLink) notification(f frame) {
	switch f.method {
	case methodReady:
		var p readyParams
		if err := json.Unmarshal(f.params, &p); err != nil || p.SessionID == "" {
			l.audit("refused_notification", "ready of a wrong shape")
			l.send(errorFrame(nullID, versionError(ChannelVersion, "a ready of another shape")))
			return
		}
		l.s.feedLocked(hostReady{l.ch, p.SessionID, p.Tools})
	case methodProgress:
		l.s.progressed(l.ch, f.params)
	case methodToolsChanged:
		l.s.relist(l.ch)
	case methodInitialized, methodCancelled, methodMessage:
		// From a worker the first means nothing and the second concerns a request that
		// was answered at once; the sandbox's log stays in the sandbox.
	default:
		l.audit("unknown_notification", "%.100q", f.method)
		if strings.HasPrefix(f.method, ownNoticePrefix) {
			l.send(errorFrame(nullID, versionError("a notification of "+Subprotocol, f.method)))
		}
	}
}

// answer takes the answer to a request of ours. An error about something that
// could not be read is never answered: two peers would play ping-pong.
func (l *hostLink) answer(f frame) {
	id, ok := ourID(f.id)
	p, waits := l.s.pending[id]
	if !ok || !waits || p.ch != l.ch {
		l.audit("unknown_answer", "id %.60s", f.id)
		return
	}
	delete(l.s.pending, id)
	p.take(f)
}

// initializeAnswered judges a candidate, and claims the session in the store
// before it is bound.
func (s *Session) initializeAnswered(ch channelID, f frame) {
	if f.kind == kindError {
		s.feedLocked(hostRefused{ch, fmt.Sprintf("the worker refused initialize: %.60s %.60s", f.err.Message, f.err.Data)})
		return
	}
	mcpVersion, server, w, err := readWelcome(f.result)
	if err != nil {
		s.write(ch, errorFrame(nullID, versionError(ChannelVersion, w.ChannelVersion)))
		s.feedLocked(hostRefused{ch, err.Error()})
		return
	}
	if s.claim(ch, w) {
		s.feedLocked(hostAnswered{ch, mcpVersion, server, w})
	}
}

// claim raises the epoch of the session in the store for a candidate that may
// have it. It reports false if the candidate was sent away instead.
func (s *Session) claim(ch channelID, w welcome) bool {
	for range 3 {
		if ok, _ := s.m.judge(w); !ok || s.m.rec.State.Final() || s.m.gone {
			return true // the machine refuses it
		}
		err := s.claimOnce(w)
		if err == nil {
			return true
		}
		if !isConflict(err) {
			break
		}
	}
	if l := s.links[ch]; l != nil {
		s.host.gate.learn(storeTimeout, 0)
		l.close(closeTryLater, "the session store did not answer")
	}
	return false
}

// releaseAnswered takes the report of a worker. One that cannot be read is a
// report of nothing.
func (s *Session) releaseAnswered(ch channelID, f frame) {
	var r Report
	if f.kind == kindResult {
		if err := r.UnmarshalJSON(f.result); err != nil {
			r = Report{}
		}
	}
	s.feedLocked(hostReported{ch, r})
}
