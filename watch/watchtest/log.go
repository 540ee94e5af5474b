package watchtest

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/ossicle/ossicle/watch"
)

// EventLogMIME is the media type of the event logs of this package.
const EventLogMIME = "application/vnd.ossicle.events+json"

// Log is an event-log resource of a Server: a bounded ring of events.
type Log struct {
	server *Server
	uri    string
	size   int

	mu      sync.Mutex
	id      string
	seq     int64
	ring    []json.RawMessage // the last is that of seq
	afters  []*int64
	partial bool
}

// NewLog adds an event log to a server; it keeps the last size events. An
// empty id makes a server that gives neither log nor last_seq and knows no cursor.
func NewLog(s *Server, uri, id string, size int) *Log {
	l := &Log{server: s, uri: uri, size: size, id: id, partial: id != ""}
	s.AddEntry(watch.Entry{URI: uri, Name: uri, MIMEType: EventLogMIME})
	s.OnRead(func(_ context.Context, _ string, after *int64) (watch.Body, error) {
		return watch.Body{Text: l.Body(after), MIMEType: EventLogMIME}, nil
	})
	return l
}

// Append adds events, each the members of a JSON object without its seq, and
// tells nobody.
func (l *Log) Append(events ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		l.seq++
		seq, _ := json.Marshal(l.seq)
		raw := `{"seq":` + string(seq) + `,` + e + `}`
		l.ring = append(l.ring, json.RawMessage(raw))
		if len(l.ring) > l.size {
			l.ring = l.ring[1:]
		}
	}
}

// Push adds events and tells the subscribers.
func (l *Log) Push(events ...string) {
	l.Append(events...)
	l.server.Notify(l.uri)
}

// Restart begins anew, as a server does that was restarted: an empty ring, seqs
// from 1, and another identity if it has one.
func (l *Log) Restart(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.seq, l.ring = id, 0, nil
}

// Afters are the cursors of all reads so far; nil is a read of the whole ring.
func (l *Log) Afters() []*int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*int64(nil), l.afters...)
}

// Body is what a read answers.
func (l *Log) Body(after *int64) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.afters = append(l.afters, after)
	events := l.ring
	if after != nil && l.partial {
		first := l.seq - int64(len(l.ring)) + 1
		events = events[min(int64(len(events)), max(0, *after-first+1)):]
	}
	body := map[string]any{"events": append([]json.RawMessage{}, events...)}
	if l.id != "" {
		body["log"], body["last_seq"] = l.id, l.seq
	}
	raw, _ := json.Marshal(body)
	return string(raw)
}
