package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// item is an input or a notice on its way to a run.
type item struct {
	id string
	at time.Time

	input  *Input
	ticket *Ticket

	notice  *Notice
	acks    []func(Ack)
	failed  int  // turns that carried it and broke
	woken   bool // its owner knows that a turn with it began
	offered bool // to the running turn, which did not take it
}

// maxAcks bounds who hears of one notice.
const maxAcks = 8

// tell says how far a notice has come, to all who want to hear. The caller does
// not hold the session's lock.
func (s *Session) tell(it *item, ack Ack) {
	s.mu.Lock()
	acks := slices.Clone(it.acks)
	s.mu.Unlock()
	for _, f := range acks {
		f(ack)
	}
}

// queue holds what no run has claimed, in order of arrival. Its user holds the
// session's lock.
type queue struct {
	items               []*item
	inputs, notices     int // unclaimed
	maxInputs, maxNotes int
	known               map[string]*item // notices that are unclaimed or in a run
	seen                recent           // notices that a completed turn has carried
	addressed           Channel          // of the last input that addressed the agent
}

func newQueue(inputs, notices int) queue {
	return queue{maxInputs: inputs, maxNotes: notices, known: map[string]*item{}, seen: newRecent()}
}

func (q *queue) push(it *item) {
	q.items = append(q.items, it)
	q.count(it, 1)
}

// pushFront puts items back where they came from.
func (q *queue) pushFront(items []*item) {
	q.items = slices.Concat(items, q.items)
	for _, it := range items {
		q.count(it, 1)
	}
}

func (q *queue) count(it *item, by int) {
	if it.input != nil {
		q.inputs += by
	} else {
		q.notices += by
	}
}

func (q *queue) counts() (inputs, notices int) { return q.inputs, q.notices }

// claimable reports whether a run is due.
func (q *queue) claimable(held bool) bool { return q.inputs > 0 || q.notices > 0 && !held }

// claim takes everything, or only the inputs while notices are held back.
func (q *queue) claim(held bool) []*item {
	if !held {
		return q.drain()
	}
	var taken, left []*item
	for _, it := range q.items {
		if it.input != nil {
			taken = append(taken, it)
			q.count(it, -1)
		} else {
			left = append(left, it)
		}
	}
	q.items = left
	return taken
}

func (q *queue) drain() []*item {
	taken := q.items
	q.items, q.inputs, q.notices = nil, 0, 0
	return taken
}

// dropSeen takes out the notices that a completed turn has carried already.
func (q *queue) dropSeen() []*item {
	var dropped []*item
	q.items = slices.DeleteFunc(q.items, func(it *item) bool {
		if it.notice == nil || !q.seen.has(it.id) {
			return false
		}
		dropped = append(dropped, it)
		delete(q.known, it.id)
		q.count(it, -1)
		return true
	})
	return dropped
}

// recent is a bounded set of strings; the oldest leaves first.
type recent struct {
	ring []string
	next int
	set  map[string]struct{}
}

func newRecent() recent { return recent{set: map[string]struct{}{}} }

func (r *recent) has(id string) bool { _, ok := r.set[id]; return ok }

func (r *recent) add(id string) {
	if r.has(id) {
		return
	}
	if len(r.ring) < seenIDs {
		r.ring = append(r.ring, id)
	} else {
		delete(r.set, r.ring[r.next])
		r.ring[r.next] = id
		r.next = (r.next + 1) % seenIDs
	}
	r.set[id] = struct{}{}
}

