package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/ossicle/ossicle/internal/logattr"
)

// reply gathers what the agent says, message by message.
type reply struct {
	done    []string // whole messages
	current strings.Builder
	message string // id of the current message, where the agent says so
	size    int
	cut     bool
	ends    int // messages that have ended, empty ones too
}

// add takes a piece of text. It returns the message that the piece has ended.
func (r *reply) add(t Text) (ended string) {
	if t.Message != "" && r.message != "" && t.Message != r.message {
		ended = r.end()
	}
	if t.Message != "" {
		r.message = t.Message
	}
	text := t.Text
	if room := MaxReply - r.size; len(text) > room {
		text, r.cut = cut(text, room), true
	}
	r.size += len(text)
	r.current.WriteString(text)
	return ended
}

// end closes the current message and returns it.
func (r *reply) end() string {
	text := r.current.String()
	r.current.Reset()
	r.message = ""
	r.ends++
	if strings.TrimSpace(text) == "" {
		return ""
	}
	if r.cut {
		text += "\n[cut: the reply was longer than 1 MiB]"
		r.cut = false
	}
	r.done = append(r.done, text)
	return text
}

// all is everything that was said; last is what was said after the last tool
// call, which is the answer.
func (r *reply) all() string { return strings.Join(r.done, "\n") }

func (r *reply) last() string {
	if len(r.done) == 0 {
		return ""
	}
	return strings.TrimSpace(r.done[len(r.done)-1])
}

// verdict is what became of a run.
type verdict struct {
	err        error // nil: the model has taken everything in
	text       string
	suppressed string // why it is published nowhere
	stop       StopReason
	unproven   bool // nobody knows whether the model has taken it in
}

// judge decides what an outcome means (specification N-22, W-150, W-261).
func judge(r *run, out Outcome, err error) verdict {
	var exit *ExitError
	v := verdict{stop: out.Stop, text: r.text.last(), unproven: out.Unproven}
	switch {
	case r.cause == errNoReply && !errors.As(err, &exit): //nolint:errorlint // a cause is set, never wrapped
		v.suppressed = "no_reply_code"
	case r.cause != nil && (err != nil || !out.Delivered()):
		v.err = r.cause
	case err != nil:
		v.err = err
	case !out.Delivered():
		v.err = &AbortedError{Run: r.id}
	case !r.endBy.IsZero():
		v.suppressed = "no_reply_code"
	case strings.TrimSpace(r.text.all()) == "":
		v.suppressed = "empty"
	case Suppressed(r.text.all()):
		v.suppressed = "no_reply"
	}
	return v
}

// settle ends a run: its record, then the owners of its notices, then its
// reply, then its tickets, and only then the next run can begin.
func (s *Session) settle(ctx context.Context, r *run, out Outcome, err error) {
	var exit *ExitError
	if errors.As(err, &exit) {
		s.mu.Lock()
		n := s.engine.count
		s.mu.Unlock()
		s.exited(ctx, n, exit)
	}
	s.cancelQuestions(r)
	s.mu.Lock()
	s.endOffers(r)
	s.endText(r)
	s.endTools(r.id)
	v := judge(r, out, err)
	if v.err == nil {
		s.engine.primed = true
	} else {
		s.told = "" // the note may not have been read
	}
	s.mu.Unlock()

	s.recordEnd(ctx, r, v)
	again := s.acknowledge(r, v)
	channel := ""
	inputs, _ := r.ids()
	if v.err == nil || len(inputs) > 0 && !stopped(v.err) { // nobody waits for a notice's error
		channel = s.publishReply(ctx, r, v)
	}
	for _, it := range r.items {
		if it.input != nil {
			it.ticket.settle(Result{Run: r.id, Text: v.text, Suppressed: v.suppressed != "", Channel: channel, Stop: v.stop}, v.err)
		}
	}
	if r.usage != nil {
		s.publish(Update{Stream: StreamAgent, Event: EventUsage, Run: r.id, Usage: r.usage})
	}
	s.publish(Update{Stream: StreamRuntime, Event: EventRunEnded, Run: r.id, Status: string(v.stop), Error: text(v.err)})

	s.mu.Lock()
	s.queue.pushFront(again)
	s.active, s.working = nil, false
	s.feed.ring()
	s.mu.Unlock()
}

// stopped reports whether somebody on our side ended the run: nobody is told of
// it as an error.
func stopped(err error) bool {
	return errors.Is(err, ErrCancelled) || errors.Is(err, errShutdown) || errors.Is(err, errReset)
}

