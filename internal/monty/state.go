package monty

import (
	"bytes"
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// dumpMagic and dumpVersion begin every dump of the pinned build.
const (
	dumpMagic   = "MONTY\x00"
	dumpVersion = 8
)

var errMemoryFixed = errors.New("change memory limit: not possible for the variables of this scope")

// state is what a scope holds between runs: a dump of the interpreter, which
// nobody but the interpreter understands, save for one number. It is immutable.
//
// The number is the interpreter's count of programs. It names each program's
// source, and the dump carries all sources, so that a filter which runs a
// million times would drag a million copies of itself along. Setting the count
// back before the same program runs again makes it take the place of its last
// copy. The same count in a dump of another build would be elsewhere; then
// numbered is false, dumps grow, and nothing else changes.
type state struct {
	dump     []byte
	id       uint64 // tells two states of an engine apart
	memory   int    // the limit that the dump carries
	numbered bool
	at, end  int    // where the count is
	count    uint64 // the count
}

// newState wraps a dump.
func newState(dump []byte, id uint64, memory int) *state {
	s := &state{dump: dump, id: id, memory: memory}
	s.at, s.end, s.count, s.numbered = findCount(dump)
	return s
}

// findCount reads the beginning of a dump: magic, version, script name, no type
// checking, an idle session, the script name again, and the count.
func findCount(dump []byte) (at, end int, count uint64, ok bool) {
	b, ok := bytes.CutPrefix(dump, []byte(dumpMagic))
	if !ok || len(b) < 2 || binary.LittleEndian.Uint16(b) != dumpVersion {
		return 0, 0, 0, false
	}
	b = b[2:]
	name, n := protowire.ConsumeBytes(b)
	if n < 0 || len(b) < n+2 || b[n] != 0 || b[n+1] != 0 {
		return 0, 0, 0, false
	}
	b = b[n+2:]
	again, n := protowire.ConsumeBytes(b)
	if n < 0 || !bytes.Equal(name, again) {
		return 0, 0, 0, false
	}
	b = b[n:]
	count, n = protowire.ConsumeVarint(b)
	if n < 0 {
		return 0, 0, 0, false
	}
	at = len(dump) - len(b)
	return at, at + n, count, true
}

// appendLoad appends the frame that loads the state, with another count if the
// state is numbered.
func (s *state) appendLoad(b []byte, count uint64) []byte {
	if !s.numbered {
		return appendFrame(b, reqLoad, appendMessage(nil, 1, s.dump))
	}
	size := len(s.dump) - (s.end - s.at) + protowire.SizeVarint(count)
	body := protowire.SizeTag(1) + protowire.SizeBytes(size)
	b = binary.LittleEndian.AppendUint32(b, uint32(protowire.SizeTag(reqLoad)+protowire.SizeBytes(body)))
	b = protowire.AppendTag(b, reqLoad, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(body))
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = append(b, s.dump[:s.at]...)
	b = protowire.AppendVarint(b, count)
	return append(b, s.dump[s.end:]...)
}

// withMemory returns the state with another memory limit. The limit lies
// between the heap and the globals, at no place that can be computed, so it is
// searched for; a program that plants a copy of the pattern in its own
// variables keeps its limit, and gets errMemoryFixed here.
func (s *state) withMemory(memory int) (*state, error) {
	if s.memory == memory {
		return s, nil
	}
	before := limitsPattern(s.memory)
	if bytes.Count(s.dump, before) != 1 {
		return nil, errMemoryFixed
	}
	t := *s
	t.dump = bytes.Replace(s.dump, before, limitsPattern(memory), 1)
	t.memory = memory
	return &t, nil
}

// limitsPattern is how a dump spells our limits: some memory, no collector
// interval, the recursion depth, the default of 1000 suspensions.
func limitsPattern(memory int) []byte {
	b := protowire.AppendVarint([]byte{1}, uint64(memory))
	b = protowire.AppendVarint(append(b, 0), recursionLimit)
	return protowire.AppendVarint(b, 1000)
}
