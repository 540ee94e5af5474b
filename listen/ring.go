package listen

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Defaults of [RingOptions].
const (
	DefaultRingEvents = 256
	DefaultRingBytes  = 4 << 20
)

// EventError is the type of the event by which a source tells, in its own log,
// that it has failed (specification W-022).
const EventError = "ERROR"

// RingOptions bound a [Ring]. The zero value, and nil, mean the defaults.
type RingOptions struct {
	// MaxEvents is the number of events that are kept. Zero means
	// [DefaultRingEvents].
	MaxEvents int
	// MaxBytes is the size of their JSON that is kept, at least 1 KiB. Zero means
	// [DefaultRingBytes].
	MaxBytes int
}

const minRingBytes = 1 << 10

// Ring is the event log of one URI: the latest events, each with a seq that is
// one more than that of the event before. When it is full the oldest give way;
// readers see the gap by the seq. It keeps no state of its readers, so any number
// of them see all events. It is safe for concurrent use.
type Ring struct {
	log       string
	maxEvents int
	maxBytes  int

	mu     sync.Mutex
	events []string // JSON objects, oldest first, in a circle from head on
	head   int
	count  int
	bytes  int
	last   int64
}

// NewRing returns an empty ring with a log id of its own, by which a reader
// notices that seq has begun anew.
func NewRing(opts *RingOptions) *Ring {
	r := &Ring{log: rand.Text(), maxEvents: DefaultRingEvents, maxBytes: DefaultRingBytes}
	if opts != nil && opts.MaxEvents > 0 {
		r.maxEvents = opts.MaxEvents
	}
	if opts != nil && opts.MaxBytes > 0 {
		r.maxBytes = max(opts.MaxBytes, minRingBytes)
	}
	r.events = make([]string, min(r.maxEvents, 16))
	return r
}

// Log is the random id of this ring.
func (r *Ring) Log() string { return r.log }

// LastSeq is the seq of the latest event, 0 before the first.
func (r *Ring) LastSeq() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Append adds an event and returns its seq. The event is encoded here, once:
// {"seq":n,"type":kind} and the members of fields, which is nil or encodes as a
// JSON object without "seq" and "type"; anything else is an error, and nothing is
// added. An event that is larger than the whole ring is replaced by an
// [EventError] that says so: its seq is not missing, and its loss is not silent.
func (r *Ring) Append(kind string, fields any) (int64, error) {
	members, err := eventMembers(fields)
	if err != nil {
		return 0, fmt.Errorf("append event %q: %w", kind, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	event := encodeEvent(r.last, kind, members)
	if len(event) > r.maxBytes {
		message := fmt.Sprintf("event %s of %d bytes is over the %d bytes that this log keeps: read the object itself", truncate(kind, 64), len(event), r.maxBytes)
		event = encodeEvent(r.last, EventError, `"message":`+string(appendString(nil, message)))
	}
	r.push(event)
	return r.last, nil
}

// AppendError adds an event of type [EventError] with a message.
func (r *Ring) AppendError(message string) int64 {
	seq, _ := r.Append(EventError, map[string]string{"message": message}) // such a map always encodes
	return seq
}

// eventMembers encodes the fields of an event as the inside of an object.
func eventMembers(fields any) (string, error) {
	if fields == nil {
		return "", nil
	}
	b, err := json.Marshal(fields, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return "", err
	}
	var taken struct {
		Seq  jsontext.Value `json:"seq"`
		Type jsontext.Value `json:"type"`
	}
	if jsontext.Value(b).Kind() != '{' {
		return "", errors.New("fields are no JSON object")
	}
	if err := json.Unmarshal(b, &taken); err != nil {
		return "", err
	}
	if taken.Seq != nil || taken.Type != nil {
		return "", errors.New(`fields have a member "seq" or "type"`)
	}
	v := jsontext.Value(b)
	if err := v.Compact(); err != nil {
		return "", err
	}
	return string(v[1 : len(v)-1]), nil
}

func encodeEvent(seq int64, kind, members string) string {
	b := strconv.AppendInt([]byte(`{"seq":`), seq, 10)
	b = appendString(append(b, `,"type":`...), kind)
	if members != "" {
		b = append(append(b, ','), members...)
	}
	return string(append(b, '}'))
}

func (r *Ring) push(event string) {
	for r.count > 0 && (r.count == r.maxEvents || r.bytes+len(event) > r.maxBytes) {
		r.bytes -= len(r.events[r.head])
		r.events[r.head] = ""
		r.head = (r.head + 1) % len(r.events)
		r.count--
	}
	if r.count == len(r.events) {
		r.grow()
	}
	r.events[(r.head+r.count)%len(r.events)] = event
	r.count++
	r.bytes += len(event)
}

func (r *Ring) grow() {
	grown := make([]string, min(2*len(r.events), r.maxEvents))
	n := copy(grown, r.events[r.head:])
	copy(grown[n:], r.events[:r.head])
	r.events, r.head = grown, 0
}

// Body returns the body of a read: {"log":…,"last_seq":n,"events":[…]}. With
// after it holds only events with a greater seq. A cursor that is ahead of the
// log is of another log, which this one has replaced: it gets the whole ring.
func (r *Ring) Body(after *int64) string {
	r.mu.Lock()
	last := r.last
	skip := 0
	if first := last - int64(r.count) + 1; after != nil && *after <= last && *after >= first {
		skip = int(*after - first + 1)
	}
	events := make([]string, 0, r.count-skip)
	for i := skip; i < r.count; i++ {
		events = append(events, r.events[(r.head+i)%len(r.events)])
	}
	r.mu.Unlock()

	var b strings.Builder
	b.WriteString(`{"log":"` + r.log + `","last_seq":` + strconv.FormatInt(last, 10) + `,"events":[`)
	for i, e := range events {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(e)
	}
	b.WriteString("]}")
	return b.String()
}

// Contents returns the body as the contents of a read of uri: what a [Source]
// returns.
func (r *Ring) Contents(uri string, opts ReadOptions) []Contents {
	return []Contents{{URI: uri, MIMEType: EventLogMIME, Text: r.Body(opts.After)}}
}