// Submit accepts what somebody says. It waits in the queue until a run claims
// it; the ticket follows it. An input that addresses the agent also releases
// notices held back by Cancel, and ends the wait for Options.Ready.
//
// Errors: ErrEmpty, ErrTooLarge, ErrQueueFull, ErrClosed; nothing was accepted
// then.
func (s *Session) Submit(in Input) (*Ticket, error) {
	if strings.TrimSpace(in.Text) == "" {
		return nil, fmt.Errorf("submit input: %w", ErrEmpty)
	}
	if len(in.Text) > MaxInput {
		return nil, fmt.Errorf("submit input of %d bytes (at most %d): %w", len(in.Text), MaxInput, ErrTooLarge)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != fresh && s.state != open {
		return nil, ErrClosed
	}
	if s.queue.inputs >= s.queue.maxInputs {
		return nil, fmt.Errorf("submit input: %d wait already: %w", s.queue.inputs, ErrQueueFull)
	}
	t := newTicket()
	if !in.Chatter {
		s.held, s.gated = false, false
		if in.Channel != nil {
			s.queue.addressed = in.Channel
		}
	}
	s.enqueueInput(in, t)
	return t, nil
}

func (s *Session) enqueueInput(in Input, t *Ticket) {
	it := &item{id: t.ID, at: time.Now(), input: &in, ticket: t}
	s.queue.push(it)
	s.transcript.add(Entry{Time: it.at, Kind: EntryUser, ID: it.id, Text: in.Text, From: in.From, Channel: name(in.Channel)})
	s.publish(Update{Stream: StreamInput, Event: EventInputQueued, ID: it.id, From: in.From, Channel: name(in.Channel), Text: in.Text})
	s.ring()
}

// Notify accepts a notice. It goes in the way that input does (specification
// W-140), and ack, which may be nil, hears how far it comes; it is called
// outside of the session's locks, one call after the other, and should not
// block for long.
//
// A notice whose id waits or runs already is not shown twice; its ack hears what
// comes next, beside the first. One that a completed turn has carried is
// acknowledged as seen at once.
//
// Errors: ErrTooLarge, ErrQueueFull, ErrClosed; nothing was accepted then.
func (s *Session) Notify(n Notice, ack func(Ack)) error {
	if n.ID == "" {
		return fmt.Errorf("notify session: the notice has no id")
	}
	if size := len(n.Text) + len(n.Name) + len(n.URI); size > MaxNotice {
		return fmt.Errorf("notify session of %d bytes (at most %d): %w", size, MaxNotice, ErrTooLarge)
	}
	if ack == nil {
		ack = func(Ack) {}
	}
	s.mu.Lock()
	if s.queue.seen.has(n.ID) {
		s.mu.Unlock()
		ack(Ack{State: AckSeen})
		return nil
	}
	defer s.mu.Unlock()
	if s.state != fresh && s.state != open {
		return ErrClosed
	}
	if it := s.queue.known[n.ID]; it != nil {
		if len(it.acks) >= maxAcks {
			return fmt.Errorf("notify session: %d hear of notice %q already: %w", len(it.acks), n.ID, ErrQueueFull)
		}
		it.acks = append(it.acks, ack)
		return nil
	}
	if s.queue.notices >= s.queue.maxNotes {
		return fmt.Errorf("notify session: %d wait already: %w", s.queue.notices, ErrQueueFull)
	}
	it := &item{id: n.ID, at: time.Now(), notice: &n, acks: []func(Ack){ack}}
	s.queue.known[n.ID] = it
	s.queue.push(it)
	s.recordQueue(it, OpEnqueue)
	s.publishNotice(it, EventNoticeQueued, Update{Text: n.Text})
	if s.held {
		s.publish(Update{Stream: StreamWaiting, Event: EventHeld, ID: it.id})
	}
	s.ring()
	return nil
}

// recordQueue notes in the transcript what the queue does with a notice.
func (s *Session) recordQueue(it *item, operation string) {
	s.transcript.add(Entry{
		Kind: EntryQueue, ID: it.id, Operation: operation,
		TaskID: it.notice.TaskID(), Description: it.notice.Description(),
	})
}

func (s *Session) publishNotice(it *item, event string, u Update) {
	u.Stream, u.Event, u.ID = StreamNotice, event, it.id
	u.Source, u.Name, u.URI = it.notice.source(), it.notice.Name, it.notice.URI
	s.publish(u)
}

func name(c Channel) string {
	if c == nil {
		return ""
	}
	return c.Name()
}