// recordEnd writes the end of the run, and waits for it: once it is written, a
// notice that is offered again after a crash is known as seen, and whoever has
// waited for the run finds it whole in the transcript.
func (s *Session) recordEnd(ctx context.Context, r *run, v verdict) {
	inputs, notices := r.ids()
	cause, why := CauseOf(v.err), s.shown(v.err)
	s.transcript.add(Entry{
		Kind: EntryRunEnd, Run: r.id, Inputs: inputs, Notices: notices, Status: string(v.stop),
		Delivered: v.err == nil && !v.unproven, Suppressed: v.suppressed != "", Error: text(v.err), Cause: cause,
	})
	_ = s.transcript.flush(ctx)
	s.mu.Lock()
	s.meta.UpdatedAt = time.Now()
	s.troubles.ended(s.meta.UpdatedAt, cause, why)
	s.mu.Unlock()
}

// acknowledge tells the owners of the notices. Those of a run that broke are
// offered once more; it returns them (N-22).
func (s *Session) acknowledge(r *run, v verdict) (again []*item) {
	s.mu.Lock()
	proven := r.proven || v.err == nil && !v.unproven
	s.mu.Unlock()
	if proven {
		s.tellWoken(r)
	}
	s.endWoken(r)
	for _, it := range r.items {
		if it.notice == nil {
			continue
		}
		switch {
		case v.err == nil && v.unproven:
			s.mu.Lock()
			delete(s.queue.known, it.id)
			s.mu.Unlock()
			s.tell(it, Ack{State: AckWritten, Run: r.id})
			s.publishNotice(it, EventNoticeWritten, Update{Run: r.id})
		case v.err == nil:
			s.mu.Lock()
			delete(s.queue.known, it.id)
			s.queue.seen.add(it.id)
			s.mu.Unlock()
			s.tell(it, Ack{State: AckSeen, Run: r.id})
			s.publishNotice(it, EventNoticeSeen, Update{Run: r.id})
		case it.failed == 0: // at a shutdown it is handed back from the queue
			it.failed++
			it.offered = false
			s.recordQueue(it, OpRequeue)
			s.publishNotice(it, EventNoticeRequeued, Update{Run: r.id, Reason: v.err.Error()})
			again = append(again, it)
		default:
			s.fail(it, r.id, v.err)
		}
	}
	return again
}

// tellWoken tells the owners that the turn has begun, once each.
func (s *Session) tellWoken(r *run) {
	r.told.Lock()
	defer r.told.Unlock()
	s.mu.Lock()
	fresh := r.items[r.tell:]
	r.tell = len(r.items)
	s.mu.Unlock()
	for _, it := range fresh {
		if it.notice != nil && !it.woken { // once, also over a second turn
			it.woken = true
			s.tell(it, Ack{State: AckWoken, Run: r.id})
			s.publishNotice(it, EventNoticeWoken, Update{Run: r.id})
		}
	}
}

// endWoken sees to it that nobody hears of the turn after its last word: Run may
// have been on its way to tellWoken.
func (s *Session) endWoken(r *run) {
	r.told.Lock()
	defer r.told.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.wokenDue = false
	r.tell = len(r.items)
}

// fail hands an item back for good.
func (s *Session) fail(it *item, run string, err error) {
	if it.input != nil {
		it.ticket.settle(Result{Run: run}, err)
		return
	}
	s.mu.Lock()
	delete(s.queue.known, it.id)
	s.mu.Unlock()
	s.recordQueue(it, OpDrop)
	s.tell(it, Ack{State: AckUndelivered, Run: run, Err: err})
	s.publishNotice(it, EventNoticeLost, Update{Run: run, Error: err.Error()})
}

// publishReply hands the reply to its channel, unless it is one that says
// nothing. It returns where the reply went.
func (s *Session) publishReply(ctx context.Context, r *run, v verdict) string {
	if v.suppressed != "" {
		s.log.LogAttrs(ctx, slog.LevelDebug, "reply.suppressed", logattr.Session(s.id), logattr.Reason(v.suppressed))
		s.publish(Update{Stream: StreamRuntime, Event: EventReplySuppressed, Run: r.id, Text: v.text, Reason: v.suppressed})
		return ""
	}
	s.publish(Update{Stream: StreamRuntime, Event: EventReply, Run: r.id, Text: v.text, Channel: name(r.channel), Error: text(v.err), cause: v.err})
	if r.channel == nil {
		if v.err != nil {
			return "" // whoever asked is told by the ticket
		}
		s.log.LogAttrs(ctx, slog.LevelInfo, "reply.unrouted", logattr.Session(s.id), logattr.Size(int64(len(v.text))))
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.ReplyTime)
	defer cancel()
	reply := Reply{Run: r.id, Text: v.text, Err: v.err}
	if v.err != nil {
		reply.Text = ""
	}
	if err := r.channel.Publish(ctx, reply); err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "reply.failed", logattr.Session(s.id), channelName(r.channel), logattr.Err(err))
		s.publish(Update{Stream: StreamRuntime, Event: EventReplyFailed, Run: r.id, Channel: name(r.channel), Error: err.Error()})
		return ""
	}
	return name(r.channel)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func channelName(c Channel) slog.Attr { return slog.String("channel", c.Name()) }
