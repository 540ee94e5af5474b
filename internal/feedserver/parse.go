package feedserver

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/jsonx"
)

// MaxBody bounds a JSON body, in bytes. NDJSON has no bound but that of a line.
const MaxBody = jsonx.MaxSize

// maxLine bounds a line of NDJSON: data may have as much white space as it has
// bytes, and there are other fields.
const maxLine = 2*feed.MaxData + 8<<10

// parseBody reads a JSON body: one event, or an array of them. A key for the
// request as a whole is that of its one event, or with #0, #1 … behind it those
// of the array. Errors: *feed.InvalidError, *feed.BatchError.
func parseBody(b []byte, topic, key string) ([]feed.Draft, error) {
	if trimmed := bytes.TrimLeft(b, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '[' {
		d, err := parseEvent(b, topic)
		if err != nil {
			return nil, err
		}
		if d.IdempotencyKey == "" {
			d.IdempotencyKey = key
		}
		return []feed.Draft{d}, nil
	}
	var items []jsonx.Span
	n := 0
	if _, err := jsonx.ScanList(b, nil, func(at jsonx.Span, _ []jsonx.Span) {
		if n++; n <= feed.MaxBatch {
			items = append(items, at)
		}
	}); err != nil {
		return nil, notJSON(err)
	}
	if n > feed.MaxBatch {
		return nil, &feed.InvalidError{
			Field: "batch", Reason: fmt.Sprintf("it has %d events and %d are allowed; send more as application/x-ndjson", n, feed.MaxBatch), Err: feed.ErrTooLarge,
		}
	}
	drafts := make([]feed.Draft, n)
	for i, at := range items {
		d, err := parseEvent(at.Of(b), topic)
		if err != nil {
			return nil, &feed.BatchError{Index: i, Err: err}
		}
		if d.IdempotencyKey == "" {
			d.IdempotencyKey = numbered(key, int64(i))
		}
		drafts[i] = d
	}
	return drafts, nil
}

// numbered is the idempotency key of one of many events.
func numbered(key string, i int64) string {
	if key == "" {
		return ""
	}
	return fmt.Sprintf("%s#%d", key, i)
}

// parseEvent reads one event: an object with data, and type, key and
// idempotency_key where there are such. Data is kept as it is spelt.
func parseEvent(b []byte, topic string) (feed.Draft, error) {
	d := feed.Draft{Topic: topic}
	var problem error
	object, err := jsonx.ScanObject(b, func(name string, at jsonx.Span) {
		if problem != nil {
			return
		}
		switch name {
		case "data":
			d.Data = at.Of(b)
		case "type":
			d.Type, problem = text(name, at.Of(b))
		case "key":
			d.Key, problem = text(name, at.Of(b))
		case "idempotency_key":
			d.IdempotencyKey, problem = text(name, at.Of(b))
		default:
			problem = invalid("event", fmt.Sprintf("it has a field %.40q; there are data, type, key and idempotency_key, and what is yours goes into data", name))
		}
	})
	switch {
	case err != nil:
		return d, notJSON(err)
	case !object:
		return d, invalid("event", `it is no object; send {"data": …}`)
	case problem != nil:
		return d, problem
	case d.Data == nil:
		return d, invalid("event", `it has no data; send {"data": …}, with null where there is none`)
	}
	return d, nil
}

func text(name string, raw []byte) (string, error) {
	if raw[0] != '"' {
		return "", invalid(name, "it is no string")
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return "", invalid(name, "it is no string: "+err.Error())
	}
	return string(b), nil
}

func notJSON(err error) error { return invalid("body", "it is no JSON: "+err.Error()) }

func invalid(field, reason string) error { return &feed.InvalidError{Field: field, Reason: reason} }
