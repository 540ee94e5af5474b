package feed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of what is published (specification F-5).
const (
	MaxTopic = 128       // bytes of a topic's name
	MaxType  = 128       // bytes
	MaxKey   = 512       // bytes of a key, and of an idempotency key
	MaxData  = 256 << 10 // bytes of an event's data, compact
	MaxBatch = 1000      // events of one batch
)

// DefaultType is the type of an event that names none.
const DefaultType = "message"

// GapType is the type under which subscribers are told of a [Gap]. No event may
// have it.
const GapType = "gap"

// Event is one entry of the log.
type Event struct {
	// ID is positive and greater than that of every event before it.
	ID int64 `json:"id"`
	// Epoch names the log that the id belongs to.
	Epoch string    `json:"epoch"`
	Topic string    `json:"topic"`
	Type  string    `json:"type"`
	Key   string    `json:"key,omitzero"`
	Time  time.Time `json:"time"`
	// Data is compact JSON, its numbers spelt as they came.
	Data json.RawMessage `json:"data"`
}

// Draft is an event to be published.
type Draft struct {
	Topic string
	Type  string // DefaultType if empty
	Key   string // names the thing that the event is about; may be empty
	Data  json.RawMessage
	// IdempotencyKey, if there is one, makes a repetition within its topic return
	// the id of the first, for as long as the topic's retention time.
	IdempotencyKey string
}

// Receipt says where an event stands in the log.
type Receipt struct {
	ID int64 `json:"id"`
	// Repeated: the idempotency key was known, nothing was published.
	Repeated bool `json:"repeated,omitzero"`
}

// ErrTooLarge is wrapped by the errors of what is over a limit.
var ErrTooLarge = errors.New("too large")

// InvalidError says what is wrong with a draft, a filter or a position.
type InvalidError struct {
	Field  string // "topic", "type", …
	Reason string
	Err    error // may be nil
}

func (e *InvalidError) Error() string { return "invalid " + e.Field + ": " + e.Reason }

// Unwrap returns ErrTooLarge where that is the matter.
func (e *InvalidError) Unwrap() error { return e.Err }

// BatchError names the draft of a batch that is refused. None of the batch was
// published.
type BatchError struct {
	Index int
	Err   error
}

func (e *BatchError) Error() string { return fmt.Sprintf("event %d: %v", e.Index, e.Err) }

// Unwrap returns what is wrong with the draft.
func (e *BatchError) Unwrap() error { return e.Err }

// Clean returns drafts as they are stored: checked, with their defaults and
// compact data. The originals are left alone. Errors: *InvalidError for the
// batch as a whole, else *BatchError.
func Clean(drafts []Draft) ([]Draft, error) {
	if len(drafts) > MaxBatch {
		return nil, &InvalidError{"batch", fmt.Sprintf("it has %d events and %d are allowed", len(drafts), MaxBatch), ErrTooLarge}
	}
	clean := make([]Draft, len(drafts))
	for i, d := range drafts {
		if err := d.clean(); err != nil {
			return nil, &BatchError{i, err}
		}
		clean[i] = d
	}
	return clean, nil
}

func (d *Draft) clean() error {
	if err := CheckTopic(d.Topic); err != nil {
		return err
	}
	if d.Type == "" {
		d.Type = DefaultType
	}
	if d.Type == GapType {
		return &InvalidError{"type", `"gap" is what the feed says itself`, nil}
	}
	for _, f := range []struct {
		name, value string
		limit       int
	}{{"type", d.Type, MaxType}, {"key", d.Key, MaxKey}, {"idempotency key", d.IdempotencyKey, MaxKey}} {
		if len(f.value) > f.limit {
			return &InvalidError{f.name, fmt.Sprintf("it has %d bytes and %d are allowed", len(f.value), f.limit), ErrTooLarge}
		}
		if !utf8.ValidString(f.value) || strings.ContainsFunc(f.value, unicode.IsControl) {
			return &InvalidError{f.name, "control characters and broken UTF-8 are not allowed", nil}
		}
	}
	return d.cleanData()
}

func (d *Draft) cleanData() error {
	// White space may be as much again; more is not worth reading.
	if len(d.Data) > 2*MaxData {
		return tooMuchData(len(d.Data))
	}
	data := jsontext.Value(bytes.Clone(d.Data))
	if err := data.Compact(jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false)); err != nil {
		return &InvalidError{"data", "it is no JSON: " + err.Error(), nil}
	}
	if len(data) > MaxData {
		return tooMuchData(len(data))
	}
	d.Data = json.RawMessage(data)
	return nil
}

func tooMuchData(n int) error {
	return &InvalidError{"data", fmt.Sprintf("it has %d bytes and %d are allowed", n, MaxData), ErrTooLarge}
}
