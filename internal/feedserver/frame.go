package feedserver

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/ossicle/ossicle/feed"
	"github.com/ossicle/ossicle/internal/jsonx"
	"github.com/ossicle/ossicle/sse"
)

// A frame is kept as a chunk of HTTP/1.1's transfer coding, made once for all
// subscribers: consecutive frames go out in one write without being touched.
// Who needs it bare takes the middle of it.

// chunkRoom is for the length in front of a chunk.
const chunkRoom = 10

// endChunk is the end of a body.
const endChunk = "0\r\n\r\n"

// Encode makes the frame of an event. It is for feed.Options.Encode; frames of a
// hub that has none are made as they are needed.
func Encode(e feed.Event) []byte {
	data := appendEvent(make([]byte, 0, len(e.Data)+len(e.Topic)+len(e.Type)+len(e.Key)+160), e)
	return chunked(len(data)+len(e.Type)+80, func(b []byte) []byte {
		return appendFrame(b, feed.Position{Epoch: e.Epoch, ID: e.ID}, e.Type, data)
	})
}

// appendEvent appends the JSON of an event, which is that of its type.
func appendEvent(b []byte, e feed.Event) []byte {
	b = strconv.AppendInt(append(b, `{"id":`...), e.ID, 10)
	b = jsonx.AppendString(append(b, `,"epoch":`...), e.Epoch)
	b = jsonx.AppendString(append(b, `,"topic":`...), e.Topic)
	b = jsonx.AppendString(append(b, `,"type":`...), e.Type)
	if e.Key != "" {
		b = jsonx.AppendString(append(b, `,"key":`...), e.Key)
	}
	b = e.Time.UTC().AppendFormat(append(b, `,"time":"`...), time.RFC3339Nano)
	b = append(append(b, `","data":`...), e.Data...)
	return append(b, '}')
}

// appendFrame appends a frame. What it is made of was checked as it came in; a
// field that cannot be sent all the same is left out.
func appendFrame(b []byte, at feed.Position, kind string, data []byte) []byte {
	out, err := sse.Append(b, sse.Event{ID: at.String(), Type: kind, Data: data})
	if err != nil {
		out, _ = sse.Append(b, sse.Event{Data: data})
	}
	return out
}

// chunked returns the chunk of what fill appends.
func chunked(size int, fill func([]byte) []byte) []byte {
	b := fill(make([]byte, chunkRoom, chunkRoom+size+2))
	digits := strconv.AppendInt(nil, int64(len(b)-chunkRoom), 16)
	at := chunkRoom - 2 - len(digits)
	copy(b[at:], digits)
	b[chunkRoom-2], b[chunkRoom-1] = '\r', '\n'
	return append(b, '\r', '\n')[at:]
}

// bare is what is in a chunk.
func bare(chunk []byte) []byte {
	for i, c := range chunk {
		if c == '\n' {
			return chunk[i+1 : len(chunk)-2]
		}
	}
	return nil
}

// frameOf is the chunk of an item.
func frameOf(it *feed.Item) []byte {
	if it.Frame == nil {
		return Encode(it.Event)
	}
	return it.Frame
}

// gapFrame tells of a gap; its id is the position behind it.
func gapFrame(g feed.Gap, at feed.Position) []byte {
	return chunked(192, func(b []byte) []byte {
		data, err := json.Marshal(g)
		if err != nil {
			return b
		}
		return appendFrame(b, at, feed.GapType, data)
	})
}

// greeting is the first that a stream gets. One that does not resume learns
// where it is.
func greeting(retry time.Duration, at *feed.Position) []byte {
	return chunked(96, func(b []byte) []byte {
		b = sse.AppendRetry(sse.AppendComment(b, "ok"), retry)
		if at != nil {
			b = appendID(b, *at)
			b = append(b, '\n')
		}
		return b
	})
}

// heartbeat is a sign of life, with the position where it is news.
func heartbeat(at *feed.Position) []byte {
	return chunked(64, func(b []byte) []byte {
		if at != nil {
			b = appendID(b, *at)
		}
		return sse.AppendComment(b, "heartbeat")
	})
}

// farewell is the last that a stream gets of a server that ends.
func farewell(retry time.Duration) []byte {
	return chunked(64, func(b []byte) []byte { return sse.AppendRetry(sse.AppendComment(b, "bye"), retry) })
}

func appendID(b []byte, at feed.Position) []byte {
	return append(append(append(b, "id: "...), at.String()...), '\n')
}

// plainHeartbeat is shared by all streams.
var plainHeartbeat = heartbeat(nil)
