package listen

import (
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The frames that the hub writes are put together by hand: one update goes to
// thousands of listens and differs only in the id, and the id must be the very
// bytes that came. All ids that get here are valid JSON.

// appendNotification appends the notification of a topic for one listen.
func appendNotification(dst []byte, id string, t *topic) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"`...)
	dst = append(dst, t.method...)
	dst = append(dst, `","params":`...)
	dst = appendNotificationParams(dst, id, t)
	return append(dst, '}')
}

func appendNotificationParams(dst []byte, id string, t *topic) []byte {
	dst = append(dst, `{"_meta":`...)
	dst = appendSubscription(dst, id)
	if t.uri != "" {
		dst = append(dst, `,"uri":`...)
		dst = appendString(dst, t.uri)
	}
	return append(dst, '}')
}

func appendSubscription(dst []byte, id string) []byte {
	dst = append(dst, `{"`+metaSubscriptionID+`":`...)
	dst = append(dst, id...)
	return append(dst, '}')
}

// appendAcknowledgement appends the ack of a listen: what of it is honoured, and
// in our own _meta key why the rest is not.
func appendAcknowledgement(dst []byte, id string, honoured *Filter, refused []refusal) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"`+notificationAcknowledged+`","params":`...)
	dst = appendAcknowledgementParams(dst, id, honoured, refused)
	return append(dst, '}')
}

func appendAcknowledgementParams(dst []byte, id string, honoured *Filter, refused []refusal) []byte {
	dst = append(dst, `{"_meta":`...)
	dst = appendSubscription(dst, id)
	if len(refused) > 0 {
		dst = append(dst[:len(dst)-1], `,"`+metaRefused+`":`...)
		dst = append(appendValue(dst, refused), '}')
	}
	dst = append(dst, `,"notifications":`...)
	return append(appendValue(dst, honoured), '}')
}

// appendValue appends a value of this package, whose encoding cannot fail: strings
// that are no UTF-8 are made so.
func appendValue(dst []byte, v any) []byte {
	b, _ := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	return append(dst, b...)
}

// appendResult appends the response that ends a listen politely.
func appendResult(dst []byte, id string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"result":`...)
	dst = appendResultValue(dst, id)
	return append(dst, '}')
}

func appendResultValue(dst []byte, id string) []byte {
	dst = append(dst, `{"resultType":"`+resultComplete+`","_meta":`...)
	dst = appendSubscription(dst, id)
	return append(dst, '}')
}

// appendCancelledParams appends the params of the notification that tears a
// listen down on a pipe.
func appendCancelledParams(dst []byte, id string) []byte {
	dst = append(dst, `{"requestId":`...)
	dst = append(dst, id...)
	return append(dst, `,"reason":"the server ended the subscription"}`...)
}

// appendError appends an error response. An empty id is null: the request's
// could not be read.
func appendError(dst []byte, id string, e *wireError) []byte {
	if id == "" {
		id = "null"
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, e.Code, 10)
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, e.Message)
	if len(e.Data) > 0 {
		dst = append(dst, `,"data":`...)
		dst = append(dst, e.Data...)
	}
	return append(dst, "}}"...)
}

// appendString appends s as JSON; what is not UTF-8 in it becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // its only error is the replacement
	return dst
}

// Server-sent events. The event name is the default one, spelled out because
// some clients look for it.
const (
	eventStart   = "event: message\ndata: "
	eventEnd     = "\n\n"
	keepAliveSSE = ": keepalive\n\n"
)

// appendRound appends a round as server-sent events.
func appendRound(dst []byte, id string, r *round) []byte {
	for _, t := range r.topics {
		dst = append(dst, eventStart...)
		dst = appendNotification(dst, id, t)
		dst = append(dst, eventEnd...)
	}
	if r.keepAlive {
		dst = append(dst, keepAliveSSE...)
	}
	if r.last {
		dst = append(dst, eventStart...)
		dst = appendResult(dst, id)
		dst = append(dst, eventEnd...)
	}
	return dst
}

// HTTP/1.1 chunks, for connections that the hub has taken over.

// chunkHead is the room that the head of a chunk needs: eight hexadecimal digits
// and a line end.
const chunkHead = 10

// lastChunk ends a chunked body.
const lastChunk = "0\r\n\r\n"

// sealChunk makes one chunk of buf, whose first chunkHead bytes are room for the
// head and the rest is the data. It returns what to write, which shares buf's
// memory.
func sealChunk(buf []byte) []byte {
	const digits = "0123456789abcdef"
	size := len(buf) - chunkHead
	buf[chunkHead-2], buf[chunkHead-1] = '\r', '\n'
	start := chunkHead - 2
	for {
		start--
		buf[start] = digits[size&15]
		if size >>= 4; size == 0 {
			break
		}
	}
	return append(buf, "\r\n"...)[start:]
}
