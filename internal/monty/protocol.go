package monty

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// protocolVersion is the only version of the wire that the pinned build
// serves. The tags below are those of that version.
const protocolVersion = 2

// ProtocolError says that the interpreter does not speak our protocol.
type ProtocolError struct {
	Text string // what it said
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("start monty: need protocol version %d, as Monty %s speaks it: %s", protocolVersion, Version, e.Text)
}

// Kinds of request, the tags of ParentRequest.
const (
	reqConfigure  = 1
	reqFeed       = 3
	reqResumeCall = 4
	reqResumeName = 5
	reqResumeAll  = 6
	reqDump       = 7
	reqLoad       = 8
	reqReset      = 9
)

// Kinds of event, the tags of ChildEvent below 20. Print comes any number of
// times in a turn; each other kind ends it.
const (
	evPrint       = 1
	evCall        = 2
	evOSCall      = 3
	evName        = 4
	evFutures     = 5
	evComplete    = 6
	evError       = 7
	evTypingError = 8
	evDump        = 9
	evOK          = 10
	evFatal       = 11
)

// Kinds of value, the tags of MontyObject.
const (
	objEllipsis       = 1
	objNone           = 2
	objNotImplemented = 3
	objBool           = 4
	objInt            = 5
	objBigInt         = 6
	objFloat          = 7
	objStr            = 8
	objBytes          = 9
	objList           = 11
	objTuple          = 12
	objNamedTuple     = 13
	objDict           = 14
	objSet            = 15
	objFrozenSet      = 16
	objDate           = 17
	objTime           = 18
	objDateTime       = 19
	objTimeDelta      = 20
	objTimeZone       = 21
	objException      = 22
	objType           = 23
	objInstance       = 24
	objFunction       = 25
	objBuiltin        = 26
	objPath           = 27
	objFile           = 28
	objRepr           = 29
	objCycle          = 30
)

// Messages nest at most this deep in a request; the child refuses more.
const maxMessageDepth = 90

// event is a decoded turn end. body is the message of its kind and is valid
// until the next read from the same worker.
type event struct {
	kind int32 // an event tag
	body []byte
}

// fields calls fn with each field of a message. Groups and unknown wire types
// are skipped; bytes that are no message are an error.
func fields(b []byte, fn func(f field) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		f := field{num: int32(num), typ: typ}
		switch typ {
		case protowire.VarintType:
			f.n, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			f.n, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.b, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := fn(f); err != nil {
			return err
		}
	}
	return nil
}

// field is one field of a message: b for length-delimited ones, n for varints
// and 64-bit ones.
type field struct {
	num int32
	typ protowire.Type
	b   []byte
	n   uint64
}

// decodeEvent finds the kind of a frame. The last one wins, as protobuf has it.
func decodeEvent(frame []byte) (event, error) {
	var ev event
	err := fields(frame, func(f field) error {
		if f.num < 20 && f.typ == protowire.BytesType {
			ev.kind, ev.body = f.num, f.b
		}
		return nil
	})
	if err == nil && ev.kind == 0 {
		err = fmt.Errorf("event of no kind")
	}
	return ev, err
}

// text returns the last string of that number in a message.
func text(b []byte, num int32) string {
	var s string
	_ = fields(b, func(f field) error {
		if f.num == num && f.typ == protowire.BytesType {
			s = string(f.b)
		}
		return nil
	})
	return s
}

func appendMessage(b []byte, num protowire.Number, body []byte) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendBytes(b, body)
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func appendUint(b []byte, num protowire.Number, v uint64) []byte {
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}
