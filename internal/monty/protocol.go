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
	reqConfigure  protowire.Number = 1
	reqFeed       protowire.Number = 3
	reqResumeCall protowire.Number = 4
	reqResumeName protowire.Number = 5
	reqResumeAll  protowire.Number = 6
	reqDump       protowire.Number = 7
	reqLoad       protowire.Number = 8
	reqReset      protowire.Number = 9
)

// Kinds of event, the tags of ChildEvent below 20. Print comes any number of
// times in a turn; each other kind ends it.
const (
	evPrint       protowire.Number = 1
	evCall        protowire.Number = 2
	evOSCall      protowire.Number = 3
	evName        protowire.Number = 4
	evFutures     protowire.Number = 5
	evComplete    protowire.Number = 6
	evError       protowire.Number = 7
	evTypingError protowire.Number = 8
	evDump        protowire.Number = 9
	evOK          protowire.Number = 10
	evFatal       protowire.Number = 11
)

// Kinds of value, the tags of MontyObject.
const (
	objEllipsis       protowire.Number = 1
	objNone           protowire.Number = 2
	objNotImplemented protowire.Number = 3
	objBool           protowire.Number = 4
	objInt            protowire.Number = 5
	objBigInt         protowire.Number = 6
	objFloat          protowire.Number = 7
	objStr            protowire.Number = 8
	objBytes          protowire.Number = 9
	objList           protowire.Number = 11
	objTuple          protowire.Number = 12
	objNamedTuple     protowire.Number = 13
	objDict           protowire.Number = 14
	objSet            protowire.Number = 15
	objFrozenSet      protowire.Number = 16
	objDate           protowire.Number = 17
	objTime           protowire.Number = 18
	objDateTime       protowire.Number = 19
	objTimeDelta      protowire.Number = 20
	objTimeZone       protowire.Number = 21
	objException      protowire.Number = 22
	objType           protowire.Number = 23
	objInstance       protowire.Number = 24
	objFunction       protowire.Number = 25
	objBuiltin        protowire.Number = 26
	objPath           protowire.Number = 27
	objFile           protowire.Number = 28
	objRepr           protowire.Number = 29
	objCycle          protowire.Number = 30
)

// Messages nest at most this deep in a request; the child refuses more.
const maxMessageDepth = 90

// event is a decoded turn end. body is the message of its kind and is valid
// until the next read from the same worker.
type event struct {
	kind protowire.Number
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
		f := field{num: num, typ: typ}
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
	num protowire.Number
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
func text(b []byte, num protowire.Number) string {
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
