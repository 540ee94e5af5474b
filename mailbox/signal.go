package mailbox

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of what members write, in bytes.
const (
	MaxContent  = 64 << 10 // of a signal or a note
	MaxMetadata = 16 << 10
	MaxKey      = 256      // of a whiteboard entry
	MaxValue    = 64 << 10 // of a whiteboard entry
	MaxEntries  = 1000     // of a whiteboard
	MaxWord     = 128      // harness, substrate
)

// Type says what a signal wants.
type Type string

// Types (specification S-4).
const (
	Inform   Type = "inform"   // for your information
	Query    Type = "query"    // please answer
	Delegate Type = "delegate" // please do it
	Ack      Type = "ack"      // an answer: taken note, done
	Warn     Type = "warn"     // beware
	Urgent   Type = "urgent"   // now
)

// Types lists all types.
func Types() []Type { return []Type{Inform, Query, Delegate, Ack, Warn, Urgent} }

// Signal is one message from a member to others.
type Signal struct {
	ID string `json:"id"`
	// Sequence orders the signals of a session: 1, 2, 3 and so on, without a gap,
	// in the order of their commits.
	Sequence  int64     `json:"sequence"`
	Time      time.Time `json:"time"` // by the sender's clock; Sequence is the order
	Sender    string    `json:"sender"`
	Recipient string    `json:"recipient"`
	Type      Type      `json:"type"`
	// Priority is empty or Urgent.
	Priority Type            `json:"priority,omitempty"`
	Content  string          `json:"content"` // untrusted data
	ReplyTo  string          `json:"reply_to,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Depth is 1 for what was sent out of an escalated turn, else 0.
	Depth int `json:"depth,omitempty"`
	// Read says that the reader has acknowledged it.
	Read bool `json:"read,omitempty"`
	// ReadBy is who has acknowledged it, in order, for its sender only.
	ReadBy []string `json:"read_by,omitempty"`
}

// Demanding reports whether the signal asks for a turn: its type or priority is
// urgent, or its type is delegate.
func (s *Signal) Demanding() bool { return demanding(s.Type, s.Priority) }

func demanding(t, priority Type) bool { return t == Urgent || t == Delegate || priority == Urgent }

// LogValue tells what a log may know of a signal: never what it says.
func (s Signal) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", s.ID), slog.Int64("sequence", s.Sequence), slog.String("sender", s.Sender),
		slog.String("recipient", s.Recipient), slog.String("type", string(s.Type)), slog.Int("size", len(s.Content)))
}

// Draft is a signal before it is sent. Who sends it is not part of it.
type Draft struct {
	To       string          `json:"to"`
	Type     Type            `json:"type"`
	Priority Type            `json:"priority"`
	Content  string          `json:"content"`
	ReplyTo  string          `json:"reply_to"`
	Metadata json.RawMessage `json:"metadata"`
}

// Signal returns the draft as the signal that a store keeps. It is checked: see
// Member.Send.
func (d *Draft) signal(id, sender string, now time.Time) Signal {
	return Signal{
		ID: id, Time: now.UTC(), Sender: sender, Recipient: d.To, Type: d.Type, Priority: d.Priority,
		Content: d.Content, ReplyTo: d.ReplyTo, Metadata: d.Metadata,
	}
}

// check fills in what may be left out, and refuses what cannot be sent.
func (d *Draft) check() error {
	if d.Type == "" {
		d.Type = Inform
	}
	if !known(d.Type) {
		return &InvalidError{Field: "type", Problem: fmt.Sprintf("%q is none of %s", clip(string(d.Type), 32), typeNames())}
	}
	if d.Priority != "" && d.Priority != Urgent {
		return &InvalidError{Field: "priority", Problem: fmt.Sprintf("%q is not %q; leave it out otherwise", clip(string(d.Priority), 32), Urgent)}
	}
	if d.To != Everybody {
		if err := checkID("to", d.To); err != nil {
			return err
		}
	}
	if err := checkText("content", d.Content, MaxContent); err != nil {
		return err
	}
	if d.Content == "" {
		return &InvalidError{Field: "content", Problem: "it is empty"}
	}
	if len(d.ReplyTo) > MaxID {
		return &InvalidError{Field: "reply_to", Problem: "it is longer than the id of any signal"}
	}
	return d.checkMetadata()
}

func (d *Draft) checkMetadata() error {
	m := jsontext.Value(d.Metadata)
	switch {
	case len(m) == 0 || m.Kind() == 'n':
		d.Metadata = nil
		return nil
	case len(m) > MaxMetadata:
		return &InvalidError{Field: "metadata", Problem: fmt.Sprintf("it has %d bytes and %d are allowed", len(m), MaxMetadata)}
	case m.Kind() != '{' || jsonv2.Unmarshal(m, new(jsontext.Value)) != nil || !m.IsValid():
		return &InvalidError{Field: "metadata", Problem: "it is not a JSON object with each name once"}
	}
	kept := m.Clone()
	if err := kept.Compact(); err != nil {
		return &InvalidError{Field: "metadata", Problem: err.Error()}
	}
	d.Metadata = json.RawMessage(kept)
	return nil
}

func known(t Type) bool {
	return slices.Contains(Types(), t)
}

func typeNames() string {
	names := make([]string, 0, len(Types()))
	for _, t := range Types() {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}

func checkText(field, s string, limit int) error {
	switch {
	case len(s) > limit:
		return &InvalidError{Field: field, Problem: fmt.Sprintf("it has %d bytes and %d are allowed", len(s), limit)}
	case !utf8.ValidString(s):
		return &InvalidError{Field: field, Problem: "it is not valid UTF-8"}
	}
	return nil
}

// Note is a line in the log that all members of a session share.
type Note struct {
	Sequence int64     `json:"sequence"`
	Time     time.Time `json:"time"`
	Author   string    `json:"author"`
	Text     string    `json:"text"`
}

// Entry is one value of the whiteboard.
type Entry struct {
	Key       string    `json:"key"`
	Value     string    `json:"value"`
	UpdatedBy string    `json:"updated_by"`
	UpdatedAt time.Time `json:"updated_at"`
}

func checkEntry(key, value string) error {
	if key == "" {
		return &InvalidError{Field: "key", Problem: "it is empty"}
	}
	if err := checkText("key", key, MaxKey); err != nil {
		return err
	}
	return checkText("value", value, MaxValue)
}
